"""How an emulated cluster ends: exit codes, signals, and nothing that survives it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from lab_programs import (
    ON_INT,
    ON_TERM,
    TIMEOUT_SECONDS,
    await_end,
    child_of,
    children_of,
    command_line,
    namespaces_in_use,
    network_namespace,
    python,
    read_lines,
    running,
)

from fairring import lab
from fairring.lab.stopping import Stopping


@pytest.mark.parametrize(
    ("program", "code", "first"),
    [("exit 0", 0, None), ("exit $((RANK * 3))", 3, 1), ("[ $RANK = 0 ] || kill -KILL $$", 137, 1), ("nosuch", 127, 0)],
)
def test_the_exit_code_is_that_of_the_first_rank_to_fail(program: str, code: int, first: int | None) -> None:
    if program == "nosuch":
        result = lab.run(["nosuch"], [1], "none", timeout=TIMEOUT_SECONDS)
        assert "cannot run 'nosuch': No such file" in result.stderr[0]
    else:
        result = lab.run(["sh", "-c", program], [1, 1], "none", timeout=TIMEOUT_SECONDS)
    assert (result.exit_code, result.first_failed) == (code, first)


def test_when_a_rank_fails_the_others_may_end_by_themselves_first() -> None:
    program = "[ $RANK = 1 ] && exit 5; read line <$FIFO; echo my own error >&2; exit 6"
    with lab.Lab(["sh", "-c", program], [2], "none", env={"FIFO": "/dev/null"}) as cluster:
        result = cluster.wait(TIMEOUT_SECONDS)
    assert sorted(result.exit_codes) == [5, 6]
    assert result.stderr[0] == "my own error\n"


def test_who_does_not_end_in_the_grace_period_is_terminated() -> None:
    with lab.Lab(["sh", "-c", "[ $RANK = 1 ] && exit 5; exec sleep 1000"], [2], "none", grace=0.1) as cluster:
        result = cluster.wait(TIMEOUT_SECONDS)
    assert (result.exit_codes, result.first_failed) == ([128 + signal.SIGTERM, 5], 1)


def test_stopping_goes_from_grace_to_term_to_kill() -> None:
    stopping = Stopping(grace=30)
    stopping.begin(now=100)
    stopping.begin(now=120)
    assert stopping.take_due(129) == []
    assert stopping.next_time == 130
    assert stopping.take_due(130) == [signal.SIGTERM]
    assert stopping.next_time == 135
    assert stopping.take_due(200) == [signal.SIGKILL]
    assert stopping.take_due(999) == []


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_can_be_sent_to_one_rank(signum: signal.Signals) -> None:
    with lab.Lab(python(ON_TERM), [2], "none", grace=0) as cluster:
        for rank in (0, 1):
            cluster.wait_for_output(rank, "ready")
        cluster.signal(signum, rank=1)
        result = cluster.wait(TIMEOUT_SECONDS)
    assert result.exit_codes == [7, {signal.SIGTERM: 7, signal.SIGKILL: 137}[signum]]
    assert result.first_failed == 1


def test_a_stopped_rank_is_noticed_by_the_timeout_and_does_not_survive_the_lab() -> None:
    with lab.Lab(python(ON_TERM), [1], "none") as cluster:
        cluster.wait_for_output(0, "ready")
        pidfd = os.pidfd_open(cluster.pid(0))
        cluster.signal(signal.SIGSTOP, rank=0)
        with pytest.raises(lab.LabTimeoutError, match=r"ranks \[0\] still ran after 0.1 s"):
            cluster.wait(0.1)
        await_end(pidfd)
        with pytest.raises(lab.LabError, match="rank 0 has no process any more: it ended with code 137"):
            cluster.pid(0)


def test_the_command_line_passes_signals_on() -> None:
    with running(command_line("--ranks", "2", "--rate", "none", "--", *python(ON_TERM))) as process:
        read_lines(process, 2)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=TIMEOUT_SECONDS)
    assert process.returncode == 7
    assert "failed first, with exit code 7" in errors


def test_an_interrupt_that_ends_the_ranks_is_told_in_one_line() -> None:
    with running(command_line("--ranks", "2", "--rate", "none", "--", "sh", "-c", "echo; exec sleep 1000")) as process:
        read_lines(process, 2)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=TIMEOUT_SECONDS)
    assert process.returncode == 128 + signal.SIGINT
    assert errors == "fairring lab: SIGINT: the ranks have 30 s to end by themselves\n"


def test_the_second_interrupt_kills() -> None:
    with running(command_line("--rate", "none", "--", *python(ON_INT))) as process:
        read_lines(process, 1)
        process.send_signal(signal.SIGINT)
        assert read_lines(process, 1) == ["[rank 0] once\n"]
        process.send_signal(signal.SIGINT)
        assert process.wait(TIMEOUT_SECONDS) == 128 + signal.SIGKILL


def test_what_a_rank_leaves_running_ends_with_the_rank(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    with lab.Lab(["sh", "-c", f"sleep 1000 & echo child $!.; read line <{gate}"], [1], "none") as cluster:
        cluster.wait_for_output(0, ".\n")
        left_behind = os.pidfd_open(child_of(cluster.pid(0)))
        gate.write_text("go\n")
        assert cluster.wait(TIMEOUT_SECONDS).exit_code == 0
        await_end(left_behind)


def test_nothing_survives_a_lab_that_is_killed() -> None:
    with running(command_line("--ranks", "1,1", "--", "sh", "-c", "sleep 1000 & echo $$; wait")) as process:
        ranks = [int(line.split()[-1]) for line in read_lines(process, 2)]
        children = {int(pid) for pid in children_of(process.pid)}
        assert set(ranks) < children, "the keeper and the ranks are children of the lab"
        namespaces = {network_namespace(pid) for pid in children} - {network_namespace()}
        everything = children | {child_of(rank) for rank in ranks}
        pidfds = [os.pidfd_open(pid) for pid in everything]
        process.kill()
        for pidfd in pidfds:
            await_end(pidfd)
    assert not namespaces & namespaces_in_use()
