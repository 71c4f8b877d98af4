"""Who has the calls on CUDA tensors, as far as one machine can tell: a group's trial decides what is left open."""

from __future__ import annotations

from dataclasses import replace

from fairring import hardware_queues, nccls
from fairring.config import CudaHost


def obstacle(host: CudaHost, why_no_cuda: str) -> str:
    """The reason for which this host leaves them to NCCL without a trial; empty: there is none.

    why_no_cuda: the reason of the module's build, as _core.why_no_cuda() has it.
    """
    return why_no_cuda or nccls.reason(host) or hardware_queues.reason(host)


def in_words(host: CudaHost, why_no_cuda: str) -> str:
    """One sentence, for `fairring check`, of a job's ranks; empty where FAIRRING_CUDA does not leave it open."""
    if host.use != "auto":
        return ""
    if reason := obstacle(hardware_queues.after_import(replace(host, is_rank=True)), why_no_cuda):
        return f"calls on CUDA tensors are NCCL's: {reason}"
    if fabric := nccls.fabric(host):
        return f"calls on CUDA tensors are NCCL's inside a site, by a faster network: {fabric}"
    return (
        "a trial decides between NCCL and Fairring at a group's first large call on CUDA tensors; fairring.why() says "
        "what came of it, and TORCH_CPP_LOG_LEVEL=INFO logs it"
    )
