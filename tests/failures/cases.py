"""The cases: what the ranks do, what happens to them, and what each of them must be told."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from dataclasses import replace

from torch.distributed import distributed_c10d

from failures.play import Case, Play

Expected = Mapping[int, tuple[str, ...] | None]

QUICK = {"FAIRRING_HEARTBEAT_TIMEOUT": "3s"}
DIED = r"rank {} \(\S+\) died"
SILENT = r"rank {} \(\S+\) has given rank \d \(\S+\) no sign of life"


def but(rank: int, *words: str, size: int = 4) -> Expected:
    """The words for everyone but that rank, which is not asked."""
    return {other: None if other == rank else words for other in range(size)}


def all_(*words: str, size: int = 4) -> Expected:
    return dict.fromkeys(range(size), words)


# --- events


def killed(rank: int, word: str | None = None) -> Callable[[Play], None]:
    def event(play: Play) -> None:
        play.go()
        if word is not None:
            play.hear(word)
        play.kill(rank)

    return event


def killed_together(*ranks: int) -> Callable[[Play], None]:
    def event(play: Play) -> None:
        play.go()
        for rank in ranks:
            play.kill(rank)

    return event


def killed_while_idle(rank: int) -> Callable[[Play], None]:
    def event(play: Play) -> None:
        play.go()
        play.kill(rank)
        play.await_end(rank)
        play.tell("call", play.others(rank))

    return event


def killed_before_its_first_call(rank: int) -> Callable[[Play], None]:
    def event(play: Play) -> None:
        play.go()
        play.hear("calling", play.others(rank))
        play.kill(rank)

    return event


def stopped(rank: int) -> Callable[[Play], None]:
    def event(play: Play) -> None:
        play.go()
        play.signal(rank, signal.SIGSTOP)
        for other in play.others(rank):
            play.await_end(other)
        play.end()

    return event


def paused(rank: int, seconds: float) -> Callable[[Play], None]:
    def event(play: Play) -> None:
        play.go()
        play.hear("here", [rank])
        play.signal(rank, signal.SIGSTOP)
        play.hear("calling", play.others(rank))
        play.wait_until(seconds)
        play.tell("call", [rank])
        play.signal(rank, signal.SIGCONT)

    return event


def cut(machine: int) -> Callable[[Play], None]:
    def event(play: Play) -> None:
        play.go()
        play.set_link(machine, False)
        try:
            for rank in play.ranks:
                play.await_end(rank)
        finally:
            play.stage.lab.set_link(machine, True)

    return event


def cut_for(machine: int, seconds: float) -> Callable[[Play], None]:
    def event(play: Play) -> None:
        play.go()
        play.set_link(machine, False)
        play.wait_until(seconds)
        play.set_link(machine, True)
        play.tell("enough")

    return event


def aborted(play: Play) -> None:
    play.go()
    play.hear("waiting", play.others(play.case.size - 1))
    play.mark()
    play.tell("abort", [0])
    play.hear("raised", play.others(play.case.size - 1))
    play.tell("go on", [play.case.size - 1])


def let_the_last_go_on(play: Play) -> None:
    play.go()
    last = play.case.size - 1
    for rank in play.others(last):
        play.await_end(rank)
    play.tell("go on", [last])


def learned(play: Play) -> None:
    play.hear("learned")
    play.tell("end")


def begun(play: Play) -> None:
    play.go()


# --- the table

_DEATHS = [
    Case("kill", "kill -9 during all_reduce", "all_reduces", but(3, DIED.format(3)), killed(3)),
    Case("kill-first", "kill -9 of rank 0, which holds the store", "all_reduces", but(0, DIED.format(0)), killed(0)),
    Case(
        "kill-in-one-machine",
        "kill -9 during all_reduce, one machine",
        "all_reduces",
        but(1, DIED.format(1), size=2),
        killed(1),
        layout="1x2",
    ),
    Case(
        "kill-single-ranks",
        "kill -9 during all_reduce, machines of one rank",
        "all_reduces",
        but(2, DIED.format(2), size=3),
        killed(2),
        layout="3x1",
    ),
    Case(
        "kill-loading",
        "kill -9 with num_workers=2 alive",
        "loads",
        but(3, DIED.format(3)),
        killed(3, "loading"),
    ),
    Case(
        "kill-in-all-gather",
        "kill -9 during all_gather",
        "all_gathers",
        but(3, DIED.format(3)),
        killed(3),
    ),
    Case(
        "kill-in-all-to-all",
        "kill -9 during all_to_all_single",
        "all_to_alls",
        but(3, DIED.format(3)),
        killed(3),
    ),
    Case(
        "kill-in-recv",
        "kill -9 while all others wait for the rank's message",
        "receives",
        but(3, DIED.format(3)),
        killed_before_its_first_call(3),
    ),
    Case("kill-idle", "kill -9 between calls", "idles", but(3, DIED.format(3)), killed_while_idle(3)),
    Case(
        "kill-idle-exchange",
        "kill -9 between calls, the next one is an all_to_all_single",
        "idles_then_exchanges",
        but(3, DIED.format(3)),
        killed_while_idle(3),
    ),
    *(
        Case(
            f"kill-unused{name}",
            f"kill -9 before the rank's first call{where}",
            "makes_no_first_call",
            but(1, DIED.format(1), size=size),
            killed_before_its_first_call(1),
            layout=layout,
        )
        for name, where, size, layout in (
            ("", "", 4, "2x2"),
            ("-in-one-machine", ", one machine", 2, "1x2"),
            ("-single-ranks", ", machines of one rank", 3, "3x1"),
        )
    ),
    Case(
        "raise",
        "a rank raises and ends",
        "raises",
        {0: (r"rank 3",), 1: (r"rank 3",), 2: (r"rank 3",), 3: None},
        begun,
    ),
]

_SILENCE = [
    Case("stop", "SIGSTOP for good", "all_reduces", but(3, SILENT.format(3)), stopped(3), env=QUICK),
    Case(
        "stop-in-all-to-all",
        "SIGSTOP for good during all_to_all_single",
        "all_to_alls",
        but(3, SILENT.format(3)),
        stopped(3),
        env=QUICK,
    ),
    Case("pause", "SIGSTOP, then SIGCONT", "pauses", all_(), paused(3, 0.5)),
    Case(
        "cut",
        "link of machine 1 down for good",
        "all_reduces",
        {0: (r"rank [23]",), 1: (r"rank [23]",), 2: (r"rank [01]",), 3: (r"rank [01]",)},
        cut(1),
        env=QUICK,
    ),
    Case("cut-briefly", "link of machine 1 down for a while", "keeps_on", all_(), cut_for(1, 0.5)),
]


def _mismatch(name: str, title: str, body: str, most: str, last: str) -> list[Case]:
    """Both sides are shown to everyone: across machines, and inside one."""
    words = (most, last, r"rank \d")
    return [
        Case(name, title, body, all_(*words), begun),
        Case(f"{name}-in-one-machine", f"{title}, one machine", body, all_(*words, size=2), begun, layout="1x2"),
    ]


_MISMATCHES = [
    *_mismatch("size", "another size", "differs_in_size", r"all_reduce.* of 100 ", r"all_reduce.* of 77 "),
    *_mismatch("dtype", "another dtype", "differs_in_dtype", r"of 100 Float32", r"of 100 Int64"),
    *_mismatch("op", "another operation", "differs_in_op", r"SUM", r"AVG"),
    *_mismatch("order", "another order", "differs_in_order", r"of 200000 ", r"of 300000 "),
    *_mismatch(
        "kind", "all_to_all_single instead of all_reduce", "differs_in_kind", r"all_reduce", r"all_to_all_single"
    ),
    *_mismatch(
        "half",
        "reduce_scatter_tensor instead of all_gather",
        "differs_in_half",
        r"all_gather",
        r"reduce_scatter_tensor",
    ),
    *_mismatch(
        "without-sums",
        "broadcast instead of all_to_all_single",
        "differs_in_kind_without_sums",
        r"all_to_all_single",
        r"broadcast",
    ),
    *_mismatch("one-less", "one call too few, then the next ones", "leaves_one_out_and_goes_on", r"of 77 ", r"of 10 "),
    Case(
        "one-less-stuck",
        "one call too few, then stuck elsewhere (timeout 4 s)",
        "leaves_one_out",
        {
            **all_(
                r"all_reduce SUM of 77 ",
                r"within its timeout of 4 s",
                r"rank 3 \(.* has not made this call \(number 2\): its last was call 1",
            ),
            3: (),
        },
        let_the_last_go_on,
        timeout=4,
    ),
    Case(
        "one-less-ends",
        "one call too few, then the end",
        "leaves_one_out_and_ends",
        {**all_(r"rank 3"), 3: ()},
        begun,
    ),
]

_OWN = [
    Case("abort", "abort() from another thread", "aborts", {**all_(r"rank 0 aborted")}, aborted),
    Case(
        "wait-timeout",
        "wait(1 s) for a call that a rank never makes",
        "waits_briefly",
        {**all_(r"of 77 "), 3: ()},
        let_the_last_go_on,
    ),
    Case(
        "absent",
        "a rank never starts (timeout 2 s, of rank 0 10 s)",
        "comes",
        # Rank 0 waits in its store for all to connect to it: torch's own wait, and its own error.
        {0: (r"^DistStoreError: .*3/4 clients joined",), **dict.fromkeys((1, 2), (r"rank\(s\) (0, )?3 of 4",))},
        present=(0, 1, 2),
        timeout=2,
    ),
    Case(
        "settings",
        "FAIRRING_SLICE_SIZE differs",
        "sets_slice_size",
        all_(r"rank 0 \(\S+\) has .*SLICE_SIZE=26214400.*; rank 3 \(\S+\) has .*SLICE_SIZE=1048576"),
        learned,
    ),
    Case(
        "nonsense",
        "FAIRRING_SLICE_SIZE=big on rank 3 (timeout 3 s)",
        "sets_nonsense",
        {**all_(r"rank\(s\) 3 of 4"), 3: (r"FAIRRING_SLICE_SIZE='big'", r"KiB")},
        learned,
        timeout=3,
    ),
    Case("unknown", "unknown FAIRRING_ variable", "sets_unknown", all_(r"did you mean FAIRRING_SLICE_SIZE\?")),
]


def _survives(name: str, title: str, body: str, *dead: int) -> Case:
    expected = {rank: None if rank in dead else () for rank in range(4)}
    return Case(name, title, body, expected, killed_together(*dead), module="failures.survivors")


_SURVIVAL = [
    _survives("go-on", "kill -9 during all_reduce, then reconfigure()", "reconfigure_without_the_last", 3),
    _survives("go-on-without-store", "kill -9 of rank 0, then reconfigure()", "reconfigure_without_the_first", 0),
    _survives(
        "go-on-machine", "kill -9 of a machine's ranks, then reconfigure()", "reconfigure_without_a_machine", 2, 3
    ),
    _survives("shrink", "kill -9 during all_reduce, then shrink_group()", "shrink_without_the_last", 3),
    replace(
        _survives("go-on-stopped", "SIGSTOP for good, then reconfigure()", "reconfigure_without_the_last", 3),
        event=stopped(3),
        env=QUICK,
    ),
]

CASES = [*_DEATHS, *_SILENCE, *_MISMATCHES, *_OWN]
if hasattr(distributed_c10d, "_reconfigure"):  # PyTorch 2.15 on
    CASES += _SURVIVAL


def as_in_the_table() -> list[Case]:
    """With the lengths that people ask about, where the tests make do with shorter ones."""
    longer = {
        "pause": ("SIGSTOP for 10 s, then SIGCONT", paused(3, 10)),
        "cut-briefly": ("link of machine 1 down for 3 s", cut_for(1, 3)),
    }
    cases = []
    for case in CASES:
        title, event = longer.get(case.name, (case.title, case.event))
        cases.append(replace(case, title=title, event=event))
    return cases
