"""Outer steps across sites: the arithmetic, bits, bytes, checkpoints, a site that dies and comes back, refusals."""

from __future__ import annotations

import json
import sys
from functools import partial
from types import ModuleType
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from forked_programs import forked_program
from lab_programs import run
from ranks import Ranks, backend_of, on_ranks
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.nn.parallel import DistributedDataParallel

from fairring import members
from fairring.outer import DiLoCo
from fairring.top_k import CHOSEN, ROW, add, encode

HAS_RECONFIGURE = hasattr(dist.distributed_c10d, "_reconfigure")
OUTER = partial(torch.optim.SGD, lr=0.7, momentum=0.9, nesterov=True)


def test_outer_steps_are_those_of_the_definition_with_the_same_bits_on_all_ranks_and_after_a_checkpoint() -> None:
    said = [json.loads(text) for text in run(forked_program("outer_steps"), [2, 1], sites="2", network="none")]
    sent = {name: sum(rank["runs"][name]["sent"] for rank in said) for name in said[0]["runs"]}
    for name, apart in (("fp32", 1e-5), ("delayed", 1e-5), ("int8", 1e-2), ("int4", 0.1)):
        assert max(rank["runs"][name]["apart"] for rank in said) < apart, name
    for name, least in (("delayed", 0.99), ("int8", 3.8), ("int4", 7.2), ("top-k", 40)):
        assert sent["fp32"] / sent[name] > least, name
    for name in sent:
        assert len({rank["runs"][name]["bits"] for rank in said}) == 1, name
        assert all(rank["runs"][name]["finished"] for rank in said), name
    assert [rank["site"] for rank in said] == [[0, 1], [0, 1], [2]]
    assert [rank["resumed"] for rank in said] == [[[True, True]] * 2] * 3


def test_top_k_sends_the_largest_of_each_row_and_keeps_the_rest() -> None:
    rows = torch.randn(3, ROW, generator=torch.Generator().manual_seed(0))
    rows[1], rows[2] = 0, 1e-44
    before, residual = torch.full_like(rows, 0.25), torch.full_like(rows, 0.25)
    words = encode(rows, residual)
    assert rows.nbytes / words.nbytes > 120
    received = torch.zeros_like(rows)
    add(words, 1.0, received)
    torch.testing.assert_close(received + residual, rows + before)
    largest = (rows + before)[0].abs().topk(CHOSEN).indices.sort().values
    sent = received[0].nonzero().flatten()
    assert set(sent.tolist()) <= set(largest.tolist())
    assert (received - rows - before)[0, largest].abs().max() <= (rows + before).abs().max() / 14 * 1.001


@pytest.mark.parametrize("wrong", [float("inf"), float("nan")])
def test_top_k_shows_what_is_not_finite_and_does_not_keep_it(wrong: float) -> None:
    rows, residual = torch.ones(2, ROW), torch.zeros(2, ROW)
    rows[0, 7] = wrong
    received = torch.zeros_like(rows)
    add(encode(rows, residual), 1.0, received)
    assert received.isnan().sum(1).tolist() == [CHOSEN, 0]
    assert residual.isfinite().all()


def test_top_k_reads_any_words_within_their_row() -> None:
    every = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(-1, CHOSEN)
    scales = torch.randint(-(2**15), 2**15, (len(every), 2), generator=torch.Generator().manual_seed(0))
    add(torch.cat([every, scales.to(torch.int16)], dim=1), 1.0, torch.zeros(len(every), ROW))


# --- sites that die and come back: each is a job of its own, and the group between them is reconfigured

STEPS = 4
kept: dict[str, Any] = {}  # what a rank keeps from one call to the next


def _site(number: int) -> list[dict[str, str]]:
    """Of two ranks of one machine."""
    return [{"FAIRRING_SITE": f"site{number}", "FAIRRING_MACHINE": f"machine{number}"}] * 2


def _begin(rank: int, port: int) -> str:
    """The site's own job, and this rank's handle in the group of all sites."""
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    dist.init_process_group("fairring", store=store, rank=rank, world_size=2)
    torch.manual_seed(rank)
    kept["model"] = nn.Linear(16, 4)
    kept["group"] = members.new_group()
    return members.handle(kept["group"])


