"""The user's settings: the only reader of the environment. docs/configuration.md's table is checked against it.

Every value is checked here, at init, on every rank; the C++ module gets plain values. All ranks of a job must agree on
the values that decide how they talk to each other (`Config.agreement`). That is checked when a group is first used.
"""

from __future__ import annotations

import difflib
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple
from urllib.parse import urlsplit

from fairring import by_level, cost_rows
from fairring.cost_rows import CostRows

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
UNITS = {"": 1, "B": 1, "KIB": KIB, "MIB": MIB, "GIB": GIB, "KB": 10**3, "MB": 10**6, "GB": 10**9}
PREFIX = "FAIRRING_"
LEAST_SECONDS, MOST_SECONDS = 0.1, 86_400.0
SECRET_BYTES = 16  # the least that a secret file may hold
MOST_LANES = 16
MOST_HELPERS = 8
TENSORPIPE_TRANSPORTS = ("uv", "shm", "ibv")


class Cuda(NamedTuple):
    """The calls on CUDA tensors that Fairring carries out."""

    use: str = "auto"  # or "on", "off", "host"
    least_bytes: int | None = None  # of a call; None: what goes with the use

    def __str__(self) -> str:
        return self.use if self.least_bytes is None else f"{self.use}:{self.least_bytes}"


BY_TRIAL = Cuda()
HOST = Cuda("host")  # all of them, on copies in the host's memory: NCCL has no part in them


@dataclass(frozen=True)
class CudaHost:
    """The variables that say, before there is a group, whether calls on CUDA tensors can be Fairring's in this process.

    Most are CUDA's, NCCL's and torchrun's own. Nothing is refused here: the group's Config does that.
    """

    use: str = BY_TRIAL.use
    has_site: bool = False
    is_one_machine: bool = False  # by torchrun's variables, or those of Slurm and Open MPI
    is_rank: bool = False  # by a launcher's variables
    replaces_gloo: bool = False  # FAIRRING_REPLACE
    queues: str = ""  # CUDA_DEVICE_MAX_CONNECTIONS; empty: CUDA's own number
    mps_pipes: Path = Path("/tmp/nvidia-mps")  # CUDA_MPS_PIPE_DIRECTORY; CUDA's default
    net_plugin: str = ""  # NCCL_NET_PLUGIN
    library_path: str = ""  # LD_LIBRARY_PATH
    blocking: tuple[str, ...] = ()  # those of BLOCKING that are on

    RANKS: ClassVar = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID")
    BLOCKING: ClassVar = ("CUDA_LAUNCH_BLOCKING", "NCCL_LAUNCH_ORDER_IMPLICIT")

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> CudaHost:
        variables = os.environ if environment is None else environment

        def text(name: str) -> str:
            return variables.get(name, "").strip()

        return cls(
            use=text("FAIRRING_CUDA").partition(":")[0] or BY_TRIAL.use,
            has_site=bool(text("FAIRRING_SITE")),
            is_one_machine=next((one == all_of_it for one, all_of_it in cls._sizes(text) if all_of_it), False),
            is_rank=any(text(name) for name in cls.RANKS),
            replaces_gloo=bool(text("FAIRRING_REPLACE")),
            queues=text("CUDA_DEVICE_MAX_CONNECTIONS"),
            mps_pipes=Path(text("CUDA_MPS_PIPE_DIRECTORY") or cls.mps_pipes),
            net_plugin=text("NCCL_NET_PLUGIN"),
            library_path=text("LD_LIBRARY_PATH"),
            blocking=tuple(name for name in cls.BLOCKING if text(name) not in ("", "0")),
        )

    @staticmethod
    def _sizes(text: Callable[[str], str]) -> Iterator[tuple[str, str]]:
        """By the innermost launcher first: what one machine has, and the job. Each replica of torchft's is a job."""
        if not text("TORCHFT_LIGHTHOUSE"):
            yield text("LOCAL_WORLD_SIZE"), text("WORLD_SIZE")
            yield text("OMPI_COMM_WORLD_LOCAL_SIZE"), text("OMPI_COMM_WORLD_SIZE")
        yield "1", text("SLURM_JOB_NUM_NODES")


class ConfigError(ValueError):
    """A setting that can't be used; the text names the variable, its value, the range and the remedy."""


