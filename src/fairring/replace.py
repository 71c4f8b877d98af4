"""FAIRRING_REPLACE=gloo: groups that a program asks of "gloo" are Fairring's.

Torch (2.15 on) makes a group of Gloo's by a function that is registered under its name, and registers its own only if
there is none yet. So ours is registered first; torch's names and classes stay. As with Gloo, no NCCL serves such a
group: tensors of devices go through the host.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from fairring.config import HOST, Config, asked_to_replace

GLOO = "gloo"


def install() -> None:
    """Takes Gloo's place if the variable is set, whose value is checked when a group is made; a second call is free.

    Raises ImportError if this torch makes groups of Gloo's without asking for a registered function.
    """
    if not asked_to_replace() or is_installed():
        return
    import torch
    from torch.distributed import distributed_c10d as c10d

    if not hasattr(c10d, "_create_gloo_process_group"):
        raise ImportError(
            f"FAIRRING_REPLACE={asked_to_replace()} needs torch 2.15, and this is torch {torch.__version__}, where "
            'no other backend can take the name; unset it, and ask for the backend "fairring"'
        )
    backend = c10d.Backend
    # Not of Gloo's type: torch's C++ takes a group of that type for an object of Gloo's, and reads its memory.
    backend.register_backend(GLOO, _create, extended_api=True, devices=list(backend.backend_capability[GLOO]))
    # Torch has its flight recorder watch only groups of backends that do not write into it themselves, as Gloo does.
    c10d._FR_SELF_RECORDING_BACKENDS.discard(GLOO)


def is_installed() -> bool:
    """Whether Fairring makes this process's groups of "gloo"."""
    import torch.distributed as dist

    plugin = getattr(dist.Backend, "_plugins", {}).get(GLOO.upper())
    return plugin is not None and plugin.creator_fn is _create


def _create(options: Any, _backend_options: object) -> Any:
    """The creator that torch calls; options for Gloo have nothing that Fairring reads, and torch's Gloo takes none."""
    import torch.distributed as dist

    from fairring import _core
    from fairring.backend import make

    # Programs ask their group for devices of Gloo's, to give them to a Gloo that they make themselves.
    for name in ("create_device", "create_default_device"):
        setattr(_core.FairringBackend, name, staticmethod(getattr(dist.ProcessGroupGloo, name)))
    return make(options, dataclasses.replace(Config.from_environment(), cuda=HOST), stands_for_gloo=True)
