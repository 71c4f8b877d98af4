"""The report as plain text that a bug report can hold: no colours, no tables wider than their words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fairring.config import GIB

Rows = Iterator[tuple[str, str]]


def lines(report: Mapping[str, Any]) -> Iterator[str]:
    for title, rows in (
        ("versions", _versions(report)),
        ("machine", _machine(report["machine"], report["module"])),
        ("network", _network(report["network"])),
        ("variables", iter(report["variables"].items())),
    ):
        yield title
        listed = list(rows) or [("none", "")]
        width = max(len(name) for name, _ in listed)
        yield from (f"  {name:{width}}  {value}".rstrip() for name, value in listed)
    yield "findings"
    for finding in report["findings"]:
        yield f"  {finding['level']}  {finding['what']}"
        if finding["advice"]:
            yield f"        -> {finding['advice']}"
    count = {level: sum(one["level"] == level for one in report["findings"]) for level in ("PASS", "WARN", "FAIL")}
    yield f"{count['PASS']} passed, {count['WARN']} to look at, {count['FAIL']} failed"


def _versions(report: Mapping[str, Any]) -> Rows:
    versions, torch = report["versions"], report["torch"]
    built = f"built for torch {versions['built_for_torch']}" if versions["built_for_torch"] else "no module built here"
    yield "fairring", f"{versions['fairring'] or 'not installed as a package'} ({built})"
    if torch["error"]:
        yield "torch", f"{versions['torch'] or 'not installed'} (can't be imported)"
    else:
        yield "torch", f"{torch['version']} (CUDA {torch['cuda'] or 'none'}, NCCL {torch['nccl'] or 'none'})"
        yield "GPUs", ", ".join(torch["gpus"]) or "none"
    yield "python", f"{versions['python']} ({versions['executable']})"
    yield "system", f"{versions['system'] or 'unknown'}, {versions['kernel']}, {versions['libc'] or 'unknown libc'}"


def _machine(machine: Mapping[str, Any], module: Mapping[str, Any]) -> Rows:
    yield "processor", f"{machine['processor']} ({' '.join(machine['features']) or 'no features known'})"
    yield "kernels", module.get("instruction_set", "unknown: the module can't be imported")
    quota = f"; the cgroup allows {machine['core_quota']:g}" if machine["core_quota"] else ""
    yield "cores", f"{machine['cores']}, {machine['usable_cores']} usable{quota}"
    limit = machine["memory_limit"]
    used = f", of which {_gib(machine['memory_used_of_limit'])} are used"
    cgroup = f"; the cgroup allows {_gib(limit)}{used}" if limit is not None else ""
    yield "memory", f"{_gib(machine['memory'])}, {_gib(machine['available_memory'])} available{cgroup}"
    files = machine["shared_memory_files"]
    yield "/dev/shm", f"{_gib(files['size'])}, {_gib(files['free'])} free" if files else "not there"
    for name, (soft, hard) in machine["limits"].items():
        yield name.replace("_", " "), f"{_number(soft)} (at most {_number(hard)})"


def _network(network: Mapping[str, Any]) -> Rows:
    yield "host name", f"{network['hostname']} = {_addresses(network['hostname_stands_for'])}"
    if network["master"]:
        yield "MASTER_ADDR", f"{network['master']} = {_addresses(network['master_stands_for'])}"
    yield "outward", network["outward"] or "no default route"
    for one in network["interfaces"]:
        speed = f"{one['speed']} Mbit/s" if one["speed"] else "unknown rate"
        yield one["name"], f"{one['address'] or 'no address'}, {one['state']}, {speed}, MTU {one['mtu']}"
    yield "RDMA devices", ", ".join(network["rdma_devices"]) or "none"
    yield "TCP by", network["congestion_control"] or "unknown"


def _addresses(found: Mapping[str, Any]) -> str:
    return ", ".join(found["addresses"]) or f"nothing ({found['error']})"


def _gib(size: int | None) -> str:
    return "?" if size is None else f"{size / GIB:.1f} GiB"


def _number(value: int | None) -> str:
    return "unlimited" if value is None else str(value)
