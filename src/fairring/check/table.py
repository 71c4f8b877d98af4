"""The report for people."""

from __future__ import annotations

from collections import Counter
from typing import Any

from fairring.table import Table, show


def print_report(report: dict[str, Any]) -> None:
    versions = report["ranks"][0]["versions"]
    print(", ".join(f"{name} {version}" for name, version in versions.items()))
    show(_ranks(report))
    for by, ranks in _reasons(report).items():
        print(f"interfaces of rank {', '.join(ranks)}: by {by}")
    rdma = _rdma(report)
    if len(rdma):
        show(rdma)
    else:
        print("no RDMA devices")
    if report["levels"]:
        show(_levels(report))
    plan = report["plan"]
    took = "" if plan["measured_seconds"] is None else f", measured {plan['measured_seconds'] * 1e3:.1f} ms"
    print(
        f"25 MiB: {plan['steps']} in {plan['slices']} slice(s) of {_mib(plan['slice_bytes'])}, "
        f"{plan['in_flight']} in flight in {_mib(report['settings']['total_memory'])} of staging, "
        f"predicted {plan['seconds'] * 1e3:.1f} ms ({report['settings']['cost_rows']} cost rows){took}"
    )
    for warning in report["warnings"]:
        print(f"warning: {warning}")
    if not report["warnings"]:
        print("nothing looks wrong")


def _ranks(report: dict[str, Any]) -> Table:
    heads = ("rank", "site", "machine", "address", "interface", "Mbit/s", "MTU", "cores", "GPUs", "GPUDirect")
    table = Table(heads, left=heads)
    numbers: dict[str, int] = {}
    for rank in report["ranks"]:
        machine = numbers.setdefault(rank["machine"], len(numbers))
        interfaces = rank["interfaces"]
        table.add(
            str(rank["rank"]),
            rank["site"] or "-",
            f"{machine} ({rank['hostname']})",
            "\n".join(rank["addresses"]),
            *("\n".join(str(one[key] or "?") for one in interfaces) for key in ("name", "speed", "mtu")),
            str(rank["cores"]),
            "\n".join(f"{count} x {name}" for name, count in Counter(rank["gpus"]).items()) or "none",
            "yes" if rank["gpus"] and rank["gpudirect"] else "no",
        )
    return table


def _reasons(report: dict[str, Any]) -> dict[str, list[str]]:
    """The ranks whose interfaces were chosen for the same reason."""
    ranks: dict[str, list[str]] = {}
    for rank in report["ranks"]:
        ranks.setdefault(rank["interfaces_by"], []).append(str(rank["rank"]))
    return ranks


def _rdma(report: dict[str, Any]) -> Table:
    heads = ("machine", "RDMA device", "link", "rate", "interface", "usable")
    table = Table(heads, keys=2, left=heads)
    seen: set[str] = set()
    for rank in report["ranks"]:
        if rank["machine"] in seen:
            continue
        seen.add(rank["machine"])
        for device in rank["rdma"]:
            link = f"{device['link_layer']}, {device['driver'] or 'software'}"
            usable = device["obstacle"] or rank["rdma_obstacle"] or "yes"
            table.add(str(len(seen) - 1), device["name"], link, device["rate"], device["interface"], usable)
    return table


def _levels(report: dict[str, Any]) -> Table:
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


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.4g} MiB"
