"""The features that are known not to work on a backend, and why; all others have to.

On fairring they are expected failures, strictly: one that works has to leave this list.
"""

from __future__ import annotations

_DTYPES = "Gloo has no such dtypes"
_COALESCING = "the backend has no coalescing"
_GPUS_ALONE = "torch has it on GPUs alone"
_TORCHS_OWN = "torch's hook fails on every backend"

GLOO = {
    "reductions.all_reduce_of_rare_integers": _DTYPES,
    "reductions.all_reduce_average_of_integers": "Gloo averages floats alone",
    "reductions.all_reduce_premultiplied": "Gloo has no such operation",
    "reductions.all_reduce_of_a_strided_view": "Gloo writes into the gaps",
    "reductions.reduce_average": "Gloo averages floats alone",
    "reductions.reduce_of_rare_dtypes": _DTYPES,
    "exchanges.broadcast_of_rare_dtypes": _DTYPES,
    "exchanges.all_gather_of_rare_dtypes": _DTYPES,
    "exchanges.all_gather_of_unequal_tensors": "Gloo wants equal sizes",
    "exchanges.all_gather_stacked": "Gloo wants concatenated shapes",
    "exchanges.gather_into_one_tensor": "Gloo has no such call",
    "exchanges.reduce_scatter_stacked": "Gloo wants concatenated shapes",
    "exchanges.reduce_scatter_average_of_integers": "Gloo averages floats alone",
    "exchanges.all_to_all_of_unequal_tensors": "Gloo wants equal sizes",
    "coalesced.coalesced_all_reduces": _COALESCING,
    "coalesced.coalesced_all_gathers": _COALESCING,
    "coalesced.coalesced_reduce_scatters": _COALESCING,
    "coalesced.coalesced_messages": _COALESCING,
    "works.futures_of_reduce_scatters": "Gloo's works of these calls have no future",
    "works.future_result": "Gloo's works have none",
    "lifecycles.again_on_the_same_store": "Gloo finds the last group's addresses",
    "lifecycles.shrunk": "Gloo can't shrink",
    "lifecycles.training_with_debug_detail": "torch's DDP ends in a segmentation fault there",
    "observers.flight_recorder": "the recorder does not see calls of Gloo end",
    "data_parallel.synchronous_batch_norm": _GPUS_ALONE,
    "gradient_hooks.batched_power_sgd": _TORCHS_OWN,
    "gradient_hooks.zero_step_in_the_hook": "torch refuses it on gloo",
    "tensor_parallel.context_parallelism": _GPUS_ALONE,
}

FAIRRING = {
    "data_parallel.synchronous_batch_norm": _GPUS_ALONE,
    "gradient_hooks.batched_power_sgd": _TORCHS_OWN,
    "tensor_parallel.context_parallelism": _GPUS_ALONE,
}

OF = {"gloo": GLOO, "fairring": FAIRRING}


def reasons(key: str) -> str:
    """In words, of both backends."""
    found = {backend: listed[key] for backend, listed in OF.items() if key in listed}
    if len(set(found.values())) == 1:
        return next(iter(found.values()))
    return "; ".join(f"{backend}: {reason}" for backend, reason in found.items())
