"""How torch.distributed makes a group of Fairring's: settings and facts in, a backend of the C++ module out."""

from __future__ import annotations

import atexit
import copy
import hashlib
import importlib.metadata
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from fairring import _core, cuda_calls, errors, facts, flight_recorder, hardware_queues, interfaces, nccls
from fairring._modules import DISTRIBUTION
from fairring.config import HOST, Config, ConfigError, CudaHost
from fairring.trace.live import serve


@atexit.register
def _end_all() -> None:
    """Groups that were not destroyed end before Python does."""
    _core.end_all(failed=hasattr(sys, "last_value"))  # an uncaught exception


NCCL_DECIDES = -(2**31)  # NCCL_CONFIG_UNDEF_INT
ERROR_HANDLING = ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "NCCL_ASYNC_ERROR_HANDLING")

NcclMaker = Callable[[_core.MembershipOptions, timedelta, int, dist.Store, bool, int], Any]


def create(options: Any, pg_options: object) -> Any:
    """The creator that torch calls in init_process_group and new_group; waits for no other rank.

    options: torch's DistributedBackendOptions. pg_options: None or ProcessGroupNCCL.Options, for the NCCL that serves
    the group's CUDA tensors. Raises ConfigError for settings that can't be used, ValueError for options of others.
    """
    return make(options, Config.from_environment(), _options_for_nccl(pg_options))


def make(options: Any, config: Config, for_nccl: Any = None, stands_for_gloo: bool = False) -> Any:
    """A backend with these settings.

    for_nccl: options of the NCCL that serves CUDA tensors. stands_for_gloo: the program asked for Gloo.
    """
    errors.hand_out()
    choice = interfaces.choose(config, *_way_to_others(config, options.store))
    interfaces.warn(choice)
    site_addresses = [facts.address_of(name, "FAIRRING_SITE_IFNAME") for name in config.site_interfaces]
    membership = _core.MembershipOptions()
    membership.name = options.group_id
    membership.rank = options.group_rank
    membership.size = options.group_size
    membership.global_ranks = list(options.global_ranks_in_group) or list(range(options.group_size))
    membership.total_memory = config.total_memory
    membership.slice_size = config.slice_size
    membership.heartbeat_timeout = timedelta(seconds=config.heartbeat_timeout)
    membership.trace_directory = str(config.trace or "")
    membership.transports = ("tcp", "tcp") if config.tls else config.transports  # only TCP has TLS
    membership.lanes = config.lanes
    membership.helpers = config.helpers
    membership.ranks_here = config.ranks_here
    are_fairrings = config.cuda.use in ("on", "auto")
    membership.devices = are_fairrings
    membership.devices_on_trial = config.cuda.use == "auto"
    membership.least_on_device = config.cuda.least_bytes
    membership.ends_process = config.on_error == "exit"
    membership.stands_for_gloo = stands_for_gloo
    membership.reconfigurable = _is_reconfigurable(options)
    # As torch's NCCL does, whose calls are not waited for on the host either.
    membership.ends_process_with_device = config.on_error == "auto" and not membership.reconfigurable
    membership.cost_rows = config.cost_rows.by_level() if config.cost_rows else []
    membership.ports = config.ports
    membership.machine = config.machine or facts.machine()
    membership.site = config.site
    membership.hostname = socket.gethostname()
    membership.network = facts.network()
    membership.addresses = list(choice.addresses)
    membership.interfaces_by = choice.by
    membership.site_addresses = site_addresses
    membership.settings = config.agreement(importlib.metadata.version(DISTRIBUTION))
    if config.secret_file:
        membership.secret = hashlib.sha256(config.secret_file.read_bytes()).digest()
    if config.tls:
        _set_tls(membership, config)
    if are_fairrings:
        _describe_devices(membership, config)
        if for_nccl is not None:
            membership.nccl_limits = _limits_of(for_nccl.config)
    if config.trace:
        serve(config.trace)
    make_nccl = None  # the calls go through the host then
    if config.cuda != HOST and dist.is_nccl_available():
        make_nccl = _nccl_maker(for_nccl, outlives_errors=membership.reconfigurable)
    backend = _core.make_backend(options.store, membership, options.timeout, make_nccl)
    flight_recorder.keep_the_compiler_out(backend)
    return backend


def _is_reconfigurable(options: Any) -> bool:
    return getattr(options, "enable_reconfigure", False)  # torch 2.15 on


def _limits_of(config: Any) -> tuple[int | None, int | None, int | None, int | None, str]:
    """The limits that a program sets NCCL's communicators, for those of Fairring's own."""

    def given(name: str) -> int | None:
        value: int = getattr(config, name)
        return None if value == NCCL_DECIDES else value

    network: str = config.net_name or ""
    return given("cga_cluster_size"), given("min_ctas"), given("max_ctas"), given("traffic_class"), network


def _describe_devices(membership: _core.MembershipOptions, config: Config) -> None:
    """Asks the environment and the system only. The driver is asked at the first call on a CUDA tensor."""
    if config.cuda.use == "auto":  # which no rank can fail by: what one lacks, NCCL does for all
        host = CudaHost.from_environment()
        obstacle = cuda_calls.obstacle(host, _core.why_no_cuda()) or _obstacle_in_torch()
        membership.device_obstacle = obstacle
        if not obstacle:
            membership.device_machine = config.machine or facts.device_machine(config.nccl_host)
            membership.device_fabric = nccls.fabric(host)
        return
    membership.device_machine = config.machine or facts.device_machine(config.nccl_host)
    if _core.why_no_cuda():
        raise ConfigError(
            f"FAIRRING_CUDA=on can't be used: {_core.why_no_cuda()}; see docs/cuda.md, or unset it on all ranks"
        )
    hardware_queues.warn_of_few()