@dataclass(frozen=True)
class Variable:
    """One row of the table of variables. default: as text for people."""

    name: str
    default: str
    meaning: str


VARIABLES = (
    Variable("FAIRRING_TOTAL_MEMORY", "50 MiB", "Staging memory of a rank and group: bytes, or a number with a unit."),
    Variable("FAIRRING_SLICE_SIZE", "25 MiB", "Largest slice, the unit that travels through the levels."),
    Variable(
        "FAIRRING_TRANSPORT",
        "auto",
        "Between machines: tcp, verbs, tensorpipe[:uv|shm|ibv], or auto: verbs where all ranks can, else tcp; "
        "between sites auto is tcp. rail=...,site=... names them apart.",
    ),
    Variable(
        "FAIRRING_LANES",
        "1",
        "Connections that carry data between two ranks, over tcp and for each interface: 1 to 16, or rail=1,site=4.",
    ),
    Variable(
        "FAIRRING_HELPERS",
        "by the cores",
        "Threads that help with long copies, sums and sends: 0 to 8. By default 1 if each rank of the machine has four "
        "cores, 2 if it has eight, else none.",
    ),
    Variable(
        "FAIRRING_CUDA",
        "auto",
        "Calls on CUDA tensors. auto: all-reduces and their halves between machines are Fairring's where a trial shows "
        "it faster than NCCL, all others NCCL's; off: all are NCCL's; on: all that Fairring can carry out are its own. "
        "auto:SIZE, on:SIZE: calls of that size and above. host: all go through the host's memory, without NCCL.",
    ),
    Variable(
        "FAIRRING_ON_ERROR",
        "auto",
        "exit: a group's first error ends the process; raise: it does not; auto: only after calls on CUDA tensors.",
    ),
    Variable(
        "FAIRRING_REPLACE",
        "none",
        'gloo: groups that a program asks of "gloo" are Fairring\'s; set it before torch is imported.',
    ),
    Variable("FAIRRING_MACHINE", "from the system", "Name of this rank's machine: ranks with equal names share one."),
    Variable("FAIRRING_SITE", "one for all", "Name of the site (data centre) that this rank's machine stands in."),
    Variable("FAIRRING_SITE_IFNAME", "as TP_SOCKET_IFNAME", "Network interfaces towards other sites, as a list."),
    Variable("FAIRRING_SECRET_FILE", "drawn by the job", "File with the secret that ranks prove to each other."),
    Variable("FAIRRING_TLS", "off", "on: connections between machines go over TLS 1.3, which needs the next three."),
    Variable("FAIRRING_TLS_CERTIFICATE", "none", "File with this rank's certificate in PEM, for both sides of TLS."),
    Variable("FAIRRING_TLS_KEY", "none", "File with its private key in PEM, without a password."),
    Variable("FAIRRING_TLS_CA", "none", "File with the certificates, in PEM, of those that signed all ranks'."),
    Variable(
        "FAIRRING_HEARTBEAT_TIMEOUT", "60 s", "How long a rank may give no sign of life before it counts as dead."
    ),
    Variable("FAIRRING_COST_ROWS", "built in", "File of `fairring check --save`: what the planner reckons with."),
    Variable(
        "FAIRRING_TRACE", "none", "Directory that gets a trace of each rank, for `fairring why` and `fairring trace`."
    ),
    Variable("FAIRRING_PORTS", "any", "Ports to listen on, as low-high, for firewalls."),
    Variable("TP_SOCKET_IFNAME", "the way to the store", "Network interfaces, as a list with commas."),
)


def asked_to_replace() -> str:
    """FAIRRING_REPLACE as it stands, which counts before there is a group that its value is checked for."""
    return os.environ.get("FAIRRING_REPLACE", "")


def _refuse_unknown(variables: Mapping[str, str]) -> None:
    known = [variable.name for variable in VARIABLES if variable.name.startswith(PREFIX)]
    for name in sorted(variables):
        if not name.startswith(PREFIX) or name in known:
            continue
        stems = [known_name.removeprefix(PREFIX) for known_name in known]  # what they share says nothing
        close = difflib.get_close_matches(name.removeprefix(PREFIX), stems, n=1)
        hint = f"did you mean {PREFIX}{close[0]}?" if close else f"there are: {', '.join(known)}"
        raise ConfigError(f"unknown variable {name}={variables[name]!r}; {hint} (unset it if it is not for this job)")


