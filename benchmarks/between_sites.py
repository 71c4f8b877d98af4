"""Measures the wire formats between sites: the time and bytes of an all-reduce, and the loss of a training.

    SITES="--machines 4 --ranks 2 --sites 2 --site-rate 100mbit --site-delay 20ms --interfaces 2"
    FAIRRING_SITE_IFNAME=eth1 fairring lab $SITES --only-rank 0 -- python benchmarks/between_sites.py crossing
    fairring lab --machines 2 --sites 2 --only-rank 0 -- python benchmarks/between_sites.py training

crossing: bytes are those that the cards eth1 of all machines have sent, with headers and acknowledgements. training: a
transformer learns the source text of the standard library, with the same weights and batches in every format. The loss
is the mean over the last 50 steps.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import fairring
from fairring.between_sites import Residuals, all_reduce, compressed

FORMATS = (None, "bf16", "int8", "int4")
WIDTH, LAYERS, CONTEXT, BATCH = 128, 2, 64, 8


def sent_by_card() -> int:
    """By all machines; one rank of each counts."""
    sent = 0
    if os.environ["LOCAL_RANK"] == "0":
        card = next(line for line in Path("/proc/net/dev").read_text().splitlines() if line.strip().startswith("eth1:"))
        sent = int(card.split(":")[1].split()[8])
    total = torch.tensor(sent)
    dist.all_reduce(total)
    return int(total)


def crossing(mebibytes: int, calls: int) -> None:
    for form in FORMATS:
        tensor = torch.randn(mebibytes << 18)
        residual = torch.zeros_like(tensor)
        seconds = []
        before = 0
        for call in range(calls + 1):  # the first one is no part of it
            if call == 1:
                before = sent_by_card()
            dist.barrier()
            began = time.monotonic()
            if form is None:
                dist.all_reduce(tensor)
            else:
                all_reduce(tensor, form, residual).wait()
            took = torch.tensor(time.monotonic() - began)
            dist.all_reduce(took, dist.ReduceOp.MAX)
            seconds.append(float(took))
        sent = (sent_by_card() - before) / calls
        if dist.get_rank() == 0:
            print(f"{form or 'fp32'}: {statistics.median(seconds[1:]):.3f} s, {sent / 1e6:.3f} MB", flush=True)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, 0.0, batch_first=True, norm_first=True)
        self.bytes, self.places = nn.Embedding(256, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, 256)

    def forward(self, text: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(CONTEXT)
        return self.head(self.layers(self.bytes(text) + self.places.weight, mask=mask, is_causal=True))


def train(text: Tensor, form: str | None, steps: int, *, kept: bool) -> float:
    torch.manual_seed(0)
    replica = DistributedDataParallel(Model(), bucket_cap_mb=0.5)
    residuals = Residuals(form)
    replica.register_comm_hook(residuals, compressed)
    optimizer = torch.optim.AdamW(replica.parameters(), lr=1e-3)
    draw = torch.Generator().manual_seed(dist.get_rank())
    losses = []
    for _ in range(steps):
        places = torch.randint(len(text) - CONTEXT - 1, (BATCH, 1), generator=draw) + torch.arange(CONTEXT + 1)
        sample = text[places].long()
        loss = nn.functional.cross_entropy(replica(sample[:, :-1]).flatten(0, 1), sample[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        if not kept:
            residuals.forget()
    last = torch.stack(losses[-50:]).mean()
    dist.all_reduce(last, dist.ReduceOp.AVG)
    return float(last)


def training(steps: int) -> None:
    files = sorted(Path(os.__file__).parent.glob("*.py"))
    text = torch.frombuffer(bytearray(b"".join(file.read_bytes() for file in files)), dtype=torch.uint8)
    for form in FORMATS:
        for kept in (True, False) if form else (True,):
            loss = train(text, form, steps, kept=kept)
            if dist.get_rank() == 0:
                print(f"{form or 'fp32'}{'' if kept else ' without residuals'}: loss {loss:.5f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("crossing", "training"))
    parser.add_argument("--mib", type=int, default=25)
    parser.add_argument("--calls", type=int, default=3)
    parser.add_argument("--steps", type=int, default=300)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    fairring.register()
    dist.init_process_group("fairring")
    if arguments.what == "crossing":
        crossing(arguments.mib, arguments.calls)
    else:
        training(arguments.steps)
    dist.destroy_process_group()


main()