def _meet(_rank: int, number: int, handles: list[str]) -> None:
    members.reconfigure(number, handles, kept["group"]).wait()
    if "diloco" in kept:
        kept["diloco"].restart(kept["group"], dist.group.WORLD)
        return
    kept["diloco"] = DiLoCo(
        kept["model"], OUTER, STEPS, delay=1, format="int8", group=kept["group"], inner_group=dist.group.WORLD
    )
    kept["replica"] = DistributedDataParallel(kept["model"], process_group=kept["diloco"].inner_group)
    kept["optimizer"] = torch.optim.SGD(kept["model"].parameters(), lr=0.1)


def _train(_rank: int, steps: int) -> tuple[int, bytes]:
    """How many outer steps the parameters have made, and what they are then."""
    for _ in range(steps):
        kept["optimizer"].zero_grad()
        kept["replica"](torch.randn(8, 16)).square().mean().backward()
        kept["optimizer"].step()
        kept["diloco"].step()
    (whole,) = kept["diloco"].state_dict()["global"]["whole"]
    return kept["diloco"].outer_steps, whole.numpy().tobytes()


def _expect_an_error(rank: int) -> None:
    with pytest.raises(dist.DistBackendError, match=r"site1|machine1|rank [23]|another rank of the site 'site0'"):
        _train(rank, STEPS + 1)
    with pytest.raises(RuntimeError, match=r"round of outer steps ended with an error: .*; call restart\(\)"):
        kept["diloco"].step()


def _fail_on_rank_0(rank: int) -> str:
    """The error of an outer step whose crossing fails there alone."""
    for _ in range(STEPS):
        kept["diloco"].step()
    fragment = kept["diloco"]._fragments[0]
    arrived = fragment.crossing

    def failed() -> None:
        arrived()
        raise dist.DistBackendError("the crossing failed")

    if rank == 0:
        fragment.crossing = failed
    with pytest.raises(dist.DistBackendError) as raised:
        kept["diloco"].step()
    return str(raised.value)


def _of_all(*sites: Ranks, number: int, steps: int) -> tuple[int, bytes]:
    """Makes them members, and has them train; returns what all of them have then."""
    handles = [handle for ranks in sites for handle in ranks.run(_handle)]
    for function, arguments in ((_meet, (number, handles)), (_train, (steps,))):
        started = [(ranks, ranks.start(function, *arguments)) for ranks in sites]
        said = [one for ranks, those in started for one in ranks.finish(those)]
    assert len(set(said)) == 1
    result: tuple[int, bytes] = said[0]
    return result


def _handle(_rank: int) -> str:
    return members.handle(kept["group"])


@pytest.mark.skipif(not HAS_RECONFIGURE, reason="PyTorch before 2.15 has no reconfigure")
def test_a_site_that_is_killed_in_a_round_is_left_out_of_its_repetition_and_comes_back() -> None:
    with Ranks(2, of_rank=_site(0)) as here:
        here.run(_begin, here.store.port)
        with Ranks(2, of_rank=_site(1)) as there:
            there.run(_begin, there.store.port)
            outer_steps, _ = _of_all(here, there, number=1, steps=2 * STEPS + 1)
            assert outer_steps == 2
            there.kill_one(0)
            there.kill_one(1)
            here.run(_expect_an_error)
        outer_steps, alone = _of_all(here, number=2, steps=STEPS + 1)
        assert outer_steps == 3, "the round was repeated"
        _of_all(here, number=3, steps=0)
        assert here.run(_fail_on_rank_0) == [
            "the crossing failed",
            "rank 1: an outer step failed on another rank of the site 'site0', so it counts on none of them; "
            "reconfigure the group there too",
        ]
        with Ranks(2, of_rank=_site(1)) as back:
            back.run(_begin, back.store.port)
            outer_steps, together = _of_all(here, back, number=4, steps=0)
            assert (outer_steps, together) == (3, alone), "it begins with what the others have"
            outer_steps, together = _of_all(here, back, number=5, steps=STEPS + 1)
            assert outer_steps == 4
            assert together != alone


@pytest.fixture(scope="module")
def two() -> Any:
    with Ranks(2, of_rank=[*_site(0)[:1], *_site(1)[:1]]) as ranks:
        ranks.init()
        yield ranks


