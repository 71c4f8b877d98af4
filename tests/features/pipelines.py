"""Pipeline parallelism: a model in stages, one or two on each rank, against the whole model."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleLoopedBFS,
    SplitPoint,
    pipeline,
)

from features.rank import Rank, close, made

WIDTH = 6
ROWS = 8
MICROBATCHES = 4


def _layers(count: int) -> list[nn.Module]:
    torch.manual_seed(4)
    return [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(count)]


def _inputs() -> torch.Tensor:
    return made(0, ROWS, WIDTH) / 5


def _losses(schedule: Any, first: bool, last: bool) -> list[torch.Tensor]:
    losses: list[torch.Tensor] = []
    arguments = [_inputs()] if first else []
    settings = {"target": made(1, ROWS, WIDTH), "losses": losses} if last else {}
    schedule.step(*arguments, **settings)
    return losses


def _compare(layers: list[nn.Module], mine: list[int], losses: list[torch.Tensor]) -> None:
    """Gradients of this rank's stages with those of the whole model on the whole batch."""
    whole = nn.Sequential(*_layers(len(layers)))
    expected = nn.functional.mse_loss(whole(_inputs()), made(1, ROWS, WIDTH))
    expected.backward()
    for index in mine:
        for parameter, theirs in zip(layers[index].parameters(), whole[index].parameters(), strict=True):
            close(parameter.grad, theirs.grad)
    if losses:
        close(torch.stack(losses).mean().detach(), expected.detach())


def _one_stage_each(rank: Rank, schedule: Any) -> None:
    layers = _layers(rank.size)
    stage = PipelineStage(layers[rank.number], rank.number, rank.size, torch.device("cpu"))
    losses = _losses(
        schedule(stage, MICROBATCHES, loss_fn=nn.functional.mse_loss),
        first=rank.number == 0,
        last=rank.number == rank.size - 1,
    )
    _compare(layers, [rank.number], losses)


def _two_stages_each(rank: Rank, schedule: Any) -> None:
    layers = _layers(2 * rank.size)
    mine = [rank.number, rank.number + rank.size]
    stages = [PipelineStage(layers[index], index, len(layers), torch.device("cpu")) for index in mine]
    losses = _losses(
        schedule(stages, MICROBATCHES, loss_fn=nn.functional.mse_loss),
        first=rank.number == 0,
        last=rank.number == rank.size - 1,
    )
    _compare(layers, mine, losses)


def gpipe(rank: Rank) -> None:
    """Pipeline: GPipe, four stages"""
    _one_stage_each(rank, ScheduleGPipe)


def one_forward_one_backward(rank: Rank) -> None:
    """Pipeline: 1F1B, four stages"""
    _one_stage_each(rank, Schedule1F1B)


def interleaved(rank: Rank) -> None:
    """Pipeline: interleaved 1F1B, eight stages"""
    _two_stages_each(rank, ScheduleInterleaved1F1B)


def looped(rank: Rank) -> None:
    """Pipeline: looped breadth first, eight stages"""
    _two_stages_each(rank, ScheduleLoopedBFS)


def zero_bubble(rank: Rank) -> None:
    """Pipeline: interleaved zero bubble, eight stages"""
    _two_stages_each(rank, ScheduleInterleavedZeroBubble)


class _Whole(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*_layers(4))

    def forward(self, inputs: torch.Tensor) -> Any:
        return self.layers(inputs)


def traced(rank: Rank) -> None:
    """Pipeline of a traced model, forward alone"""
    points = {f"layers.{index}": SplitPoint.BEGINNING for index in range(1, rank.size)}
    pipe = pipeline(_Whole(), (_inputs().chunk(MICROBATCHES)[0],), split_spec=points)
    schedule = ScheduleGPipe(pipe.build_stage(rank.number, torch.device("cpu")), MICROBATCHES)
    output = schedule.step(*([_inputs()] if rank.number == 0 else []))
    if rank.number == rank.size - 1:
        close(output, _Whole()(_inputs()))
