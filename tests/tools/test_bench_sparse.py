"""benchmarks/sparse_gradients.py: the best form's bytes, the rows it draws, and a tiny run; no time is asserted."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from lab_programs import measured

from fairring.bench.job import Placement

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import sparse_gradients
from sparse_rows import (
    DISTRIBUTIONS,
    INDEX_BYTES,
    UNIFORM,
    ZIPF,
    Table,
    Touched,
    bounds,
    forms,
    touched,
)


def places(machines: list[int]) -> list[Placement]:
    hosts = [machine for machine, ranks in enumerate(machines) for _ in range(ranks)]
    return [Placement(rank, len(hosts), machine) for rank, machine in enumerate(hosts)]


def test_owners_move_k_and_the_union_and_one_shot_everyones_rows() -> None:
    table = Table(rows=5_000_000, row_bytes=1000 - INDEX_BYTES, result=386_000)
    by_form = {form: size / 1000 for form, size in forms([50_000] * 8, table, outermost=True).items()}
    assert by_form["one-shot"] == 350_000
    assert by_form["owners"] == pytest.approx((50_000 + 386_000) * 7 / 8)
    assert by_form["dense"] == pytest.approx(2 * 5_000_000 * 0.992 * 7 / 8)
    assert "one-shot" not in forms([50_000] * 8, table, outermost=False)


def test_with_few_rows_left_out_the_result_goes_up_as_a_block() -> None:
    table = Table(rows=1000, row_bytes=16, result=1000)
    many, few = (forms([count] * 4, table, outermost=True) for count in (900, 300))
    assert min(many, key=many.__getitem__) == "dense"
    assert min(few, key=few.__getitem__) == "owners, dense upwards"
    assert bounds({"rail": [[900] * 4, [300] * 4]}, table) == {"rail": many["dense"]}


def test_levels_without_peers_have_no_bound_and_the_outermost_may_take_one_shot() -> None:
    table = Table(rows=10_000, row_bytes=92, result=200)
    found = bounds({"machine": [[100, 100], [100]], "rail": [[150, 100]], "site": [[200]]}, table)
    assert list(found) == ["machine", "rail"]
    assert found["rail"] == 150 * 100
    assert bounds({"machine": [[100, 100]], "rail": [[200]]}, table) == {"machine": 100 * 100}


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_rows_are_different_and_the_same_in_every_run(distribution: str) -> None:
    first, again = (touched(1000, 100, distribution, rank=3) for _ in range(2))
    assert first.equal(again)
    assert len(first.unique()) == 100
    assert not first.equal(touched(1000, 100, distribution, rank=2))


def test_frequent_rows_are_on_most_ranks() -> None:
    hot = [sum(0 in touched(100_000, 1000, drawn, rank) for rank in range(20)) for drawn in (ZIPF, UNIFORM)]
    assert hot[0] == 20
    assert hot[1] < 5


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_wrong_element_or_row_of_a_result_is_seen(dtype: torch.dtype) -> None:
    drawn = Touched(50, 3, dtype, [touched(50, 20, UNIFORM, rank) for rank in range(3)])
    total = torch.stack([drawn.sparse(rank, turn=4).to_dense() for rank in range(3)]).float().sum(0).to(dtype)
    indices = drawn.union.unsqueeze(0)
    result = torch.sparse_coo_tensor(indices, total[drawn.union], (50, 3), check_invariants=True).coalesce()
    assert (drawn.wrong(total, 4), drawn.wrong(result, 4)) == (0, 0)
    result.values()[3, 1] += 1
    assert drawn.wrong(result, 4) == 1
    assert drawn.wrong(drawn.sparse(0, 4).coalesce(), 4) > 1
    dense = torch.empty(50, 3, dtype=dtype)
    drawn.fill(dense, 1, 4)
    assert dense.equal(drawn.sparse(1, 4).to_dense())


def test_equal_rows_of_a_machine_count_once_above_it() -> None:
    drawn = Touched(9, 1, torch.float32, [torch.tensor(rows) for rows in ([0, 1], [1, 2], [2, 3, 4])])
    assert drawn.brought(places([2, 1])) == {"machine": [[2, 2], [3]], "rail": [[3, 3]], "site": [[5]]}


@pytest.mark.parametrize(("text", "share"), [("0.1%", 0.001), ("0.5", 0.5), ("100%", 1.0)])
def test_a_density_is_a_share_or_percents(text: str, share: float) -> None:
    assert sparse_gradients.density(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["0", "101%", "many", ""])
def test_other_densities_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no share of the table"):
        sparse_gradients.density(text)


@pytest.mark.slow
def test_a_tiny_run_writes_every_figure(tmp_path: Path) -> None:
    command = [sys.executable, str(sparse_gradients.__file__), "--rows", "500", "--width", "8"]
    command += ["--densities", "1%,60%", "--iterations", "2"]
    said, written = measured(command, [2, 1], tmp_path / "sparse.json")
    for words in ("machines of 2, 1 ranks", "table of 500 x 8, float32; link:", "vs gloo", "÷ least"):
        assert words in said[0]
    assert written["conditions"]["left_out"] == []
    rows = written["rows"]
    entrants = [(form, backend) for form in sparse_gradients.FORMS for backend in ("gloo", "fairring")]
    assert [(row["form"], row["backend"]) for row in rows] == entrants * 4
    assert [row["wrong"] for row in rows] == [0] * 16
    assert [row["touched"] for row in rows[::4]] == [5, 300] * 2
    dense = [row for row in rows if (row["form"], row["backend"]) == ("dense", "fairring")]
    for row in dense:
        assert row["levels"]["rail"]["bytes"] >= 500 * 8 * 4
        assert set(row["least_bytes"]) == {"machine", "rail"}