def _expect_others_settings(rank: int) -> None:
    with pytest.raises(ValueError, match=r"ranks \[1\] of the group have a DiLoCo with other settings than rank 0"):
        DiLoCo(nn.Linear(2, 2), OUTER, 4 + rank)


def _refuse(_rank: int) -> None:
    model = nn.Linear(2, 2)
    for settings, text in (
        ({"steps": 4, "fragments": 3}, "3 fragments of 2 parameters that need gradients, every 4 steps"),
        ({"steps": 0}, "1 fragments of 2 parameters that need gradients, every 0 steps"),
        ({"steps": 4, "delay": 4}, "a delay of 4 steps: a fragment has to arrive before it is sent again, 4 later"),
        ({"steps": 4, "format": "int2"}, "'int2' is no format of outer steps"),
    ):
        with pytest.raises(ValueError, match=text):
            DiLoCo(model, OUTER, **settings)
    with pytest.raises(ValueError, match="floats"):
        DiLoCo(nn.Linear(2, 2).to(torch.complex64), OUTER, 4)
    with pytest.raises(ValueError, match=r"shards, as of FSDP, it can't take: _fsdp_wrapped_module\.weight"):
        DiLoCo(nn.ModuleDict({"_fsdp_wrapped_module": nn.Linear(2, 2)}), OUTER, 4)
    saved = DiLoCo(nn.Linear(2, 2), OUTER, 4).state_dict()
    with pytest.raises(ValueError, match=r"the state is of a DiLoCo with steps=4, .*; this one has steps=5, "):
        DiLoCo(nn.Linear(2, 2), OUTER, 5).load_state_dict(saved)


def _expect_other_frozen_parameters(rank: int) -> None:
    model = nn.Linear(2, 2)
    nn.init.constant_(model.bias, rank).requires_grad_(False)
    with pytest.raises(ValueError, match=r"ranks \[1\] .* have other values of frozen parameters than rank 0"):
        DiLoCo(model, OUTER, 4)


def _expect_sites_of_other_sizes(_rank: int) -> None:
    text = "inner_group of rank 0 has 2 ranks, of 2 sites, and its site 'site0' has 1: set FAIRRING_SITE"
    with pytest.raises(ValueError, match=text):
        DiLoCo(nn.Linear(2, 2), OUTER, 4, format="top-k", inner_group=dist.group.WORLD)


def _expect_ranks_of_other_sites(rank: int) -> None:
    """As many as their sites have, but of both."""
    mixed: Any = dist.new_group([0, 2] if rank % 2 == 0 else [1, 3], use_local_synchronization=True)
    with pytest.raises(ValueError, match="inner_group of rank 0 has 2 ranks, of 2 sites, and its site 'site0' has 2"):
        DiLoCo(nn.Linear(2, 2), OUTER, 4, inner_group=mixed)


def test_an_inner_group_across_sites_is_refused() -> None:
    with Ranks(4, of_rank=[*_site(0), *_site(1)]) as ranks:
        ranks.init()
        ranks.run(_expect_ranks_of_other_sites)


def _expect_a_failed_inner_group(rank: int) -> None:
    """That of site0; both of its ranks know, and the other site only hears of it."""
    inner: Any = dist.new_group([0, 1] if rank < 2 else [2], use_local_synchronization=True)
    if rank < 2:
        backend_of(inner).abort()
    elsewhere = r"rank 2: the inner group of the ranks \[0, 1\] has failed, at the site 'site0', so no round begins"
    with pytest.raises(dist.DistBackendError, match="abort" if rank < 2 else elsewhere):
        DiLoCo(nn.Linear(2, 2), OUTER, 4, inner_group=inner)


def test_an_inner_group_that_has_failed_is_an_error_at_all_sites() -> None:
    with Ranks(3, of_rank=[*_site(0), *_site(1)[:1]]) as ranks:
        ranks.init()
        ranks.run(_expect_a_failed_inner_group)