def size(name: str, text: str) -> int:
    match = re.fullmatch(r"(\d+)(?:\.(\d+))?\s*([A-Za-z]*)", text.strip())
    unit = UNITS.get(match[3].upper(), 0) if match else 0
    fraction = match[2] or "" if match else ""
    size = int((match[1] if match else "") + fraction or "0") * unit // int(10 ** len(fraction))
    if not 1 <= size < 1 << 63:
        raise ConfigError(
            f"{name}={text!r} is not a size; give bytes from 1 to 2^63-1, or a number with a unit: "
            "KiB, MiB, GiB (powers of 1024) or KB, MB, GB (powers of 1000), as in 50MiB"
        )
    return size


def _seconds(name: str, text: str) -> float:
    match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)\s*s?", text.strip())
    seconds = float(match[1]) if match else 0.0
    if not LEAST_SECONDS <= seconds <= MOST_SECONDS:
        raise ConfigError(
            f"{name}={text!r} is not a time; give seconds from {LEAST_SECONDS:g} to {MOST_SECONDS:g}, as in 60 or 2.5s"
        )
    return seconds


def _by_level(
    name: str, text: str, default: by_level.Value, parse: Callable[[str, str], by_level.Value]
) -> tuple[by_level.Value, by_level.Value]:
    try:
        return by_level.parse(text, default, partial(parse, name))
    except by_level.LevelError as error:
        raise ConfigError(f"{name}={text!r}: {error}") from error


def _transports(name: str, text: str) -> tuple[str, str]:
    return _by_level(name, text, "auto", _transport)


def _lanes(name: str, text: str) -> tuple[int, int]:
    return _by_level(name, text, 1, _lanes_of_a_level)


def _transport(name: str, text: str) -> str:
    kind, _, detail = text.strip().partition(":")
    if kind in ("auto", "tcp", "verbs") and not detail and ":" not in text:
        return kind
    if kind == "tensorpipe" and ":" not in text:
        return "uv"
    if kind == "tensorpipe" and detail in TENSORPIPE_TRANSPORTS:
        return detail
    raise ConfigError(
        f"{name}={text!r} is not a transport; give auto, tcp, verbs, tensorpipe, tensorpipe:uv, :shm or :ibv"
    )


def _helpers(name: str, text: str) -> int:
    if not re.fullmatch(r"[0-9]", text.strip()) or int(text) > MOST_HELPERS:
        raise ConfigError(f"{name}={text!r} is not a number of threads; give 0 to {MOST_HELPERS}")
    return int(text)


def _lanes_of_a_level(name: str, text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,2}", text.strip()) or not 1 <= int(text) <= MOST_LANES:
        raise ConfigError(f"{name}={text!r} is not a number of connections; give 1 to {MOST_LANES}")
    return int(text)


def _name(name: str, text: str) -> str:
    if len(text) > 200 or not text.isprintable():
        raise ConfigError(f"{name}={text!r} is no name; give 1 to 200 printable characters")
    return text


def _secret_file(name: str, text: str) -> Path:
    path = Path(text)
    advice = f"give a file that holds the job's secret, {SECRET_BYTES} bytes or more"
    try:
        size = len(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{name}={text!r} can't be read ({error}); {advice}") from error
    if size < SECRET_BYTES:
        raise ConfigError(f"{name}={text!r} holds only {size} bytes; {advice}")
    return path


def _directory(name: str, text: str) -> Path:
    path = Path(text).absolute()
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise ConfigError(f"{name}={text!r} is no directory to write to ({error}); name one, or unset it") from error
    return path


def _switch(name: str, text: str) -> bool:
    if text.strip() not in ("on", "off"):
        raise ConfigError(f"{name}={text!r} is neither on nor off; give one of them")
    return text.strip() == "on"


def _cuda(name: str, text: str) -> Cuda:
    use, colon, least = text.strip().partition(":")
    if use not in ("on", "off", "auto", "host") or (colon and use in ("off", "host")):
        raise ConfigError(
            f"{name}={text!r} is neither on, off, auto nor host; give one of them, or on:SIZE or auto:SIZE"
        )
    return Cuda(use, size(name, least) if colon else None)


def _either(*values: str) -> Callable[[str, str], str]:
    def parse(name: str, text: str) -> str:
        if text.strip() not in values:
            raise ConfigError(f"{name}={text!r} is neither {', '.join(values[:-1])} nor {values[-1]}; give one of them")
        return text.strip()

    return parse


def _replaced(name: str, text: str) -> str:
    if text.strip() != "gloo":
        raise ConfigError(f"{name}={text!r} is no backend that Fairring can stand in for; give gloo, or unset it")
    return "gloo"


def _pem_file(name: str, text: str) -> Path:
    path = Path(text)
    try:
        path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{name}={text!r} can't be read ({error}); give a file in PEM") from error
    return path


def _cost_rows(name: str, text: str) -> CostRows:
    try:
        return cost_rows.read(Path(text))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"{name}={text!r} holds no cost rows ({error}); give a file that `fairring check --save` wrote"
        ) from error


