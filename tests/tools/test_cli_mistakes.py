"""Every command beside the mistakes that a user can make with it: a sentence and an exit code, never a traceback."""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from written_traces import write, written

from fairring import cli, plan
from fairring.bench import launch
from fairring.check import report, text
from fairring.lab.cluster import LabError
from fairring.lab.lab import Lab

TIMEOUT_SECONDS = 240
NUMBERS = ("-1", "0", "nan", "1e400", "99999999999999999999", "words", "", "0x10", "1,2", "٣", "1,,2", "a=b", "/", "-")
OK, FAILED, MISUSED, FAILED_LAB, NOT_EXECUTABLE, NOT_FOUND = 0, 1, 2, 125, 126, 127


def run(*words: str) -> int:
    """The command's exit code. An exception other than argparse's end fails the test, as it would be a traceback."""
    try:
        return cli.main(words)
    except SystemExit as end:
        return int(end.code or 0)


def commands(parser: argparse.ArgumentParser, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """All commands, each with its parser."""
    nested = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not nested:
        yield words, parser
    for action in nested:
        for name, command in action.choices.items():
            yield from commands(command, (*words, name))


COMMANDS = dict(commands(cli._parser()))
SAME = {"reduce", "gather", "scatter", "all-gather", "all-to-all", "reduce-scatter", "broadcast", "barrier"}
OPTIONS = [
    pytest.param(words, action.option_strings[-1], id=" ".join([*words, action.option_strings[-1]]))
    for words, parser in COMMANDS.items()
    if not SAME & set(words)  # the options are all-reduce's
    for action in parser._actions
    if action.option_strings and action.nargs != 0
]


@pytest.fixture
def nothing_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Commands that have understood their arguments do nothing."""

    def start(_: Lab) -> Lab:
        raise LabError("not in this test")

    monkeypatch.setattr(Lab, "start", start)
    monkeypatch.setattr(launch, "run_elsewhere", lambda _arguments: OK)
    monkeypatch.setattr(report, "alone", lambda *_: {"findings": [], "ranks": [{"trials": None}]})
    monkeypatch.setattr(text, "print_report", lambda _: None)
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("nothing_starts")
@pytest.mark.parametrize(("words", "option"), OPTIONS)
def test_values_that_make_no_sense_are_told(
    words: tuple[str, ...], option: str, capfd: pytest.CaptureFixture[str]
) -> None:
    positional = ["nowhere" for action in COMMANDS[words]._actions if not action.option_strings][:1]
    for value in NUMBERS:
        given = [*words, *(["explain"] if words == ("trace",) else []), *positional, f"{option}={value}"]
        code = run(*given, *(["--", "true"] if words == ("lab",) else []))
        told = capfd.readouterr()
        assert code in (OK, FAILED, MISUSED, FAILED_LAB), given
        assert code == OK or told.err, given
        assert len(told.err.splitlines()) < 60, told.err


FILES: dict[str, Callable[[Path], object]] = {
    "missing": lambda _: None,
    "empty": lambda path: path.write_bytes(b""),
    "binary": lambda path: path.write_bytes(bytes(range(256)) * 4),
    "of something else": lambda path: path.write_text('{"format": 1, "levels": 3, "traceEvents": 7, "rows": null}'),
    "a list": lambda path: path.write_text("[1, 2]"),
    "deep": lambda path: path.write_text("[" * 100_000),
    "huge": lambda path: path.write_text('{"format": ' + "9" * 10_000 + "}"),
    "a folder": lambda path: path.mkdir(),
    "a loop": lambda path: path.symlink_to(path.name),
    "gone": lambda path: path.symlink_to("nowhere"),
    "unreadable": lambda path: path.touch(mode=0),
}
TOO_LONG = "too long"


def garble(kind: str, path: Path) -> Path:
    if kind == TOO_LONG:
        return path.with_name("x" * 300)
    FILES[kind](path)
    return path


KINDS = [kind for kind in (*FILES, TOO_LONG) if kind != "unreadable" or os.geteuid()]  # root reads everything
EXPLAIN, MERGE = ("trace", "explain"), ("trace", "merge")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("words", [("why",), EXPLAIN, MERGE], ids=" ".join)
def test_a_directory_that_is_none_is_told(
    words: tuple[str, ...], kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = garble(kind, tmp_path / "place")
    assert run(*words, str(path)) == FAILED
    told = capfd.readouterr().err
    assert path.name in told
    assert len(told.splitlines()) == 1


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != TOO_LONG])
@pytest.mark.parametrize("words", [EXPLAIN, MERGE], ids=" ".join)
def test_a_trace_that_is_none_is_told(
    words: tuple[str, ...], kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, written(0))
    path = garble(kind, tmp_path / "0-rank1.json")
    readable = not path.exists() and not path.is_symlink()  # then rank 0's is all that is there
    assert run(*words, str(tmp_path), *(["-o", str(tmp_path / "out")] if words == MERGE else [])) == (not readable)
    assert readable or str(path) in capfd.readouterr().err


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_is_none_is_told(
    kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = garble(kind, tmp_path / "file")
    monkeypatch.setenv("FAIRRING_COST_ROWS", str(path))
    assert run("plan") == FAILED
    told = capfd.readouterr().err
    assert path.name in told
    assert len(told.splitlines()) == 1


@pytest.mark.parametrize(
    "words",
    [
        ("trace", "merge", "job", "-o", "PLACE"),
        ("trace", "--into", "PLACE", "--", sys.executable, "-c", ""),
        ("check", "--save", "PLACE"),
        ("bench", "all-reduce", "--machines", "2", "--json", "PLACE"),
    ],
    ids=lambda words: " ".join(words[:3]),
)
@pytest.mark.parametrize("place", ["file/below", "/proc/no-such", "/dev/full/x", "x" * 300])
def test_a_place_that_cannot_be_written_is_told(
    words: tuple[str, ...], place: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "job").mkdir()
    write(tmp_path / "job", written(0))
    monkeypatch.chdir(tmp_path)
    assert run(*(place if word == "PLACE" else word for word in words)) in (FAILED, MISUSED)
    assert capfd.readouterr().err


def test_a_full_disk_is_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, written(0))
    assert run("trace", "merge", str(tmp_path), "-o", "/dev/full") == FAILED
    assert capfd.readouterr().err == "fairring trace: [Errno 28] No space left on device\n"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ((), MISUSED),
        (("no-such",), MISUSED),
        (("bench",), MISUSED),
        (("bench", "no-such"), MISUSED),
        (("bench", "all-reduce"), MISUSED),
        (("trace",), MISUSED),
        (("trace", "explain"), MISUSED),
        (("trace", "explain", "JOB", "--group", "no-such"), FAILED),
        (("trace", "--", "no-such-command"), NOT_FOUND),
        (("trace", "--", "/etc/passwd"), NOT_EXECUTABLE),
        (("trace", "--", "/"), NOT_EXECUTABLE),
        (("lab",), MISUSED),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_names_that_are_not_known_are_told(
    words: tuple[str, ...], code: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, written(0))
    assert run(*(str(tmp_path) if word == "JOB" else word for word in words)) == code
    assert capfd.readouterr().err


@pytest.mark.parametrize("variable", ["FAIRRING_SLICE_SIZE", "FAIRRING_NO_SUCH", "FAIRRING_TRACE", "MASTER_PORT"])
def test_settings_that_make_no_sense_are_told(
    variable: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "/dev/null/x")
    assert run("plan") == FAILED
    (line,) = capfd.readouterr().err.splitlines()
    assert variable in line


def test_an_interrupt_is_one_line(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: argparse.Namespace) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(plan, "predict", interrupted)
    assert run("plan") == 128 + signal.SIGINT
    assert capfd.readouterr().err == "fairring plan: interrupted\n"


def test_an_interrupt_ends_a_rank_at_once() -> None:
    """Its launcher tells of it. It may be waiting for other ranks, where Python handles no signal."""
    program = "import os, signal, sys; sys.argv[0] = 'fairring'; from fairring import cli"
    interrupt = "cli._run = lambda _: os.kill(os.getpid(), signal.SIGINT); cli.main(['check'])"
    command = [sys.executable, "-c", f"{program}; {interrupt}"]
    ended = subprocess.run(
        command, env={**os.environ, "RANK": "0"}, capture_output=True, text=True, timeout=TIMEOUT_SECONDS
    )
    assert (ended.returncode, ended.stdout + ended.stderr) == (-signal.SIGINT, "")


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize(
    "words",
    [
        ("plan", "--machines", "4", "--ranks", "2", "--bytes", "64MiB"),
        ("plan", "--machines", "4", "--sites", "2"),
    ],
    ids=" ".join,
)
def test_a_narrow_terminal_shows_every_figure(
    words: tuple[str, ...], width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(*words) == OK
    whole = capsys.readouterr().out
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    assert run(*words) == OK
    shown = capsys.readouterr().out
    assert "…" not in shown
    assert set(whole.split()) <= set(shown.split())
    narrow = [line for line in shown.splitlines() if not re.search("25 MiB: ", line)]  # but for sentences
    assert max(map(len, narrow)) <= max(width, 60), shown


OUTPUTS: dict[str, Callable[[], int]] = {
    "a pipe whose reader has gone": lambda: closed_pipe(),
    "a full disk": lambda: os.open("/dev/full", os.O_WRONLY),
}


def closed_pipe() -> int:
    reading, writing = os.pipe()
    os.close(reading)
    return writing


@pytest.mark.parametrize("output", OUTPUTS)
def test_output_that_cannot_be_written_is_no_traceback(output: str, tmp_path: Path) -> None:
    """A process for each, because Python writes the rest of its output when it ends. Its output is buffered, since
    argparse says nothing of a help that it can't write.
    """
    write(tmp_path, written(0))
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    for words in (
        ("--version",),
        ("plan",),
        ("plan", "--json"),
        ("trace", "explain", str(tmp_path)),
        ("why", "--help"),
    ):
        descriptor = OUTPUTS[output]()
        try:
            ended = subprocess.run(
                [sys.executable, "-m", "fairring", *words],
                env=environment,
                stdout=descriptor,
                stderr=subprocess.PIPE,
                text=True,
                timeout=TIMEOUT_SECONDS,
            )
        finally:
            os.close(descriptor)
        if output == "a full disk":
            assert (ended.returncode, ended.stderr.count("\n")) == (FAILED, 1), ended.stderr
            assert "No space left" in ended.stderr
        else:
            assert (ended.returncode, ended.stderr) == (128 + signal.SIGPIPE, "")