def _obstacle_in_torch() -> str:
    """The reason for which this process leaves the calls to NCCL without a trial; empty: there is none."""
    if torch.cuda.device_count() == 0:
        return "it sees no CUDA device"
    if torch.are_deterministic_algorithms_enabled():
        return (
            "torch.use_deterministic_algorithms is on, and times decide whose sums they are: set FAIRRING_CUDA to on "
            "or off"
        )
    return ""


def _set_tls(membership: _core.MembershipOptions, config: Config) -> None:
    try:
        membership.tls = (str(config.tls_certificate), str(config.tls_key), str(config.tls_authority))
    except RuntimeError as error:
        raise ConfigError(str(error)) from error


def _way_to_others(config: Config, store: dist.Store) -> tuple[str, int]:
    """Host and port of what all ranks reach; ("", 0) if it is unknown."""
    host, port = _master(store)
    if not host and config.lighthouse:  # torchft's MASTER_ADDR is for one replica's ranks only
        host, port = config.lighthouse
    if not host:
        host, port = config.master_address or "", config.master_port
    return host, port


def _master(store: dist.Store) -> tuple[str, int]:
    """The address of the store's master, if it has one: ("", 0) for a file."""
    while isinstance(store, dist.PrefixStore):
        store = store.underlying_store
    return (store.host, store.port) if isinstance(store, dist.TCPStore) else ("", 0)


def _nccl_maker(for_nccl: Any, outlives_errors: bool) -> NcclMaker:
    """The function that makes a group's NCCL for its first call on CUDA tensors, in the group's generation.

    The group is the one that is made here, or one that was split from it. outlives_errors: it may get other members
    after one has died, so its NCCL must not end the process.
    """

    def make(
        group: _core.MembershipOptions,
        timeout: timedelta,
        generation: int,
        store: dist.Store,
        is_older: bool,
        device: int,
    ) -> Any:
        """As torch makes it. None: the older NCCL is asked for, and "nccl" is no other one. device: -1: the current."""
        creator = _creator_of_nccl()
        if is_older and creator is None:
            return None
        # A group made again on the same store must not read old keys.
        prefixed = dist.PrefixStore(f"fairring/{generation}/nccl{'-legacy' if is_older else ''}/", store)
        settings = _nccl_options(timeout, for_nccl)
        settings.global_ranks_in_group = group.global_ranks
        settings.group_name = group.name
        with _errors_clean_up() if outlives_errors else nullcontext():
            if creator is None or is_older:
                return dist.ProcessGroupNCCL(prefixed, group.rank, group.size, settings)
            if device < 0 and torch.cuda.is_available():  # torch would take the one of the rank's number
                device = torch.cuda.current_device()
            settings.lazy_init = True  # the ranks meet in the first call, where no thread holds Python's lock
            return creator(_as_torch_asks(prefixed, group, timeout, device), settings)

    return make


def _creator_of_nccl() -> Callable[[Any, Any], Any] | None:
    """What torch makes "nccl" by; None: ProcessGroupNCCL, as before 2.15, and there with TORCH_DIST_USE_NCCL2=0."""
    register = getattr(dist.Backend, "_ensure_backend_registered", None)
    if register is None:
        return None
    register(dist.Backend.NCCL)
    creator: Callable[[Any, Any], Any] = dist.Backend._plugins[dist.Backend.NCCL.upper()].creator_fn
    return None if creator is distributed_c10d._create_nccl_process_group else creator


def _as_torch_asks(store: dist.Store, group: _core.MembershipOptions, timeout: timedelta, device: int) -> Any:
    """The request that torch's creators take. They ask the process group that they serve for its device."""
    asked: Any = distributed_c10d._DistributedBackendOptions()
    asked.store, asked.group_rank, asked.group_size = store, group.rank, group.size
    asked.timeout, asked.group_id, asked.global_ranks_in_group = timeout, group.name, group.global_ranks
    if device >= 0:
        asked.process_group = dist.ProcessGroup(store, group.rank, group.size)
        asked.process_group.bound_device_id = torch.device("cuda", device)
    return asked


_errors_lock = threading.Lock()


@contextmanager
def _errors_clean_up() -> Iterator[None]:
    """An NCCL that is made meanwhile breaks its calls off at an error, and does not end the process as by default.

    torch takes that from the environment alone. A choice of the user's stands.
    """
    name, clean_up_only = ERROR_HANDLING[0], "2"
    with _errors_lock:
        if any(variable in os.environ for variable in ERROR_HANDLING):
            yield
            return
        os.environ[name] = clean_up_only
        try:
            yield
        finally:
            del os.environ[name]


def _options_for_nccl(given: object) -> Any:
    """A copy, because torch gives the same options to every group that is made with them. Raises ValueError."""
    if given is None:
        return None
    if not dist.is_nccl_available() or not isinstance(given, dist.ProcessGroupNCCL.Options):
        raise ValueError(
            f"pg_options of a group of Fairring's are for NCCL, which serves its CUDA tensors: they are to be "
            f"torch.distributed.ProcessGroupNCCL.Options, not {type(given).__qualname__}; leave them out, or give these"
        )
    return copy.copy(given)


def _nccl_options(timeout: timedelta, given: Any) -> Any:
    settings = dist.ProcessGroupNCCL.Options() if given is None else copy.copy(given)
    settings._timeout = timeout
    return settings
