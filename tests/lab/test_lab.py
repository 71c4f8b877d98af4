"""The emulated cluster: the environment of every rank, and the errors for mistakes."""

from __future__ import annotations

import socket

import pytest
from lab_programs import (
    REPORT,
    TIMEOUT_SECONDS,
    needs_namespaces,
    network_namespace,
    python,
    reports,
)

from fairring import lab
from fairring.cli import main
from fairring.lab.cluster import parse_machines, parse_rate, place_ranks


def test_ranks_get_the_variables_of_torchrun_on_unequal_machines() -> None:
    found = reports(lab.run(python(REPORT), machines=[2, 1], rate="none", timeout=TIMEOUT_SECONDS))
    assert [int(rank["RANK"]) for rank in found] == [0, 1, 2]
    assert [int(rank["ROLE_RANK"]) for rank in found] == [0, 1, 2]
    assert [int(rank["LOCAL_RANK"]) for rank in found] == [0, 1, 0]
    assert [int(rank["GROUP_RANK"]) for rank in found] == [0, 0, 1]
    assert [int(rank["LOCAL_WORLD_SIZE"]) for rank in found] == [2, 2, 1]
    for rank in found:
        assert (rank["WORLD_SIZE"], rank["ROLE_WORLD_SIZE"], rank["GROUP_WORLD_SIZE"]) == ("3", "3", "2")
        assert rank["TORCHELASTIC_RESTART_COUNT"] == rank["TORCHELASTIC_MAX_RESTARTS"] == "0"
        assert rank["TORCHELASTIC_RUN_ID"] == found[0]["TORCHELASTIC_RUN_ID"]
        assert rank["MASTER_ADDR"] == found[0]["MASTER_ADDR"]
        assert int(rank["MASTER_PORT"]) > 0
        assert "TORCHELASTIC_USE_AGENT_STORE" not in rank


def test_the_users_own_variables_win_where_they_are_a_choice() -> None:
    chosen = {"OMP_NUM_THREADS": "3", "GLOO_SOCKET_IFNAME": "lo", "RANK": "99", "TORCHELASTIC_USE_AGENT_STORE": "1"}
    (rank,) = reports(lab.run(python(REPORT), [1], "none", chosen, TIMEOUT_SECONDS))
    assert (rank["OMP_NUM_THREADS"], rank["GLOO_SOCKET_IFNAME"], rank["RANK"]) == ("3", "lo", "0")
    assert "TORCHELASTIC_USE_AGENT_STORE" not in rank


@needs_namespaces
def test_a_machine_is_one_namespace_and_the_host_sees_none_of_it() -> None:
    interfaces = socket.if_nameindex()
    with lab.Lab(python(REPORT), [2, 2], "none") as first, lab.Lab(python(REPORT), [2], "none") as second:
        assert socket.if_nameindex() == interfaces
        a, b, c, d = (rank["net"] for rank in reports(first.wait(TIMEOUT_SECONDS)))
        e, f = (rank["net"] for rank in reports(second.wait(TIMEOUT_SECONDS)))
    assert (a, c, e) == (b, d, f)
    assert len({a, c, e, network_namespace()}) == 4
    assert socket.if_nameindex() == interfaces


def test_ranks_are_dealt_in_blocks_or_in_turn() -> None:
    assert [place.machine for place in place_ranks([3, 1, 2], "block")] == [0, 0, 0, 1, 2, 2]
    in_turn = place_ranks([3, 1, 2], "round-robin")
    assert [place.machine for place in in_turn] == [0, 1, 2, 0, 2, 0]
    assert [place.local_rank for place in in_turn] == [0, 0, 0, 1, 1, 2]
    assert [place.rank for place in in_turn] == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "there is no command to run; on the command line it stands after a --"),
        (["--rate", "fast", "--", "true"], "'fast' is not a rate; write for instance 100mbit"),
        (["--rate", "100gbit", "--", "true"], "rate 100gbit is out of bounds; a link can have 1mbit to 32gbit"),
        (["--ranks", "two", "--", "true"], "'two' is not a number of ranks; write 2, or one number per machine"),
        (["--ranks", "2,0", "--", "true"], "machines of [2, 0] ranks"),
        (["--machines", "0", "--", "true"], "there must be a machine"),
        (["--machines", "3", "--ranks", "2,2", "--", "true"], "--machines 3, but --ranks 2,2 describes 2 machines"),
        (["--ranks", "2", "--only-rank", "2", "--", "true"], "rank 2 does not exist; the lab has ranks 0 to 1"),
    ],
)
def test_bad_arguments_are_named(arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["lab", *arguments])
    assert exit_.value.code == 2
    assert text in capsys.readouterr().err


def test_rates_and_machines_are_read_as_written() -> None:
    assert parse_rate("2.5gbit") == 312_500_000
    assert parse_rate("100mbit") == 12_500_000
    assert parse_rate("none") is None
    assert parse_machines("2", 3) == (2, 2, 2)
    assert parse_machines("4,3,2", None) == (4, 3, 2)
    assert parse_machines("4", None) == (4,)


def test_waiting_for_words_that_never_come_says_what_came_instead() -> None:
    text = "rank 0 ended with code 9 and never wrote 'ready': 'oops"
    with (
        lab.Lab(["sh", "-c", "echo oops >&2; exit 9"], [1], "none") as cluster,
        pytest.raises(lab.LabError, match=text),
    ):
        cluster.wait_for_output(0, "ready")
