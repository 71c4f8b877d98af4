"""The connections that carry data between machines: several interfaces, slow ones, and broken ones."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from certificates import Authority
from forked_programs import forked_program
from lab_programs import needs_namespaces

from fairring import lab

pytestmark = needs_namespaces

TIMEOUT_SECONDS = 150
OUTAGE_SECONDS = 3.0


def stream(
    machines: Sequence[int],
    event: Callable[[lab.Lab], None] = lambda _: None,
    arguments: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    **settings: Any,
) -> list[dict[str, Any]]:
    """Every rank's report after ten calls, in the middle of which the event comes."""
    with ExitStack() as stack:
        pipe = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "pipe"
        os.mkfifo(pipe)
        command = forked_program("stream", str(pipe), *arguments)
        running = stack.enter_context(lab.Lab(command, machines, network="namespaces", env=env or {}, **settings))
        running.wait_for_output(0, "ready", TIMEOUT_SECONDS)
        event(running)
        running.wait_for_output(0, "ten", TIMEOUT_SECONDS)
        with os.fdopen(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK), "w") as word:  # rank 0 reads already, if it lives
            word.write("enough")
        result = running.wait(TIMEOUT_SECONDS)
    assert result.exit_codes == [0] * sum(machines), result.output
    reports = [json.loads(text.splitlines()[-1]) for text in result.stdout]
    assert [report["wrong"] for report in reports] == [0] * len(reports)
    return reports


def share(report: dict[str, Any], interface: str) -> float:
    """The interface's share of the bytes that the machine sent."""
    return float(report["sent"][interface] / sum(report["sent"].values()))


def test_two_interfaces_share_the_work() -> None:
    for report in stream([1, 1], rate="200mbit", interfaces=2):
        assert 0.3 < share(report, "eth1") < 0.7


def test_a_slow_interface_carries_only_what_it_can() -> None:
    # A hundredth of the other, so that it has the smaller share on a machine that is busy with something else too.
    for report in stream([1, 1], rate="500mbit,5mbit", interfaces=2):
        assert 0.0 < share(report, "eth1") < 0.25


@pytest.mark.slow
@pytest.mark.parametrize("lanes", [1, 3])
def test_lanes_that_break_again_and_again_are_made_anew(lanes: int) -> None:
    stream([1, 1], arguments=["break"], rate="500mbit", env={"FAIRRING_LANES": str(lanes)})


def test_so_are_lanes_under_tls(tmp_path: Path) -> None:
    env = {**Authority(tmp_path).issue("rank"), "FAIRRING_LANES": "2"}
    stream([1, 1], arguments=["break"], rate="500mbit", env=env)


def outage(interface: int | None) -> Callable[[lab.Lab], None]:
    def event(running: lab.Lab) -> None:
        running.link(1, interface).set_down()
        time.sleep(OUTAGE_SECONDS)
        running.link(1, interface).set_up()

    return event


def test_a_link_that_was_down_for_three_seconds_changes_nothing() -> None:
    stream([1, 1], outage(None), rate="200mbit")


def test_one_interface_of_two_may_be_down() -> None:
    stream([1, 1], lambda running: running.link(1, 1).set_down(), rate="200mbit", interfaces=2)
