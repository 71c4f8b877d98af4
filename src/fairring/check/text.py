"""The report as plain text that a bug report can hold: no colours, no figure left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from fairring.check.findings import port_named
from fairring.config import GIB, MIB
from fairring.table import Table, show

Rows = Iterator[tuple[str, str]]


def print_report(report: Mapping[str, Any]) -> None:
    """Rank 0's machine; then, if there are several ranks, these and their links; then the findings."""
    print("\n".join(_here(report["ranks"][0])))
    if report["plan"]:
        show(_ranks(report), "ranks")
        show(_levels(report), "levels")
        print(_plan(report))
    print("\nfindings")
    for finding in report["findings"]:
        print(f"  {finding['level']}  {finding['what']}")
        if finding["advice"]:
            print(f"        -> {finding['advice']}")
    count = Counter(one["level"] for one in report["findings"])
    passed = "" if report["plan"] else f"{count['PASS']} passed, "
    print(f"{passed}{count['WARN']} to look at, {count['FAIL']} failed")


def _here(here: Mapping[str, Any]) -> Iterator[str]:
    for title, rows in (
        ("versions", _versions(here)),
        ("machine", _machine(here["machine"], here["module"])),
        ("network", _network(here["network"], here["module"])),
        ("variables", iter(here["variables"].items())),
    ):
        yield title
        listed = list(rows) or [("none", "")]
        width = max(len(name) for name, _ in listed)
        yield from (f"  {name:{width}}  {value}".rstrip() for name, value in listed)


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


def _network(network: Mapping[str, Any], module: Mapping[str, Any]) -> Rows:
    yield "host name", f"{network['hostname']} = {_addresses(network['hostname_stands_for'])}"
    if network["master"]:
        yield "MASTER_ADDR", f"{network['master']} = {_addresses(network['master_stands_for'])}"
    yield "outward", network["outward"] or "no default route"
    if network["reached"]:
        yield "reached at", f"{', '.join(network['reached']['addresses'])}, by {network['reached']['by']}"
    for one in network["interfaces"]:
        speed = f"{one['speed']} Mbit/s" if one["speed"] else "unknown rate"
        yield one["name"], f"{one['address'] or 'no address'}, {one['state']}, {speed}, MTU {one['mtu']}"
    ports = module.get("rdma", ())
    known = {one["name"] for one in ports}
    described = [f"{port_named(one, ports)} ({one['link_layer']}, {one['rate']}, {one['interface']})" for one in ports]
    yield "RDMA devices", ", ".join([*described, *(n for n in network["rdma_devices"] if n not in known)]) or "none"
    yield "TCP by", network["congestion_control"] or "unknown"


def _addresses(found: Mapping[str, Any]) -> str:
    return ", ".join(found["addresses"]) or f"nothing ({found['error']})"


def _gib(size: int | None) -> str:
    return "?" if size is None else f"{size / GIB:.1f} GiB"


def _number(value: int | None) -> str:
    return "unlimited" if value is None else str(value)


def _ranks(report: Mapping[str, Any]) -> Table:
    heads = ("rank", "site", "machine", "address", "interface", "Mbit/s", "MTU", "cores", "GPUs", "by")
    table = Table(heads, left=heads)
    numbers: dict[str, int] = {}
    for rank in report["ranks"]:
        reached = rank["network"]["reached"]
        table.add(
            str(rank["rank"]),
            rank["site"] or "-",
            f"{numbers.setdefault(rank['on'], len(numbers))} ({rank['network']['hostname']})",
            "\n".join(reached["addresses"]),
            *("\n".join(str(one[key] or "?") for one in reached["interfaces"]) for key in ("name", "speed", "mtu")),
            str(rank["machine"]["usable_cores"]),
            "\n".join(f"{count} x {name}" for name, count in Counter(rank["torch"]["gpus"]).items()) or "none",
            reached["by"],
        )
    return table


def _levels(report: Mapping[str, Any]) -> Table:
    heads = ("level", "ranks", "by", "4 B", "16 MiB", "predicted", "a rank's bandwidth each way")
    table = Table(heads, left=heads)
    for level in report["levels"]:
        table.add(
            level["level"],
            str(level["ranks"]),
            str(report["transport"][level["level"]]),
            f"{level['latency_seconds'] * 1e6:.0f} µs",
            f"{level['seconds'] * 1e3:.1f} ms",
            f"{level['predicted_seconds'] * 1e3:.1f} ms",
            f"{level['bytes_per_second'] / 1e6:.0f} MB/s",
        )
    return table


def _plan(report: Mapping[str, Any]) -> str:
    plan, settings = report["plan"], report["settings"]
    return (
        f"25 MiB: {plan['steps']} in {plan['slices']} slice(s) of {plan['slice_bytes'] / MIB:.4g} MiB, "
        f"{plan['in_flight']} in flight in {settings['total_memory'] / MIB:.4g} MiB of staging, "
        f"predicted {plan['seconds'] * 1e3:.1f} ms ({settings['cost_rows']} cost rows), "
        f"measured {plan['measured_seconds'] * 1e3:.1f} ms"
    )
