"""Processes forked from one that has imported torch, so that one more costs a fraction of a second."""

from __future__ import annotations

import functools
import multiprocessing
import os
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext
from unittest import mock

_PRELOADED = [
    "torch",
    "fairring",
    "pytest",
    "torch.distributed.checkpoint",
    "torch.distributed.fsdp",
    "torch.distributed.pipelining",
    "torch.distributed.rpc",
    "torch._inductor.compile_fx",
]
VARIABLES = {"GLOO_SOCKET_IFNAME": "lo", "TP_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
# Both ends of a store's connection look the other's name up, and the store's server does nothing else meanwhile: where
# the name server is slow that takes five seconds for each connection.
RESOLVER = {"RES_OPTIONS": "timeout:1 attempts:1"}


@functools.cache
def context() -> ForkServerContext:
    """The processes have their variables from the start: libraries read them once.

    Returns once all is imported: on a busy machine that takes minutes, which no test has to reckon with.
    """
    os.environ.update(RESOLVER)
    forked = multiprocessing.get_context("forkserver")
    forked.set_forkserver_preload(_PRELOADED)
    with mock.patch.dict(os.environ, VARIABLES):
        forkserver.ensure_running()
    first = forked.Process(target=int, daemon=True)
    first.start()
    first.join()
    return forked
