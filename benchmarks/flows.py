"""The network model of simulations beside SimGrid, on the same flows: `python3 benchmarks/flows.py PROGRAM`

PROGRAM is fairring_flows, of build/asan/tests/simulation. All flows of a pattern begin at once. Prints a table as
Markdown: milliseconds until the last flow has ended, by both, and how far apart the ends of single flows are.

Needs SimGrid's Python module (Debian: python3-simgrid, for the system's Python). By default its links are shared in
max-min fairness, without the traffic of acknowledgements: its model CM02. --tcp takes SimGrid's own default instead,
which reckons with a new connection's slow start and with headers: LV08.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field

RATE = 1.25e9  # bytes/s of a link, each way
LATENCY = 25e-6
MODELS = {False: "CM02", True: "LV08"}

Flow = tuple[int, int, int]  # from machine, to machine, bytes


@dataclass(frozen=True)
class Pattern:
    name: str
    machines: int
    flows: list[Flow]
    spine: float = 1.0  # carries so many times less than all links
    slower: dict[int, float] = field(default_factory=dict)  # machine: its link, so many times


def patterns() -> Iterator[Pattern]:
    drawn = random.Random(1)
    mib = 1 << 20
    for size, text in ((64 << 10, "64 KiB"), (4 * mib, "4 MiB")):
        yield Pattern(f"all-to-all of 8, {text}", 8, all_to_all(8, size))
        yield Pattern(f"7 to 1, {text}", 8, [(sender, 7, size) for sender in range(7)])
        yield Pattern(f"ring of 16, {text}", 16, [(one, (one + 1) % 16, size) for one in range(16)])
        yield Pattern(f"all-to-all of 8, one link 4 times slower, {text}", 8, all_to_all(8, size), slower={3: 4.0})
        yield Pattern(f"all-to-all of 16, spine of a quarter, {text}", 16, all_to_all(16, size), spine=4.0)
    pairs = drawn.sample([(one, other) for one in range(16) for other in range(16) if one != other], 64)
    sizes = [drawn.randrange(64 << 10, 8 * mib) for _ in pairs]
    yield Pattern(
        "64 random flows of 16, 64 KiB to 8 MiB", 16, [(*pair, size) for pair, size in zip(pairs, sizes, strict=True)]
    )
    yield Pattern("16 random flows of 16, 4 KiB", 16, [(*pair, 4 << 10) for pair in pairs[:16]])


def all_to_all(machines: int, size: int) -> list[Flow]:
    """In the order in which Fairring's ranks send: each to those after it."""
    return [(one, (one + step) % machines, size) for step in range(1, machines) for one in range(machines)]


def ours(program: str, pattern: Pattern) -> list[float]:
    slower = [str(value) for pair in pattern.slower.items() for value in pair]
    words = [program, str(pattern.machines), str(RATE), str(LATENCY), str(pattern.spine), *slower]
    text = "".join(f"{sender} {receiver} {size}\n" for sender, receiver, size in pattern.flows)
    said = subprocess.run(words, input=text, capture_output=True, text=True, check=True).stdout
    return [float(line) for line in said.split()]


def simgrids(pattern: Pattern, tcp: bool) -> list[float]:
    """In a process of its own: SimGrid has one engine in each."""
    words = [sys.executable, __file__, "--child", *(["--tcp"] if tcp else [])]
    said = subprocess.run(words, input=json.dumps(asdict(pattern)), capture_output=True, text=True, check=True).stdout
    return [float(time) for time in json.loads(said.splitlines()[-1])]


def child(pattern: Pattern, tcp: bool) -> None:
    from simgrid import Actor, Comm, Engine, LinkInRoute, NetZone

    settings = [f"--cfg=network/model:{MODELS[tcp]}"] + ([] if tcp else ["--cfg=network/crosstraffic:0"])
    engine = Engine(["flows", *settings])
    zone = NetZone.create_full_zone("cluster")
    spine = zone.create_link("spine", pattern.machines * RATE / pattern.spine).set_latency(0).seal()
    hosts, links = [], []
    for machine in range(pattern.machines):
        hosts.append(zone.create_host(f"machine{machine}", 1e9))
        rate = RATE / pattern.slower.get(machine, 1.0)
        links.append(zone.create_split_duplex_link(f"link{machine}", rate).set_latency(LATENCY / 2).seal())
    for sender in range(pattern.machines):
        for receiver in range(pattern.machines):
            if sender == receiver:
                continue
            way = [LinkInRoute(links[sender], LinkInRoute.UP), LinkInRoute(links[receiver], LinkInRoute.DOWN)]
            if pattern.spine > 1:
                way.insert(1, LinkInRoute(spine))
            zone.add_route(hosts[sender].netpoint, hosts[receiver].netpoint, None, None, way, False)
    zone.seal()
    comms = []

    def sends() -> None:
        for sender, receiver, size in pattern.flows:
            comms.append(Comm.sendto_init(hosts[sender], hosts[receiver]).set_payload_size(size).start())
        for comm in comms:
            comm.wait()

    Actor.create("sends", hosts[0], sends)
    engine.run()
    print(json.dumps([comm.finish_time for comm in comms]))


def compare(program: str, tcp: bool) -> None:
    print("| flows | SimGrid | Fairring's model | last one | single ones, median | single ones, most |")
    print("|---|---|---|---|---|---|")
    for pattern in patterns():
        mine, theirs = ours(program, pattern), simgrids(pattern, tcp)
        apart = [one / other - 1 for one, other in zip(mine, theirs, strict=True)]
        last = max(mine) / max(theirs) - 1
        most = max(apart, key=abs)
        print(
            f"| {pattern.name} | {max(theirs) * 1e3:.3f} | {max(mine) * 1e3:.3f} | {last * 100:+.1f} % |"
            f" {statistics.median(map(abs, apart)) * 100:.1f} % | {most * 100:+.1f} % |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="?")
    parser.add_argument("--tcp", action="store_true")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        asked = json.load(sys.stdin)
        asked["slower"] = {int(machine): times for machine, times in asked["slower"].items()}
        child(Pattern(**asked), arguments.tcp)
    else:
        compare(arguments.program, arguments.tcp)


if __name__ == "__main__":
    main()
