"""Outer steps (DiLoCo): each site trains by itself, and the sites average how far they have come every so many steps.

    diloco = DiLoCo(model, partial(torch.optim.SGD, lr=0.8, momentum=0.7, nesterov=True), steps=30, format="int8")
    replica = DistributedDataParallel(model, process_group=diloco.inner_group)
    for batch in batches:
        ...  # backward through replica, optimizer.step()
        diloco.step()

Between two outer steps nothing crosses between sites. docs/algorithms.md has the arithmetic, docs/tutorials/sites.md a
program that goes on when a site dies.
"""

from __future__ import annotations

import copy
import io
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from fairring import _core, members
from fairring.between_sites import all_reduce, zeros_of_floats
from fairring.top_k import TopK

Place = tuple[int, list[str]]  # of a rank in its group; the sites of all its ranks
FORMATS = (None, "bf16", "int8", "int4", "top-k")


class DiLoCo:
    """The global parameters, which are those of the last outer step and the same bits on all ranks.

    They are kept in fp32 on the CPU, as is their sum while it is under way. Buffers stay the site's own, also of a site
    that joins. Frozen parameters never cross and must be equal. After an error of the group only restart() goes on.
    """

    def __init__(
        self,
        model: nn.Module,
        outer_optimizer: Callable[[list[nn.Parameter]], torch.optim.Optimizer],
        steps: int,
        *,
        fragments: int = 1,
        delay: int = 0,
        format: str | None = None,  # noqa: A002
        group: dist.ProcessGroup | None = None,
        inner_group: dist.ProcessGroup | None = None,
    ) -> None:
        """All ranks of the group call it, or restart(), at once. It sets the parameters to those of rank 0, or joins.

        model: its Parameter objects must stay, so replace or freeze any before. outer_optimizer: makes the optimizer of
        the global parameters, which are flat: one that treats each element by itself. steps: inner steps between two
        outer steps of a parameter. fragments: parts of the model that cross one after the other. delay: inner steps
        that go on while a fragment crosses, less than steps. format: None (fp32), "bf16", "int8", "int4" or "top-k",
        with what is not sent kept for the next time. group: one of Fairring's, of all sites; the default group if none
        is given. inner_group: of all ranks of this site, by FAIRRING_SITE; made if none is given.
        """
        self._model, self._parameters = model, _trained(model)
        _check(self._parameters, steps, fragments, delay, format)
        self._fragments = [_Fragment(part) for part in _in_parts(self._parameters, fragments)]
        self._sent_at = [(number + 1) * steps // len(self._fragments) for number in range(len(self._fragments))]
        self._period, self._delay, self._format = steps, delay, format
        self.outer_optimizer = outer_optimizer([fragment.whole for fragment in self._fragments])
        self._made_group: Any = None  # by this object, for the site
        self._steps = 0  # inner steps since the last start
        self.outer_steps = 0
        """Fragments that have made an outer step since the training began."""
        self.restart(group, inner_group)

    def restart(self, group: dist.ProcessGroup | None = None, inner_group: dist.ProcessGroup | None = None) -> None:
        """Begins a round anew, from the global state of a member that has made the most outer steps.

        For a group that has other members than before, or has failed and been reconfigured: all of its members call it,
        newcomers by making a DiLoCo. Inner steps since a parameter's last outer step are lost, as are rounding errors.
        A wrapper around the model, such as DDP, must be made anew if there is a new inner_group. Groups as in DiLoCo().
        Raises ValueError if the group is not Fairring's, a member has other settings or frozen parameters, or an inner
        group is not of all ranks of its site; and the group's errors, after which it is called again.
        """
        self.group: Any = dist.group.WORLD if group is None else group
        self._rounds_end = "restart() was not called, or did not end"
        if group is not None and inner_group is None and group not in dist.distributed_c10d._world.pg_map:
            raise ValueError("give inner_group: this group is not one of torch's, so none can be made from its ranks")
        members.mark(self.group)  # or ValueError
        self._take_over(self._furthest_member(inner_group))
        if inner_group is not self._made_group and self._made_group in dist.distributed_c10d._world.pg_map:
            dist.destroy_process_group(self._made_group)
        if inner_group is None:
            self._made_group = inner_group = self._group_of_site()
        self.inner_group: Any = inner_group
        if self._format and len(set(self._sites)) == 1:
            warnings.warn(
                f"all ranks of the group are of the site {self._sites[0]!r}, so format={self._format!r} saves nothing: "
                f"if there are others, set FAIRRING_SITE to the name of each rank's site",
                stacklevel=2,
            )
        self._steps = 0
        for fragment in self._fragments:
            fragment.begin(self._format, self._place())
        self._rounds_end = ""

    @torch.no_grad()
    def step(self) -> None:
        """Counts an inner step, and makes the outer steps that are due. Call it after each step of the inner optimizer.

        Raises the group's error, and RuntimeError at the next call without restart().
        """
        with self._in_round():
            self._steps += 1
            for fragment, sent_at in zip(self._fragments, self._sent_at, strict=True):
                since = (self._steps - sent_at) % self._period
                if since == 0:
                    self._expect_the_same_parameters()
                    fragment.send(self.group)
                if since == self._delay:
                    self._apply(fragment)

    @torch.no_grad()
    def finish(self) -> None:
        """Ends the training, or a part of it: the parameters become the global ones, the same on all ranks.

        All ranks call it after the same step. It waits for what is crossing, and makes the outer steps of that. Inner
        steps since a parameter was last sent are lost. The next step begins a round. Raises as step() does.
        """
        with self._in_round():
            for fragment in self._fragments:
                self._apply(fragment)
                fragment.become_global()
            self._steps = 0

    @contextmanager
    def _in_round(self) -> Iterator[None]:
        if self._rounds_end:
            raise RuntimeError(f"the round of outer steps ended with an error: {self._rounds_end}; call restart()")
        try:
            yield
        except Exception as error:
            self._rounds_end = str(error)
            raise

    def _expect_the_same_parameters(self) -> None:
        now = _trained(self._model)
        if len(now) != len(self._parameters) or any(a is not b for a, b in zip(now, self._parameters, strict=True)):
            raise RuntimeError(
                "the model has other Parameter objects that need gradients than when DiLoCo was made, so their steps "
                "would be lost: make DiLoCo after what replaces, freezes or unfreezes parameters"
            )

    def _apply(self, fragment: _Fragment) -> None:
        """The outer step of the fragment, if it is crossing."""
        mean = self._arrived(fragment)
        if mean is None:
            return
        for other in self._fragments:
            other.whole.grad = None
        fragment.whole.grad = mean
        self.outer_optimizer.step()
        fragment.whole.grad = None
        fragment.follow()
        self.outer_steps += 1

    def _arrived(self, fragment: _Fragment) -> Tensor | None:
        """The mean of all sites' differences; None if the fragment is not crossing.

        It raises on all ranks of the site or on none. A rank that went on alone would wait for the others for ever.
        """
        if fragment.crossing is None:
            return None
        mean: Tensor | None = None
        failure: Exception | None = None
        try:
            mean = fragment.crossing()
        except Exception as error:
            failure = error
        went_well = torch.tensor([failure is None], dtype=torch.int32, device=self._parameters[0].device)
        if self.inner_group.size() > 1:
            dist.all_reduce(went_well, dist.ReduceOp.MIN, group=self.inner_group)
        if failure is not None:
            raise failure
        if not went_well.item():
            raise dist.DistBackendError(
                f"rank {self.group.rank()}: an outer step failed on another rank of the site "
                f"{self._sites[self.group.rank()]!r}, so it counts on none of them; reconfigure the group there too"
            )
        return mean

    def state_dict(self) -> dict[str, Any]:
        """The state of this rank, for a checkpoint between two steps beside the model's and the inner optimizer's.

        Each rank saves its own, and all ranks of a site do so after the same step. Waits for the fragments that are
        crossing, and saves them as they arrived, to be used when they are due: a run that goes on from here has the
        bits of one that did not stop. The state is a copy.
        """
        fragments = [fragment.state(self._arrived(fragment)) for fragment in self._fragments]
        of_all = copy.deepcopy(self._global())
        return {"place": self._place(), "steps": self._steps, "fragments": fragments, "global": of_all}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from what this rank saved; in a group of other ranks with no rounding errors.

        All ranks of the group call it, with states of the same step. It sets the parameters that need gradients; the
        program loads the rest of the model, before or after, and the inner optimizer. Raises ValueError if the settings
        are others, or the states of different steps; and the group's errors.
        """
        of_all = copy.deepcopy(state["global"])
        of_ranks = self._gather(of_all["outer_steps"], state["steps"], _checksum(of_all["whole"]))
        _expect_equal(
            list(zip(*of_ranks, strict=True)),
            f"load the state of another step than rank 0; rank {self.group.rank()} loads that of inner step "
            f"{state['steps']} of a round, after {of_all['outer_steps']} outer steps; load on all ranks what "
            f"they saved at the same time",
        )
        for fragment in self._fragments:
            self._arrived(fragment)  # until then the engine writes its rounding errors
        self._load_global(of_all)
        self._steps = state["steps"]
        for fragment, saved in zip(self._fragments, state["fragments"], strict=True):
            fragment.load(saved, keep_residual=state["place"] == self._place())

    def _place(self) -> Place:
        return self.group.rank(), self._sites

    def _group_of_site(self) -> Any:
        ranks, own = dist.get_process_group_ranks(self.group), self._sites[self.group.rank()]
        of_site = [rank for rank, site in zip(ranks, self._sites, strict=True) if site == own]
        return dist.new_group(of_site, use_local_synchronization=True)

    def _settings(self) -> str:
        sizes = [fragment.whole.numel() for fragment in self._fragments]
        return f"steps={self._period}, delay={self._delay}, format={self._format}, elements of fragments {sizes}"

    def _global(self) -> dict[str, Any]:
        return {
            "settings": self._settings(),
            "outer_steps": self.outer_steps,
            "whole": [fragment.whole.detach() for fragment in self._fragments],
            "optimizer": self.outer_optimizer.state_dict(),
        }

    def _load_global(self, state: dict[str, Any]) -> None:
        if state["settings"] != self._settings():
            raise ValueError(f"the state is of a DiLoCo with {state['settings']}; this one has {self._settings()}")
        self.outer_optimizer.load_state_dict(state["optimizer"])  # or an error, before anything has changed
        for fragment, whole in zip(self._fragments, state["whole"], strict=True):
            fragment.whole.detach().copy_(whole)
        self.outer_steps = state["outer_steps"]

    def _furthest_member(self, inner_group: Any) -> int:
        frozen = [parameter for parameter in self._model.parameters() if not parameter.requires_grad]
        self._sites = _sites_of(self.group)
        size = 0 if inner_group is None else inner_group.size()
        failure: Exception | None = None
        try:
            count = 1 if inner_group is None else self._sites_in(inner_group)
        except Exception as error:
            count, failure = 0, error  # raised once all ranks know: those of other sites would wait for ever
        said = self._gather(self.outer_steps, zlib.crc32(self._settings().encode()), _checksum(frozen), size, count)
        steps, settings, frozens, sizes, counts = said
        if failure is not None:
            raise failure
        self._expect_inner_groups(counts)
        _expect_equal(
            settings,
            f"have a DiLoCo with other settings than rank 0, or another model; rank {self.group.rank()} has "
            f"{self._settings()}; give all the same",
        )
        _expect_equal(
            frozens,
            "have other values of frozen parameters than rank 0, and these never cross; load the same on all ranks",
        )
        for rank, (site, inner, count) in enumerate(zip(self._sites, sizes, counts, strict=True)):
            if count > 1 or inner not in (0, self._sites.count(site)):
                of_sites = f", of {count} sites" if count > 1 else ""
                raise ValueError(
                    f"inner_group of rank {rank} has {inner} ranks{of_sites}, and its site {site!r} has "
                    f"{self._sites.count(site)}: set FAIRRING_SITE to the name of each rank's site"
                )
        return steps.index(max(steps))

    def _expect_inner_groups(self, of_sites: Sequence[int]) -> None:
        failed = [rank for rank, count in enumerate(of_sites) if count == 0]
        if failed:
            raise dist.DistBackendError(
                f"rank {self.group.rank()}: the inner group of the ranks {failed} has failed, at the site "
                f"{self._sites[failed[0]]!r}, so no round begins: give another inner_group there, and call restart() "
                f"on all ranks"
            )

    def _sites_in(self, inner_group: Any) -> int:
        """How many sites its ranks are of. It may be another backend's."""
        site = self._sites[self.group.rank()]
        own = torch.tensor([zlib.crc32(site.encode())], device=self._parameters[0].device)
        of_ranks = [torch.empty_like(own) for _ in range(inner_group.size())]
        dist.all_gather(of_ranks, own, group=inner_group)
        return len({int(one) for one in of_ranks})

    def _gather(self, *numbers: int) -> list[list[int]]:
        """Those of all ranks: for each number a list by rank."""
        of_all = torch.empty(self.group.size(), len(numbers), dtype=torch.int64, device="cpu")
        dist.all_gather_into_tensor(of_all, torch.tensor(numbers, device="cpu"), group=self.group)
        by_number: list[list[int]] = of_all.T.tolist()
        return by_number

    def _take_over(self, source: int) -> None:
        """Loads what that member has, once it is here as a whole: the member may die while it sends."""
        is_source = self.group.rank() == source
        file = io.BytesIO()
        if is_source:
            torch.save(self._global(), file)
        size = torch.tensor([file.tell()], device="cpu")
        dist.broadcast(size, group=self.group, group_src=source)
        if not is_source:
            file.write(bytes(int(size)))
        dist.broadcast(torch.frombuffer(file.getbuffer(), dtype=torch.uint8), group=self.group, group_src=source)
        if not is_source:
            file.seek(0)
            self._load_global(torch.load(file, map_location="cpu", weights_only=True))


class _Fragment:
    """A part of the model's parameters, as one flat tensor."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        self._parameters = parameters
        self.whole = nn.Parameter(self._local())

    def begin(self, format: str | None, place: Place) -> None:  # noqa: A002
        """The parameters become the global ones."""
        self._format = format
        self._top_k = TopK(self.whole.numel(), *place) if format == "top-k" else None
        self._residual = self._top_k.residual if self._top_k else zeros_of_floats(self.whole.numel() if format else 0)
        self._sent: Tensor | None = None  # the parameters as they were then
        self.crossing: Callable[[], Tensor] | None = None  # waits for the mean of all sites' differences
        self.become_global()

    def become_global(self) -> None:
        self._set(self.whole)

    def send(self, group: Any) -> None:
        """An error is raised when the fragment is due, as on ranks that have learned of it only then."""
        self._sent = self._local()
        try:
            self.crossing = self._start(self.whole - self._sent, group)
        except Exception as error:
            failure = error

            def failed() -> Tensor:
                raise failure

            self.crossing = failed

    def _start(self, difference: Tensor, group: Any) -> Callable[[], Tensor]:
        if self._top_k:
            return self._top_k.mean(difference, group)
        if self._format:
            work: Any = all_reduce(difference, self._format, self._residual, dist.ReduceOp.AVG, group)
        else:
            work = dist.all_reduce(difference, dist.ReduceOp.AVG, group, async_op=True)

        def arrived() -> Tensor:
            work.wait()
            return difference

        return arrived

    def follow(self) -> None:
        """The parameters go on from the new global ones, with the inner steps that were made since they were sent."""
        assert self._sent is not None
        self._set(self._local().sub_(self._sent).add_(self.whole))
        self._sent = self.crossing = None

    def state(self, mean: Tensor | None) -> dict[str, Tensor | None]:
        """mean: what has arrived, if it is crossing."""
        local, mean = self._local(), None if mean is None else mean.clone()
        return {"local": local, "residual": self._residual.clone(), "sent": self._sent, "mean": mean}

    def load(self, state: dict[str, Any], keep_residual: bool) -> None:
        """Nothing may be crossing any more."""
        self._residual.zero_()
        if keep_residual:
            self._residual.copy_(state["residual"])
        self._sent, mean = state["sent"], state["mean"]
        self.crossing = None if mean is None else mean.clone
        self._set(state["local"])

    def _local(self) -> Tensor:
        """A copy in fp32 on the CPU."""
        parts = [parameter.detach().flatten().to("cpu", torch.float32) for parameter in self._parameters]
        return torch.cat(parts)

    @torch.no_grad()
    def _set(self, values: Tensor) -> None:
        parts = values.split([parameter.numel() for parameter in self._parameters])
        for parameter, part in zip(self._parameters, parts, strict=True):
            parameter.copy_(part.view_as(parameter))


def _trained(model: nn.Module) -> list[nn.Parameter]:
    parameters = dict(model.named_parameters())
    for name, parameter in parameters.items():
        if "_fsdp_wrapped_module" in name or getattr(parameter, "_fsdp_flattened", False):
            raise ValueError(f"DiLoCo takes whole parameters; shards, as of FSDP, it can't take: {name}")
    return [parameter for parameter in parameters.values() if parameter.requires_grad]


def _checksum(tensors: Sequence[Tensor]) -> int:
    result = 0
    for tensor in tensors:
        values = tensor.detach().cpu().contiguous().flatten()
        result = zlib.crc32(values.view(torch.uint8).numpy().data, result)
    return result


def _expect_equal(of_ranks: Sequence[object], text: str) -> None:
    others = [rank for rank, each in enumerate(of_ranks) if each != of_ranks[0]]
    if others:
        raise ValueError(f"ranks {others} of the group {text}")


def _check(parameters: list[nn.Parameter], steps: int, fragments: int, delay: int, format_: str | None) -> None:
    if not 1 <= fragments <= min(steps, len(parameters)):
        raise ValueError(
            f"{fragments} fragments of {len(parameters)} parameters that need gradients, every {steps} steps: give one "
            f"fragment or more, and no more than parameters or steps"
        )
    if not 0 <= delay < steps:
        raise ValueError(f"a delay of {delay} steps: a fragment has to arrive before it is sent again, {steps} later")
    if format_ not in FORMATS:
        raise ValueError(f"{format_!r} is no format of outer steps: give one of {FORMATS}")
    for parameter in parameters:
        if not parameter.is_floating_point() or type(parameter.data) is not Tensor:
            raise ValueError(
                f"DiLoCo takes whole parameters of floats, not {type(parameter.data).__name__} of {parameter.dtype}; "
                f"shards, as of FSDP, it can't take"
            )


def _in_parts(parameters: list[nn.Parameter], count: int) -> list[list[nn.Parameter]]:
    """In their order, with about as many elements in each part, and none empty."""
    ends = list(accumulate(parameter.numel() for parameter in parameters))
    parts: list[list[nn.Parameter]] = [[] for _ in range(count)]
    number = 0
    for place, parameter in enumerate(parameters):
        if parts[number] and number + 1 < count:
            middle = ends[place] - parameter.numel() / 2
            is_last_chance = len(parameters) - place == count - number - 1
            if is_last_chance or middle * count >= ends[-1] * (number + 1):
                number += 1
        parts[number].append(parameter)
    return parts


def _sites_of(group: Any) -> list[str]:
    """By rank."""
    seen = _core.inspect(group._get_backend(torch.device("cpu")))
    return [rank["site"] for rank in seen["ranks"]] if seen else [""]
