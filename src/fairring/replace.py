"""FAIRRING_REPLACE=gloo: groups that a program asks of "gloo" are Fairring's.

Torch (2.15 on) makes a group of Gloo's by a function that is registered under its name, and registers its own only if
there is none yet. So ours is registered first; torch's names and classes stay. Gloo itself still carries out the
calls on CUDA tensors, which it stages through the host.
"""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from fairring.config import OFF, Config, asked_to_replace

if TYPE_CHECKING:
    import torch.distributed as dist

    from fairring import _core

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
    config = Config.from_environment()
    # An error after calls on CUDA tensors ends no process, as on Gloo, whose calls are waited for on the host.
    on_error = "raise" if config.on_error == "auto" else config.on_error
    like_gloo = dataclasses.replace(config, cuda=OFF, on_error=on_error)
    make_gloo = partial(_make_gloo, config.interfaces or config.gloo_interfaces)
    return make(options, like_gloo, make_gloo, stands_for_gloo=True)


def _make_gloo(
    interfaces: tuple[str, ...],
    group: _core.MembershipOptions,
    timeout: timedelta,
    generation: int,
    store: dist.Store,
) -> Any:
    """Gloo for a group's calls on CUDA tensors. Two ranks may be the only ones that exchange such, so it connects none
    before they do.
    """
    import torch.distributed as dist

    kind: Any = dist.ProcessGroupGloo  # torch's stub lacks what it needs
    options = kind._Options()
    options._timeout = timeout
    options._devices = [kind.create_device(interface=name, lazy_init=True) for name in interfaces] or [
        kind.create_default_device(lazy_init=True)
    ]
    options._threads = 2 * len(options._devices)  # as torch has it
    prefixed = dist.PrefixStore(f"fairring/{generation}/gloo/", store)
    return kind(prefixed, group.rank, group.size, options)