def _ports(name: str, text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d{1,5})-(\d{1,5})", text.strip())
    low, high = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= low <= high <= 65535:
        raise ConfigError(f"{name}={text!r} is not a range of ports; give low-high within 1-65535, as in 29600-29700")
    return low, high


def _port(name: str, text: str) -> int:
    if not text.isdigit() or not 0 <= int(text) <= 65535:
        raise ConfigError(f"{name}={text!r} is not a port; give a number from 0 to 65535")
    return int(text)


def _count(_name: str, text: str) -> int:
    return int(text) if re.fullmatch(r"[0-9]{1,6}", text) else 0


def _host_and_port(name: str, text: str) -> tuple[str, int] | None:
    try:
        parts = urlsplit(text if "://" in text else f"//{text}")
        return (parts.hostname, parts.port or 0) if parts.hostname else None
    except ValueError as error:
        raise ConfigError(f"{name}={text!r} is no address ({error}); give one as in http://10.0.0.1:29510") from error


def _names(_name: str, text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _text(_name: str, text: str) -> str:
    return text


def _of(variable: str, parse: Callable[[str, str], object]) -> dict[str, Any]:
    """What a field is read from."""
    return {"variable": variable, "parse": parse}


@dataclass(frozen=True)
class Config:
    """The settings of one rank. Sizes in bytes, times in seconds."""

    total_memory: int = field(default=50 * MIB, metadata=_of("FAIRRING_TOTAL_MEMORY", size))
    slice_size: int = field(default=25 * MIB, metadata=_of("FAIRRING_SLICE_SIZE", size))
    heartbeat_timeout: float = field(default=60.0, metadata=_of("FAIRRING_HEARTBEAT_TIMEOUT", _seconds))
    # For the rails, and between sites. Also "tcp" and "verbs" (our own), or TensorPipe's "uv", "shm", "ibv".
    transports: tuple[str, str] = field(default=("auto", "auto"), metadata=_of("FAIRRING_TRANSPORT", _transports))
    lanes: tuple[int, int] = field(default=(1, 1), metadata=_of("FAIRRING_LANES", _lanes))  # likewise
    helpers: int | None = field(default=None, metadata=_of("FAIRRING_HELPERS", _helpers))  # None: by the cores
    cost_rows: CostRows | None = field(default=None, metadata=_of("FAIRRING_COST_ROWS", _cost_rows))
    machine: str | None = field(default=None, metadata=_of("FAIRRING_MACHINE", _name))
    site: str = field(default="", metadata=_of("FAIRRING_SITE", _name))
    # None: the same as `interfaces`.
    site_interfaces: tuple[str, ...] = field(default=(), metadata=_of("FAIRRING_SITE_IFNAME", _names))
    cuda: Cuda = field(default=BY_TRIAL, metadata=_of("FAIRRING_CUDA", _cuda))
    # Or "raise", "exit".
    on_error: str = field(default="auto", metadata=_of("FAIRRING_ON_ERROR", _either("auto", "raise", "exit")))
    replace: str = field(default="", metadata=_of("FAIRRING_REPLACE", _replaced))  # or "gloo"
    secret_file: Path | None = field(default=None, metadata=_of("FAIRRING_SECRET_FILE", _secret_file))
    tls: bool = field(default=False, metadata=_of("FAIRRING_TLS", _switch))
    tls_certificate: Path | None = field(default=None, metadata=_of("FAIRRING_TLS_CERTIFICATE", _pem_file))
    tls_key: Path | None = field(default=None, metadata=_of("FAIRRING_TLS_KEY", _pem_file))
    tls_authority: Path | None = field(default=None, metadata=_of("FAIRRING_TLS_CA", _pem_file))
    trace: Path | None = field(default=None, metadata=_of("FAIRRING_TRACE", _directory))  # a directory
    ports: tuple[int, int] = field(default=(0, 0), metadata=_of("FAIRRING_PORTS", _ports))  # low and high; zeros: any
    interfaces: tuple[str, ...] = field(default=(), metadata=_of("TP_SOCKET_IFNAME", _names))
    # Gloo's own, taken where `interfaces` are not given.
    gloo_interfaces: tuple[str, ...] = field(default=(), metadata=_of("GLOO_SOCKET_IFNAME", _names))
    # NCCL's own, likewise, as interfaces.py reads it.
    nccl_interfaces: str = field(default="", metadata=_of("NCCL_SOCKET_IFNAME", _text))
    # NCCL's own, the name by which it tells hosts apart.
    nccl_host: str | None = field(default=None, metadata=_of("NCCL_HOSTID", _name))
    # MASTER_ADDR and MASTER_PORT: torch's own, if the store does not tell.
    master_address: str | None = field(default=None, metadata=_of("MASTER_ADDR", _text))
    master_port: int = field(default=0, metadata=_of("MASTER_PORT", _port))
    # The launcher's own: the job's ranks on this machine. 0: it does not say.
    ranks_here: int = field(default=0, metadata=_of("LOCAL_WORLD_SIZE", _count))
    # Torchft's own, host and port; replicas share it.
    lighthouse: tuple[str, int] | None = field(default=None, metadata=_of("TORCHFT_LIGHTHOUSE", _host_and_port))

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Config:
        """Reads and checks all variables. Raises ConfigError at the first one that is unknown or can't be used."""
        variables = os.environ if environment is None else environment
        _refuse_unknown(variables)
        values: dict[str, object] = {}
        for one in fields(cls):
            name, parse = one.metadata["variable"], one.metadata["parse"]
            if text := variables.get(name, ""):
                values[one.name] = parse(name, text)
        config = cls(**values)  # type: ignore[arg-type]
        config._check_tls()
        config._check_rdma()
        return config

    def _check_rdma(self) -> None:
        """A rank publishes one RDMA device, and the two take theirs by different rules."""
        if {"verbs", "ibv"} <= set(self.transports) or self.transports == ("auto", "ibv"):
            raise ConfigError(
                "FAIRRING_TRANSPORT asks for verbs, by name or auto, on one level and for tensorpipe:ibv on the other; "
                "a group can't have both: give one of them for both levels, or tcp for one"
            )

    def _check_tls(self) -> None:
        files = {
            "FAIRRING_TLS_CERTIFICATE": self.tls_certificate,
            "FAIRRING_TLS_KEY": self.tls_key,
            "FAIRRING_TLS_CA": self.tls_authority,
        }
        for name, path in files.items():
            if path and not self.tls:
                raise ConfigError(
                    f"{name}={str(path)!r} without FAIRRING_TLS=on, which has no effect; unset or set both"
                )
            if self.tls and not path:
                raise ConfigError(f"FAIRRING_TLS=on needs {name}; give it a file in PEM")
        if self.tls and any(transport in (*TENSORPIPE_TRANSPORTS, "verbs") for transport in self.transports):
            raise ConfigError(
                "FAIRRING_TLS=on can't be had with FAIRRING_TRANSPORT=tensorpipe or verbs, which have no TLS; "
                "give tcp or auto"
            )

    def agreement(self, version: str) -> str:
        """The settings that all ranks of a group must share, as text to compare and to read."""
        transports = [f"tensorpipe:{t}" if t in TENSORPIPE_TRANSPORTS else t for t in self.transports]
        rows = self.cost_rows.digest() if self.cost_rows else "built-in"
        return (
            f"FAIRRING_TOTAL_MEMORY={self.total_memory} FAIRRING_SLICE_SIZE={self.slice_size} "
            f"FAIRRING_TRANSPORT={by_level.describe(transports)} FAIRRING_LANES={by_level.describe(self.lanes)} "
            f"FAIRRING_TLS={'on' if self.tls else 'off'} FAIRRING_CUDA={self.cuda} "
            f"FAIRRING_HEARTBEAT_TIMEOUT={self.heartbeat_timeout:g} FAIRRING_COST_ROWS={rows} version={version}"
        )
