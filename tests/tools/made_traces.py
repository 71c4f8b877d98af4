"""Traces of a job that never ran: its calls are of one size, and all times follow from the costs of ranks and links."""

from __future__ import annotations

from dataclasses import dataclass, field

from fairring.trace.records import Call, RankTrace, Receive, Send, Step

LATENCY = 50e-6
LEAST_BYTES = 16 << 10  # of a message that is recorded


@dataclass
class Job:
    """Seconds and bytes/s; by rank or machine if a rank or machine differs from the others."""

    machines: int = 3
    sites: int = 1
    site_of: tuple[int, ...] = ()  # by machine, if sites are unequal
    title: str = "all_reduce"
    ranks: int = 2  # of each machine
    calls: int = 20
    call_bytes: int = 8_000_000
    compute: float = 0.1
    sums: float = 2e-3
    rate: float = 1e8  # of a rank, to each other
    site_rate: float = 1e8  # at most, between sites
    site_latency: float = LATENCY
    slow_compute: dict[int, float] = field(default_factory=dict)
    slow_sums: dict[int, float] = field(default_factory=dict)
    slow_rate: dict[int, float] = field(default_factory=dict)  # by machine
    queued: dict[int, float] = field(default_factory=dict)  # of a second
    again: dict[int, int] = field(default_factory=dict)  # of 10 000 packets from there, by machine
    ahead: dict[int, float] = field(default_factory=dict)  # by machine: how far its clock is ahead

    @property
    def world(self) -> int:
        return self.machines * self.ranks

    def traces(self) -> list[RankTrace]:
        """The traces of all ranks, each by its own machine's clock."""
        self._calls: dict[int, list[Call]] = {rank: [] for rank in range(self.world)}
        self._steps: dict[int, list[Step]] = {rank: [] for rank in range(self.world)}
        self._sends: dict[int, list[Send]] = {rank: [] for rank in range(self.world)}
        self._receives: dict[int, list[Receive]] = {rank: [] for rank in range(self.world)}
        end = dict.fromkeys(range(self.world), 1.0)
        for number in range(1, self.calls + 1):
            end = self._call(number, end)
        return [self._trace(rank) for rank in range(self.world)]

    def _machine(self, rank: int) -> int:
        return rank // self.ranks

    def _site(self, machine: int) -> int:
        return self.site_of[machine] if self.site_of else machine * self.sites // self.machines

    def _sums(self, rank: int) -> float:
        return self.slow_sums.get(rank, self.sums)

    def _call(self, number: int, end: dict[int, float]) -> dict[int, float]:
        submitted = {rank: time + self.slow_compute.get(rank, self.compute) for rank, time in end.items()}
        ready = self._within(number, "RS0", submitted)
        ready = self._between(number, "RS1", ready)
        ready = self._between(number, "AG1", ready)
        ready = self._within(number, "AG0", ready)
        for rank, time in ready.items():
            self._calls[rank].append(Call(number, self.title, submitted[rank], submitted[rank], time, False))
        return ready

    def _within(self, number: int, verb: str, began: dict[int, float]) -> dict[int, float]:
        offered = {rank: time + self._sums(rank) for rank, time in began.items()}
        ready = {}
        for rank in began:
            mates = [mate for mate in began if mate != rank and self._machine(mate) == self._machine(rank)]
            last = max(mates, key=lambda mate: offered[mate], default=rank)
            heard = max(offered[rank], offered[last] + LATENCY)
            ready[rank] = heard + self._sums(rank)
            times = (began[rank], offered[rank], heard, ready[rank], ready[rank])
            self._steps[rank].append(Step(number, number, verb, 0, last, *times))
        return ready

    def _between(self, number: int, verb: str, began: dict[int, float]) -> dict[int, float]:
        ready = {}
        part = self.call_bytes // self.world
        arrivals: dict[int, dict[int, float]] = {rank: {} for rank in began}
        for rank in began:
            for peer in began:
                if peer == rank or peer % self.ranks != rank % self.ranks:
                    continue
                ends = (self._machine(rank), self._machine(peer))
                rate = min(self.slow_rate.get(machine, self.rate) for machine in ends)
                crosses = self._site(ends[0]) != self._site(ends[1])
                rate, latency = (min(rate, self.site_rate), self.site_latency) if crosses else (rate, LATENCY)
                arrivals[peer][rank] = began[rank] + part / rate + latency
                if part < LEAST_BYTES:
                    continue
                self._sends[rank].append(Send(number, number, verb, 1, peer, part, began[rank], began[rank]))
                arrival = Receive(number, number, verb, rank, part, arrivals[peer][rank])
                self._receives[peer].append(arrival)
        for rank in began:
            last = max(arrivals[rank], key=lambda peer: arrivals[rank][peer])
            heard = arrivals[rank][last]
            ready[rank] = max(heard, began[rank]) + self._sums(rank)
            times = (began[rank], began[rank], heard, ready[rank], ready[rank])
            self._steps[rank].append(Step(number, number, verb, 1, last, *times))
        return ready

    def _trace(self, rank: int) -> RankTrace:
        machine = self._machine(rank)
        ahead = self.ahead.get(machine, 0.0)
        rails = [peer for peer in range(self.world) if peer % self.ranks == rank % self.ranks and peer != rank]
        leads = {peer: ahead - self.ahead.get(self._machine(peer), 0.0) + LATENCY for peer in rails}
        whole = RankTrace(
            rank=rank,
            group="0",
            machines=tuple(f"machine{self._machine(one)}" for one in range(self.world)),
            hosts=tuple(f"host{self._machine(one)}" for one in range(self.world)),
            leads=leads,
            packets={peer: (10_000, self.again.get(machine, 0)) for peer in rails},
            staging_bytes=50 << 20,
            now=100.0,
            unix_now=1e9,
            bytes_by_level={0: 3 * self.call_bytes, 1: self.call_bytes},
            ran=1.0 - self.queued.get(rank, 0.01),
            queued=self.queued.get(rank, 0.01),
            error="",
            calls={call.number: call for call in self._calls[rank]},
            steps=tuple(self._steps[rank]),
            sends=tuple(self._sends[rank]),
            receives=tuple(self._receives[rank]),
            sites=tuple(f"site{self._site(self._machine(one))}" for one in range(self.world)),
        )
        return whole.shifted(ahead)
