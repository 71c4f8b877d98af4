"""DistributedDataParallel with sparse gradients. random_programs plays sparse all-reduces."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
from forked_programs import forked_program
from lab_programs import REPOSITORY, run
from ranks import Ranks, backend_of
from torch import nn
from torch.nn.parallel import DistributedDataParallel


@pytest.mark.slow
@pytest.mark.parametrize("machines", [[2], [3, 1], [2, 1]], ids=str)
def test_ddp_trains_sparse_tables_as_dense_ones_and_fused_with_fewer_calls(machines: list[int]) -> None:
    (said,) = set(run(forked_program("sparse_ddp", "fairring"), machines))
    # Five tables and the rest's bucket; fused, the four of one width are one call.
    assert said.startswith("alike 6 3 "), said


kept: list[DistributedDataParallel] = []  # what a rank keeps from one call to the next


def _step(_rank: int) -> None:
    kept[0](torch.arange(4)).sum().backward()


def _make(rank: int) -> None:
    from fairring.sparse import fuse

    kept.append(DistributedDataParallel(nn.Embedding(9, 3, sparse=True)))
    fuse(kept[0])
    _step(rank)


def _fail(rank: int) -> None:
    if rank == 1:
        backend_of().abort()
        return
    with pytest.raises(RuntimeError, match="rank 1"):
        _step(rank)


def test_a_fused_exchange_that_fails_ends_the_backward_pass_with_its_error(strangers: Ranks) -> None:
    strangers.init()
    strangers.run(_make)
    strangers.run(_fail)


@pytest.mark.slow
def test_the_example_has_the_same_losses_with_dense_gradients_and_on_gloo(tmp_path: Path) -> None:
    example = [sys.executable, str(REPOSITORY / "examples" / "train_embeddings.py")]
    example += ["--pairs", "500", "--width", "4", "--batch", "32", "--steps", "4"]
    reports = []
    for number, words in enumerate((["--sparse"], ["--no-fuse"], ["--dense"], ["--backend", "gloo"])):
        file = tmp_path / f"{number}.json"
        said = run([*example, *words, "--json", str(file)], [1, 1])
        assert "s of it for the exchange" in said[0]
        reports.append(json.loads(file.read_text()))
    fused, apart, dense, stock = reports
    assert [one["gradients"] for one in reports] == ["sparse, fused", "sparse", "dense", "sparse, fused"]
    assert fused["losses"][-1] < fused["losses"][0]
    for other in (apart, stock):
        assert other["losses"] == fused["losses"]  # of two ranks: whoever adds, there is one sum
    assert dense["losses"] == pytest.approx(fused["losses"], rel=1e-6)  # a rank adds its own rows in another order
