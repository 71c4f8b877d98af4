"""Means over sites of their largest elements: 1/64 of them cross, in 2.06 bytes each, for outer steps (outer.py).

All ranks of a site have the same tensor. It is cut into rows of 4096 elements, which are dealt out to the ranks of the
site. A rank adds to its rows what it had not sent of them before, and chooses the 64 largest elements of each. They are
rounded to multiples of a scale, from -7 to 7; what is left of the row is kept for the next time. All ranks gather all
that was chosen, and add it up in the order of the sites: the bits are the same on all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from fairring.between_sites import zeros_of_floats

ROW, CHOSEN = 4096, 64
LARGEST = 7
SCALE_WORDS = 2  # a float
FIRST_WORD = -(2**15)


class TopK:
    """The share of one rank in a tensor of so many elements. sites: the names of all ranks' sites."""

    def __init__(self, elements: int, rank: int, sites: Sequence[str]) -> None:
        by_site = {site: [other for other, its in enumerate(sites) if its == site] for site in sites}
        self._sites = list(by_site.values())
        senders = min(map(len, self._sites))  # of each site, so that all gather equally many bytes
        self._senders = [ranks[:senders] for ranks in self._sites]
        self._rows = -(-elements // (ROW * senders))  # of each
        self._number = by_site[sites[rank]].index(rank)  # no sender if it is `senders` or more
        self._all_rows = self._rows * senders
        is_sender = self._number < senders
        self.residual = zeros_of_floats(self._rows if is_sender else 0, ROW)

    def mean(self, tensor: Tensor, group: Any) -> Callable[[], Tensor]:
        """Starts the exchange. The result waits for it and returns the mean over all ranks."""
        sent = torch.zeros(self._rows, CHOSEN + SCALE_WORDS, dtype=torch.int16, device="cpu")
        if len(self.residual):
            padded = torch.nn.functional.pad(tensor, (0, self._all_rows * ROW - tensor.numel()))
            sent = encode(padded.view(-1, ROW)[self._number * self._rows :][: self._rows], self.residual)
        of_all = torch.empty(group.size(), *sent.shape, dtype=torch.int16, device="cpu")
        work: Any = dist.all_gather_into_tensor(of_all, sent, group=group, async_op=True)

        def arrived() -> Tensor:
            work.wait()
            total = zeros_of_floats(self._all_rows, ROW)
            for ranks, senders in zip(self._sites, self._senders, strict=True):
                add(of_all[senders].flatten(0, 1), len(ranks) / group.size(), total)
            return total.flatten()[: tensor.numel()]

        return arrived


def encode(rows: Tensor, residual: Tensor) -> Tensor:
    """The chosen elements of each row as words of 16 bits (12 of the place, 4 of the level), then the row's scale.

    rows, residual: [rows, ROW]. Numbers that are not finite make the chosen ones of their row NaN, and leave nothing.
    """
    rows = rows + residual
    places = rows.abs().topk(CHOSEN, dim=1).indices
    chosen = rows.gather(1, places)
    scale = chosen.abs().amax(1, keepdim=True) / LARGEST
    levels = (chosen / scale).nan_to_num().round().clamp(-LARGEST, LARGEST)
    rest = rows.scatter_add(1, places, -levels * scale)
    residual.copy_(rest.nan_to_num(0, 0, 0))
    words = (places * 16 + levels.long() + 8 + FIRST_WORD).to(torch.int16)
    return torch.cat([words, scale.view(torch.int16)], dim=1)


def add(words: Tensor, weight: float, total: Tensor) -> None:
    """Adds what encode() made, times the weight, to the rows of the total. Any words are read within their row."""
    codes = words[:, :CHOSEN].long() - FIRST_WORD
    scale = words[:, CHOSEN:].contiguous().view(torch.float32)
    total.scatter_add_(1, codes // 16, (codes % 16 - 8) * (scale * weight))
