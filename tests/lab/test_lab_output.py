"""The ranks' output as an emulated cluster prints it."""

from __future__ import annotations

import os
import signal
import subprocess

from lab_programs import (
    REPOSITORY,
    TIMEOUT_SECONDS,
    command_line,
    python,
    read_lines,
    run_command_line,
    running,
)

from fairring.lab.output import Lines


def test_lines_are_prefixed_and_never_mixed() -> None:
    count = 20_000
    program = f"seq {count}; seq {count} >&2; printf last"
    result = run_command_line("--ranks", "2", "--rate", "none", "--", "sh", "-c", program)
    assert result.returncode == 0
    lines = result.stdout.splitlines()
    for rank in (0, 1):
        prefix = f"[rank {rank}] "
        numbers = [str(number) for number in range(1, count + 1)]
        assert [line.removeprefix(prefix) for line in lines if line.startswith(prefix)] == [*numbers, "last"]
        errors = result.stderr.splitlines()
        assert [line.removeprefix(prefix) for line in errors if line.startswith(prefix)] == numbers
    assert len(lines) == 2 * (count + 1)


def test_of_a_progress_bar_only_the_last_drawing_makes_a_line() -> None:
    lines = Lines()
    assert lines.add(b"\r10%\r5") == []
    assert lines.add(b"0%\r100%") == []
    assert lines.add(b"\r") == []
    assert lines.add(b"\nhalf a") == [b"100%"]
    assert lines.add(b" line\r\n\n") == [b"half a line", b""]
    assert lines.add(b"end") == []
    assert (lines.end(), lines.end()) == ([b"end"], [])


def test_one_rank_can_have_the_terminal_for_itself() -> None:
    ours, theirs = os.openpty()
    program = "import os, sys; sys.exit(4) if os.environ['RANK'] == '0' else print(sys.stdout.isatty())"
    command = command_line("--ranks", "2", "--only-rank", "1", "--rate", "none", "--", *python(program))
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=theirs, stderr=subprocess.PIPE, text=True) as process:
        _, errors = process.communicate(timeout=TIMEOUT_SECONDS)
        os.close(theirs)
    assert os.read(ours, 100).decode().split() == ["True"]
    os.close(ours)
    assert process.returncode == 4
    assert "rank 0 on machine 0 failed first" in errors


def test_a_hidden_rank_that_fails_is_shown() -> None:
    program = "echo shown $RANK; echo why >&2; exit $RANK"
    result = run_command_line("--ranks", "2", "--only-rank", "0", "--rate", "none", "--", "sh", "-c", program)
    assert sorted(result.stdout.splitlines()) == ["[rank 1] shown 1", "shown 0"]
    assert "[rank 1] why" in result.stderr


def test_a_reader_that_goes_away_ends_the_lab() -> None:
    with running(command_line("--rate", "none", "--", "yes")) as process:
        read_lines(process, 2)
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(TIMEOUT_SECONDS) == 128 + signal.SIGPIPE
