"""Fairring across emulated machines, with real processes: sums, bits, transports, and failing well."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from forked_programs import forked_program
from lab_programs import RUN_SECONDS, SMALL_SLICES, needs_namespaces, run

from fairring import cli, cost_rows, lab


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


def test_the_bits_are_the_same_for_every_rank_transport_and_slice_size() -> None:
    machines = [2, 1]
    variants = [
        ({}, "auto"),
        (SMALL_SLICES, "auto"),
        ({"FAIRRING_TRANSPORT": "tensorpipe:uv"}, "auto"),
        ({"FAIRRING_TRANSPORT": "tensorpipe:shm"} | SMALL_SLICES, "none"),
    ]
    hashes = {line for env, network in variants for line in run(forked_program("bits"), machines, env, network=network)}
    assert len(hashes) == 1


# Rows by which eight machines take these plans for calls of a slice and less.
FORCING = {
    "RS0 RS1 AG1 AG0": (1e-6, 0.0, 1e6),
    "RS0 AR1 AG0": (1.0, 0.0, 1e12),
    "RS0 RS1 AR2 AG1 AG0": (1e-6, 1e-1, 1e9),
}


def forcing(plan: str, directory: Path) -> dict[str, str]:
    path = directory / "rows.json"
    latency, per_message, bandwidth = FORCING[plan]
    cost_rows.write(path, [(1e-6, 0.0, 1e10, 1e10), (latency, per_message, bandwidth, 1e10)], "made up")
    return SMALL_SLICES | {"FAIRRING_COST_ROWS": str(path)}


@pytest.mark.slow
@pytest.mark.parametrize("plan", FORCING)
def test_eight_machines_sum_exactly_by_every_kind_of_plan(
    plan: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    env = forcing(plan, tmp_path)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert cli.main(["plan", "--machines", "8", "--bytes", "64KiB"]) == 0
    assert f"{plan} (chosen)" in capsys.readouterr().out
    cases = (4 * 6 + 8 * 8 + 7) * 9
    assert run(forked_program("exactness"), [1] * 8, env, network="none") == [f"cases {cases} wrong 0\n"] * 8


@pytest.mark.slow
def test_eight_machines_have_the_same_bits_by_every_kind_of_plan(tmp_path: Path) -> None:
    hashes = {line for plan in FORCING for line in run(forked_program("bits"), [1] * 8, forcing(plan, tmp_path))}
    assert len(hashes) == 1


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
