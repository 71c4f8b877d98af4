"""Tables of text at every width: all cells are there, whole, and rows can be told in every part."""

from __future__ import annotations

import pytest

from fairring.table import Table

HEADS = ("size", "backend", "median\nms", "a rank's bandwidth\nMB/s", "#wrong")
ROWS = (("4B", "gloo", "0.123", "1.5", "0"), ("25MiB", "fairring[lanes=2]", "12345.678", "1234567.9", "-"))


def made(*, keys: int = 2) -> Table:
    table = Table(HEADS, keys, left=["backend"])
    for row in ROWS:
        table.add(*row)
    return table


@pytest.mark.parametrize("width", [None, *range(1, 120)])
def test_no_cell_is_ever_cut(width: int | None) -> None:
    lines = list(made().lines(width))
    words = [word for line in lines for word in line.split()]
    for row in ROWS:
        assert set(row) <= set(words)
    keys_and_widest = 5 + 2 + 17 + 2 + 18
    assert width is None or all(len(line) <= max(width, keys_and_widest) for line in lines)


def test_a_table_that_fits_is_one_part() -> None:
    assert list(made().lines(None)) == [
        "                             median  a rank's bandwidth",
        " size  backend                   ms                MB/s  #wrong",
        "   4B  gloo                   0.123                 1.5       0",
        "25MiB  fairring[lanes=2]  12345.678           1234567.9       -",
    ]
    assert list(made().lines(63)) == list(made().lines(None))


def test_a_wider_one_goes_on_below_with_its_keys() -> None:
    assert list(made().lines(62)) == [
        "                             median  a rank's bandwidth",
        " size  backend                   ms                MB/s",
        "   4B  gloo                   0.123                 1.5",
        "25MiB  fairring[lanes=2]  12345.678           1234567.9",
        "",
        " size  backend            #wrong",
        "   4B  gloo                    0",
        "25MiB  fairring[lanes=2]       -",
    ]


def test_cells_of_several_lines_and_gaps_keep_their_place() -> None:
    table = Table(("rank", "address", "MTU"), left=["address"])
    table.add("0", "10.0.0.1\n10.0.1.1", "1400\n9000")
    table.add_gap()
    table.add("1", "10.0.0.2", "1400")
    assert list(table.lines(None)) == [
        "rank  address    MTU",
        "   0  10.0.0.1  1400",
        "      10.0.1.1  9000",
        "",
        "   1  10.0.0.2  1400",
    ]
    assert len(table) == 2


def test_a_row_of_another_length_is_an_error() -> None:
    with pytest.raises(ValueError, match="2 cells in a table of 5 columns"):
        made().add("4B", "gloo")
