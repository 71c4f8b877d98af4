"""PyTorch's own tests of process groups, as they come with torch, on four ranks; for pytest, by its name.

    PYTORCH_TESTS_BACKEND=fairring pytest tests/libraries/pytorch_distributed.py

Needs the package expecttest. `make test-pytorch` runs those of calls and groups, `make test-pytorch-ddp` those of DDP.

PYTORCH_TESTS_BACKEND names the backend: gloo or fairring. With gloo, FAIRRING_REPLACE=gloo has Fairring take its place;
each test makes sure whose its group is. Which tests there are, and what they ask of a backend, is decided as for gloo.
Only then is the name replaced. Two thirds of the tests of DDP ask for a GPU for each rank, though the backend serves
CPU tensors as well: here each rank's device is the CPU.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import re
import unittest
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode
from torch.testing._internal import common_distributed

BACKEND = os.environ["PYTORCH_TESTS_BACKEND"]
os.environ.update(BACKEND="gloo", WORLD_SIZE="4", INIT_METHOD="file://", TORCH_FR_BUFFER_SIZE="0")


def _never(*_arguments: object, **_named: object) -> Callable[[Any], Any]:
    return lambda test: test


common_distributed.skip_if_lt_x_gpu = _never
common_distributed.skip_if_no_gpu = lambda test: test
common_distributed.skip_if_small_worldsize = lambda test: test  # which asks for eight ranks

from torch.testing._internal.distributed import distributed_test as suite  # noqa: E402  reads all of this

import fairring  # noqa: E402, F401  registers the backend on torch before 2.15


class LikeGloo(str):
    """The backend's name, which the tests take for gloo's where they ask."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other) or other == "gloo"


os.environ["BACKEND"] = BACKEND
suite.BACKEND = LikeGloo(BACKEND)
suite.PROFILING_SUPPORTED_BACKENDS.append(BACKEND)
suite.SEND_RECV_PROFILING_SUPPORTED_BACKENDS.append(BACKEND)

CPU = torch.device("cpu")
WITHOUT_DEVICE = ["set_device", "synchronize", "manual_seed"]


def _is_device(value: object) -> bool:
    """Whether it names a GPU."""
    if isinstance(value, torch.device):
        return value.type == "cuda"
    return isinstance(value, str) and value.startswith("cuda")


class OnTheCpu(TorchFunctionMode):
    """Tensors that a test asks for on a rank's GPU are the CPU's."""

    def __torch_function__(self, function: Any, _types: Any, arguments: Any = (), named: Any = None) -> Any:
        named = dict(named or {})
        if function is torch.Tensor.cuda:
            return arguments[0]
        if function is torch.Tensor.to and len(arguments) > 1 and type(arguments[1]) is int:
            arguments = (arguments[0], CPU, *arguments[2:])
        arguments = tuple(CPU if _is_device(one) else one for one in arguments)
        if (device := named.get("device")) is not None and (type(device) is int or _is_device(device)):
            named["device"] = CPU
        return function(*arguments, **named)


@contextlib.contextmanager
def cpu_for_each_device() -> Iterator[None]:
    ddp = torch.nn.parallel.DistributedDataParallel
    wrap, move = ddp.__init__, torch.nn.Module.to

    def without_devices(self: Any, module: Any, **named: Any) -> None:
        wrap(self, module, **{key: value for key, value in named.items() if key not in {"device_ids", "output_device"}})

    def to_cpu(self: Any, *where: Any, **named: Any) -> Any:
        is_device = bool(where) and (type(where[0]) is int or _is_device(where[0]))
        return self if is_device else move(self, *where, **named)

    def devices_of(ranks: int, _backend: str) -> dict[int, list[int]]:
        return {rank: [rank] for rank in range(ranks)}

    with contextlib.ExitStack() as patches:
        for name in WITHOUT_DEVICE:
            patches.enter_context(mock.patch.object(torch.cuda, name))
        patches.enter_context(mock.patch.object(torch.cuda, "current_device", return_value=CPU))
        patches.enter_context(mock.patch.object(torch.nn.Module, "cuda", lambda self, *_: self))
        patches.enter_context(mock.patch.object(torch.nn.Module, "to", to_cpu))
        patches.enter_context(mock.patch.object(ddp, "__init__", without_devices))
        patches.enter_context(mock.patch.object(suite, "init_multigpu_helper", devices_of))
        patches.enter_context(OnTheCpu())
        yield


# Torch wants a GPU, or NCCL, in what they call.
NEED_A_GPU = re.compile(
    "SyncBatchNorm|sync_bn|average_parameters$|apply_optim_in_backward|native_mixed_precision|ddp_device$|ddp_inference$"
    "|logging_data_gpu$|barrier_allreduce_hang"
)


SERVER = "fairring" if os.environ.get("FAIRRING_REPLACE") else BACKEND

# DDP's logger has one name for all backends that are not torch's own.
NAME_IN_LOGS = "gloo" if SERVER == "gloo" else "custom"


class PytorchDistributed(suite.TestDistBackend, suite.DistributedTest._DistTestBase):
    def setUp(self) -> None:
        super().setUp()
        self._start_processes(multiprocessing.get_context("fork").Process)

    def test_ddp_logging_data_cpu(self) -> None:
        with mock.patch.object(suite.dist, "get_backend", return_value=NAME_IN_LOGS):
            super().test_ddp_logging_data_cpu()

    def run_test(self, test_name: str, pipe: Any) -> None:
        world: Any = suite.dist.group.WORLD
        assert world._get_backend(CPU).name() == SERVER
        super().run_test(test_name, pipe)

    @classmethod
    def _run(cls, *arguments: object, **named: object) -> None:
        gc.freeze()  # as the nursery of failures does
        suite.INIT_METHOD = os.environ["INIT_METHOD"]
        with cpu_for_each_device():
            super()._run(*arguments, **named)


for _name in dir(PytorchDistributed):
    if NEED_A_GPU.search(_name):
        setattr(PytorchDistributed, _name, unittest.skip("needs a GPU")(getattr(PytorchDistributed, _name)))
