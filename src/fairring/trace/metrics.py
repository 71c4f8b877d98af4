"""Serves the figures of a live job's ranks to Prometheus, at http://ADDRESS:PORT/metrics.

The job runs with FAIRRING_TRACE=DIR. At each scrape it asks the processes of this machine, so every machine of the job
needs one of these; the job itself does not listen on any network. docs/grafana.json is a dashboard of these figures.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fairring.extra import MissingPackageError, require
from fairring.subcommands import at_least
from fairring.trace.files import load
from fairring.trace.live import ask, nobody_answers
from fairring.trace.records import RankTrace, TraceError

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

HELP = "serves the figures of a live job's ranks to Prometheus"
MOST_PORTS = 65_535
_LEVELS = {0: "machine", 1: "rail", 2: "site"}
_WHO = ("group", "rank", "host")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", type=Path, metavar="DIR", help="the job's FAIRRING_TRACE")
    parser.add_argument("--port", type=_port, default=9469, help="0: any that is free (%(default)s)")
    parser.add_argument("--address", default="127.0.0.1", help="where to listen (%(default)s)")
    parser.add_argument(
        "--last", type=at_least(1), metavar="CALLS", default=200, help="look at so many calls (%(default)s)"
    )


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > MOST_PORTS:
        raise argparse.ArgumentTypeError(f"{text} is no port; give 0 to {MOST_PORTS}")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    try:
        require("fairring metrics", ("prometheus_client",), "metrics")
    except MissingPackageError as error:
        print(error, file=sys.stderr)
        return 1
    if not arguments.directory.is_dir():
        print(f"fairring metrics: {nobody_answers(arguments.directory)}", file=sys.stderr)
        return 1
    from prometheus_client import CollectorRegistry, start_http_server

    ends = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)  # the server's threads get it from here
    registry = CollectorRegistry()
    registry.register(LiveJob(arguments.directory, arguments.last))
    try:
        server, _ = start_http_server(arguments.port, arguments.address, registry)
    except OSError as error:
        print(
            f"fairring metrics: can't listen on {arguments.address}:{arguments.port} ({error.strerror}); choose "
            "another --port or --address",
            file=sys.stderr,
        )
        return 1
    print(f"http://{arguments.address}:{server.server_port}/metrics", flush=True)
    ended = signal.sigwait(ends)
    server.shutdown()
    if ended == signal.SIGINT:
        raise KeyboardInterrupt
    return 0


class LiveJob:
    """The collector for Prometheus's client: it asks the ranks of this machine at every scrape."""

    def __init__(self, directory: Path, last: int) -> None:
        self._directory, self._last = directory, last

    def collect(self) -> Iterable[Metric]:
        return metrics(self._ranks())

    def _ranks(self) -> list[RankTrace]:
        asked = time.time()
        answered, _ = ask(self._directory, self._last)
        if not answered:
            return []
        try:
            groups = load(self._directory)
        except (TraceError, OSError) as error:
            print(f"fairring metrics: {error}", file=sys.stderr)
            return []
        # Older files belong to ranks that have ended or live on other machines.
        return [one for ranks in groups.values() for one in ranks if one.unix_now >= asked]


def metrics(ranks: Sequence[RankTrace]) -> list[Metric]:
    """The metrics of these ranks, of any groups. Times are in seconds."""
    from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

    def gauge(name: str, text: str, *more: str) -> GaugeMetricFamily:
        return GaugeMetricFamily(f"fairring_{name}", text, labels=(*_WHO, *more))

    def counter(name: str, text: str, *more: str) -> CounterMetricFamily:
        return CounterMetricFamily(f"fairring_{name}", text, labels=(*_WHO, *more))

    answered = GaugeMetricFamily("fairring_ranks", "Ranks of this machine that answered.", value=len(ranks))
    calls = counter("calls", "Calls made.")
    under_way = gauge("calls_under_way", "Calls that have not ended.")
    oldest = gauge("oldest_call_seconds", "How long the oldest of these has been under way.")
    waits_for = gauge("waits_for", "1: this rank waits for that one's data now.", "peer")
    waited = gauge("waited_ratio", "Share of the last calls' time in which steps waited for that rank.", "peer")
    sent = counter("bytes", "Sent; on the machine, read from the others' memory.", "level")
    packets = counter("packets", "Of TCP, to a rail peer.", "peer")
    again = counter("packets_again", "Of these, what was lost or thought to be.", "peer")
    ran = counter("processor_seconds", "What the process's threads have had of the processors.")
    queued = counter("processor_queued_seconds", "For how long these stood in line for one.")
    failed = gauge("group_failed", "1: an error has ended the group.")
    for one in ranks:
        who = (one.group, str(one.rank), one.hosts[one.rank])
        begun = [call.submitted for call in one.calls.values() if call.ended is None]
        calls.add_metric(who, max(one.calls, default=0))
        under_way.add_metric(who, len(begun))
        oldest.add_metric(who, one.now - min(begun, default=one.now))
        failed.add_metric(who, 1 if one.error else 0)
        ran.add_metric(who, one.ran)
        queued.add_metric(who, one.queued)
        for level, count in one.bytes_by_level.items():
            sent.add_metric((*who, _LEVELS[level]), count)
        for peer, (went, repeated) in one.packets.items():
            packets.add_metric((*who, str(peer)), went)
            again.add_metric((*who, str(peer)), repeated)
        for peer in {step.peer for step in one.steps if step.ready is None and step.peer is not None}:
            waits_for.add_metric((*who, str(peer)), 1)
        for peer, share in _waited(one).items():
            waited.add_metric((*who, str(peer)), share)
    return [answered, calls, under_way, oldest, waits_for, waited, sent, packets, again, ran, queued, failed]


def _waited(one: RankTrace) -> dict[int, float]:
    """Seconds of waiting, by peer. Steps of several slices may wait at once: each moment counts for one of them."""
    waits = sorted((step.offered, step.heard, step.peer) for step in one.steps if step.waited and step.peer is not None)
    if not waits:
        return {}
    seconds: dict[int, float] = defaultdict(float)
    counted = waits[0][0]
    for began, ended, peer in waits:
        seconds[peer] += max(0.0, ended - max(began, counted))
        counted = max(counted, ended)
    span = max(one.now - min((call.submitted for call in one.calls.values()), default=waits[0][0]), 1e-9)
    return {peer: taken / span for peer, taken in seconds.items()}
