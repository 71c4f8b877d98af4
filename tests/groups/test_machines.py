"""Fairring across emulated machines, with real processes: sums, bits, transports, and failing well."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from forked_programs import forked_program
from lab_programs import RUN_SECONDS, SMALL_SLICES, needs_namespaces, run

from fairring import lab


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("machines", "order"),
    [
        ([1], "block"),
        ([2, 2], "round-robin"),
        ([3, 1], "block"),
        ([3, 2, 1], "round-robin"),
    ],
)
def test_results_are_exact_on_every_layout(machines: list[int], order: str) -> None:
    world = sum(machines)
    sizes = len({0, 1, world - 1, world, world + 1}) + 4  # and four around slices
    cases = (4 * 6 + 8 * 8 + 7) * sizes  # operations of floats, integers, bool
    assert run(forked_program("exactness"), machines, SMALL_SLICES, order=order) == [f"cases {cases} wrong 0\n"] * world


@pytest.mark.parametrize("machines", [[2], [3, 1]], ids=str)
def test_a_tensor_that_a_rank_refuses_ends_its_own_call_alone(machines: list[int]) -> None:
    assert run(forked_program("refused"), machines, SMALL_SLICES) == ["99 of 100\n"] * sum(machines)


@pytest.mark.skipif(any(Path("/sys/class").glob("infiniband/*")), reason="there are RDMA devices here")
@pytest.mark.parametrize("transport", ["verbs", "tensorpipe:ibv"])
def test_rdma_that_is_not_there_is_an_error_that_names_who_lacks_it(transport: str) -> None:
    for text in run(forked_program("first_error"), [1, 1], {"FAIRRING_TRANSPORT": transport}):
        for word in (f"FAIRRING_TRANSPORT={transport} can't be used", "rank 0 (", "no InfiniBand or RoCE device"):
            assert word in text, text


@needs_namespaces
@pytest.mark.parametrize(("ranks", "first"), [("1", 1), ("[0-3]", 0)], ids=["on one rank", "on all"])
def test_an_interface_that_other_machines_cannot_reach_is_an_error_that_says_what_to_do(ranks: str, first: int) -> None:
    """Long before a rank counts as dead."""
    differing = f'case $RANK in {ranks}) export TP_SOCKET_IFNAME=lo;; esac; exec "$@"'
    command = ["sh", "-c", differing, "sh", *forked_program("first_error")]
    with lab.Lab(command, [2, 2], "none", env={"FAIRRING_HEARTBEAT_TIMEOUT": "86400"}) as running:
        result = running.wait(RUN_SECONDS)
    for text in result.stdout:
        for words in (f"rank {first} (", "127.0.0.1 (TP_SOCKET_IFNAME=lo), which other machines can't reach; set TP_"):
            assert words in text, result.output


@needs_namespaces
@pytest.mark.parametrize(
    ("variables", "taken", "warned"),
    [
        ({"NCCL_SOCKET_IFNAME": "=eth1"}, "NCCL_SOCKET_IFNAME==eth1", ""),
        ({"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "ib"}, "the way to 10.77.", "=ib is passed over: no"),
    ],
    ids=lambda value: " ".join(f"{name}={text}" for name, text in value.items()) if isinstance(value, dict) else "",
)
def test_the_interfaces_of_other_libraries_are_taken_or_passed_over(
    variables: dict[str, str], taken: str, warned: str
) -> None:
    """Where they can't be taken, the job runs as without them, and says so."""
    given = " ".join(f"export {name}={shlex.quote(value)};" for name, value in variables.items())
    unset = "unset TP_SOCKET_IFNAME GLOO_SOCKET_IFNAME;"
    command = ["sh", "-c", f'{unset} {given} exec "$@"', "sh", *forked_program("interfaces")]
    with lab.Lab(command, [1, 1], "none", interfaces=2) as running:
        result = running.wait(RUN_SECONDS)
    assert result.exit_codes == [0, 0], result.output
    for rank in (0, 1):
        assert result.stdout[rank].startswith(taken), result.output
        assert warned in result.stderr[rank], result.output
        assert bool(warned) == ("passed over" in result.stderr[rank]), result.output