def _other_defaults(_rank: int, form: str) -> list[bytes]:
    """The parameters, as trained with each default."""
    trained = []
    for dtype, device in ((torch.float32, "cpu"), (torch.float64, "cpu"), (torch.float32, "meta")):
        torch.manual_seed(0)
        model = nn.Linear(64, 64)
        torch.set_default_dtype(dtype)
        try:
            with torch.device(device):
                diloco = DiLoCo(model, OUTER, 1, format=form)
                for _ in range(3):
                    with torch.no_grad():
                        model.weight.mul_(0.9)
                    diloco.step()
                diloco.load_state_dict(diloco.state_dict())
        finally:
            torch.set_default_dtype(torch.float32)
        trained.append(model.weight.detach().numpy().tobytes())
    return trained


@pytest.mark.parametrize("form", ["int8", "top-k"])
def test_the_programs_default_dtype_and_device_do_not_matter(two: Ranks, form: str) -> None:
    assert len({trained for said in two.run(_other_defaults, form) for trained in said}) == 1


@on_ranks("two")
def test_models_that_fsdp_has_sharded_are_refused() -> None:
    """FSDP1 hides its flat parameters with use_orig_params, and in a module that it has wrapped."""
    sharded = FullyShardedDataParallel(nn.Linear(64, 64), use_orig_params=True, device_id=torch.device("cpu"))
    for model in (sharded, sharded.module, nn.Sequential(sharded)):
        with pytest.raises(ValueError, match=r"shards, as of FSDP, it can't take: .*weight"):
            DiLoCo(model, OUTER, 4)


def test_what_can_not_train_together_is_refused(two: Ranks) -> None:
    for expect in (_refuse, _expect_others_settings, _expect_other_frozen_parameters, _expect_sites_of_other_sizes):
        two.run(expect)


@on_ranks("two")
def test_a_format_with_one_site_warns(rank: int) -> None:
    alone: Any = dist.new_group([rank], use_local_synchronization=True)
    with pytest.warns(UserWarning, match="format='int8' saves nothing: if there are others, set FAIRRING_SITE"):
        DiLoCo(nn.Linear(2, 2), OUTER, 4, format="int8", group=alone, inner_group=alone)


@on_ranks("two")
def test_states_of_different_steps_are_refused(rank: int) -> None:
    diloco = DiLoCo(nn.Linear(2, 2), OUTER, 1)
    saved = [diloco.state_dict()]
    diloco.step()
    saved.append(diloco.state_dict())
    with pytest.raises(ValueError, match=r"ranks \[1\] of the group load the state of another step than rank 0; "):
        diloco.load_state_dict(saved[rank])
    assert diloco.outer_steps == 1
    diloco.load_state_dict(saved[0])
    assert diloco.outer_steps == 0


@on_ranks("two")
def test_a_model_whose_parameters_were_replaced_is_refused() -> None:
    model = nn.Linear(2, 2)
    diloco = DiLoCo(model, OUTER, 1)
    model.weight = nn.Parameter(model.weight.detach())
    with pytest.raises(RuntimeError, match="other Parameter objects that need gradients than when DiLoCo was made"):
        diloco.step()


@on_ranks("two")
def test_a_restart_ends_the_inner_group_that_was_made_before() -> None:
    diloco = DiLoCo(nn.Linear(2, 2), OUTER, 4)
    groups = len(dist.distributed_c10d._world.pg_map)
    for _ in range(2):
        before = diloco.inner_group
        diloco.restart()
        assert diloco.inner_group is not before
    assert len(dist.distributed_c10d._world.pg_map) == groups


@pytest.mark.skipif(not HAS_RECONFIGURE, reason="PyTorch before 2.15 has no reconfigure")
@on_ranks("two")
def test_a_group_that_torch_does_not_know_needs_an_inner_group() -> None:
    with pytest.raises(ValueError, match="give inner_group: this group is not one of torch's"):
        DiLoCo(nn.Linear(2, 2), OUTER, 4, group=members.new_group())


@on_ranks("two")
def test_a_group_beside_needs_a_torch_that_reconfigures() -> None:
    with (
        mock.patch.dict(sys.modules, {"torch._C._distributed_c10d": ModuleType("without reconfigure")}),
        pytest.raises(ImportError, match=r"groups that are reconfigured need torch 2\.15, and this is torch "),
    ):
        members.new_group()


@on_ranks("two")
def test_another_backends_group_is_refused() -> None:
    gloo: Any = dist.new_group(backend="gloo")
    with pytest.raises(ValueError, match="not one of Fairring's"):
        DiLoCo(nn.Linear(2, 2), OUTER, 4, group=gloo)
