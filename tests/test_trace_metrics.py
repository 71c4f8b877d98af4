"""The figures of a live job for Prometheus: what its own parser reads, the dashboard's queries, strangers' bytes."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from forked_programs import forked_program
from lab_programs import needs_namespaces
from made_traces import Job

from fairring.lab import Lab
from fairring.trace.metrics import metrics

parser = pytest.importorskip("prometheus_client.parser")

DASHBOARD = Path(__file__).parents[1] / "docs" / "grafana.json"
TIMEOUT_SECONDS = 280  # less than pytest's own


def samples(text: str) -> dict[tuple[str, ...], float]:
    """By name and the values of the labels except group and host, in the order of their names."""
    families = parser.text_string_to_metric_families(text)
    return {
        (one.name, *(one.labels[label] for label in sorted(one.labels.keys() - {"group", "host"}))): one.value
        for family in families
        for one in family.samples
    }


def scrape(url: str) -> dict[tuple[str, ...], float]:
    with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as answer:
        return samples(answer.read().decode())


@contextmanager
def served(directory: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    command = [sys.executable, "-m", "fairring", "metrics", str(directory), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield server.stdout.readline().strip(), server
        finally:
            server.kill()


def test_a_rank_that_is_waited_for_stands_out() -> None:
    found = {one.name: one for one in metrics(Job(slow_compute={3: 0.2}).traces())}
    waits: dict[str, float] = defaultdict(float)
    for one in found["fairring_waited_ratio"].samples:
        assert 0 < one.value <= 1
        waits[one.labels["peer"]] += one.value
    assert max(waits, key=lambda peer: waits[peer]) == "3"
    assert [one.value for one in found["fairring_calls"].samples] == [20.0] * 6
    assert found["fairring_ranks"].samples[0].value == 6


def test_waits_of_several_slices_at_once_count_once() -> None:
    ranks = [replace(one, steps=one.steps * 5) for one in Job(slow_compute={3: 0.2}).traces()]
    (waited,) = [one for one in metrics(ranks) if one.name == "fairring_waited_ratio"]
    (before,) = [one for one in metrics(Job(slow_compute={3: 0.2}).traces()) if one.name == "fairring_waited_ratio"]
    assert [one.value for one in waited.samples] == [pytest.approx(one.value) for one in before.samples]


def test_the_dashboard_asks_for_what_there_is() -> None:
    ranks = Job().traces()
    ranks[0] = replace(ranks[0], steps=(replace(ranks[0].steps[0], ready=None, peer=1), *ranks[0].steps))
    there = {sample.name for one in metrics(ranks) for sample in one.samples}
    dashboard = json.loads(DASHBOARD.read_text())
    asked = re.findall(r"fairring_\w+", " ".join(t["expr"] for p in dashboard["panels"] for t in p["targets"]))
    assert set(asked) <= there
    assert there - set(asked) == {"fairring_ranks", "fairring_calls_under_way"}


@needs_namespaces
def test_prometheus_reads_a_live_job_whatever_strangers_send(tmp_path) -> None:
    pipe, traces = tmp_path / "pipe", tmp_path / "traces"
    os.mkfifo(pipe)
    with Lab(forked_program("stuck", str(pipe)), [1, 1], env={"FAIRRING_TRACE": str(traces)}) as lab:
        for rank in range(2):
            lab.wait_for_output(rank, "ready", TIMEOUT_SECONDS)
        with served(traces) as (url, server):
            address = ("127.0.0.1", int(url.split(":")[-1].split("/")[0]))
            silent = [socket.create_connection(address) for _ in range(20)]
            for sent in (b"\x00" * 70_000, b"GET " + b"a" * 70_000, b"\r\n\r\n", b"POST /metrics HTTP/1.1\r\n\r\n"):
                with socket.create_connection(address) as stranger:
                    stranger.sendall(sent)
            seen = scrape(url)
            while ("fairring_waits_for", "1", "0") not in seen:  # by its peer, then its own rank
                seen = scrape(url)
            for one in silent:
                one.close()
            assert seen["fairring_ranks",] == 2
            assert (seen["fairring_calls_total", "0"], seen["fairring_calls_total", "1"]) == (2, 1)
            assert seen["fairring_oldest_call_seconds", "0"] > 0
            assert seen["fairring_bytes_total", "rail", "0"] > 0
            pipe.write_text("go on")
            assert lab.wait(TIMEOUT_SECONDS).exit_code == 0
            assert scrape(url) == {("fairring_ranks",): 0}
            server.terminate()
            assert server.wait(TIMEOUT_SECONDS) == 0
