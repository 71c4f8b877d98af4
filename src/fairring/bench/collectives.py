"""The collectives that `fairring bench` measures, and the least that each has to move. No torch.

A size is that of the tensor that stands for all ranks: the output of all-gather, the input of reduce-scatter and of
each rank's all-to-all, what the root of gather and scatter has. Rank 0 is the root.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

ALL_REDUCE, SEND_RECV, BARRIER = "all-reduce", "send-recv", "barrier"


@dataclass(frozen=True)
class Collective:
    """link_share: bytes that cross the network of the busiest machine in its busier direction, for each byte of the
    size, by the ranks of each machine; the same between sites. Machines sum, or send once, what their ranks share.

    bus_factor: bus bandwidth / (size/t), by the number of ranks. Sources: nccl-tests doc/PERFORMANCE.md, src/gather.cu;
    the ping-pong is ours. reduces: it takes an op. fills: it writes as many bytes on every rank as the size has.
    blockwise: the size is that of a block of at least one element for each rank.
    """

    link_share: Callable[[Sequence[int]], float]
    bus_factor: Callable[[int], float]
    reduces: bool = False
    fills: bool = False
    blockwise: bool = False


def _others(members: int) -> float:
    return (members - 1) / members


def _summed_and_back(ranks: Sequence[int]) -> float:
    return 2 * _others(len(ranks))


def _every_block_once(ranks: Sequence[int]) -> float:
    return max(max(own, sum(ranks) - own) for own in ranks) / sum(ranks)


def _every_pair(ranks: Sequence[int]) -> float:
    return max(own * (sum(ranks) - own) for own in ranks) / sum(ranks)


def _blocks_of_others(ranks: Sequence[int]) -> float:
    return 1 - ranks[0] / sum(ranks)


COLLECTIVES = {
    ALL_REDUCE: Collective(_summed_and_back, lambda ranks: 2 * _others(ranks), reduces=True, fills=True),
    "reduce-scatter": Collective(_every_block_once, _others, reduces=True, blockwise=True),
    "all-gather": Collective(_every_block_once, _others, fills=True, blockwise=True),
    "all-to-all": Collective(_every_pair, _others, fills=True, blockwise=True),
    "broadcast": Collective(lambda _: 1.0, lambda _: 1.0),
    "reduce": Collective(lambda _: 1.0, lambda _: 1.0, reduces=True),
    "gather": Collective(_blocks_of_others, _others, blockwise=True),
    "scatter": Collective(_blocks_of_others, _others, blockwise=True),
    SEND_RECV: Collective(lambda _: 2.0, lambda _: 2.0),  # to the last rank, and back
    BARRIER: Collective(lambda _: 0.0, lambda _: 0.0),
}
