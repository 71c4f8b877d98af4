"""The report for people."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

NARROWEST = 120  # columns if the output is no terminal


def show(report: dict[str, Any]) -> None:
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=NARROWEST)
    versions = report["ranks"][0]["versions"]
    console.print(", ".join(f"{name} {version}" for name, version in versions.items()))
    console.print(_ranks(report))
    console.print(_rdma(report))
    if report["levels"]:
        console.print(_levels(report))
    plan = report["plan"]
    console.print(
        f"25 MiB: {plan['steps']} in {plan['slices']} slice(s) of {_mib(plan['slice_bytes'])}, "
        f"{plan['in_flight']} in flight in {_mib(report['settings']['total_memory'])} of staging, "
        f"predicted {plan['seconds'] * 1e3:.1f} ms ({report['settings']['cost_rows']} cost rows)"
    )
    for warning in report["warnings"]:
        console.print(f"[yellow]warning:[/] {escape(warning)}")
    if not report["warnings"]:
        console.print("[green]nothing looks wrong[/]")


def _ranks(report: dict[str, Any]) -> Table:
    table = _table("rank", "site", "machine", "address", "interface", "Mbit/s", "MTU", "cores", "GPUs", "GPUDirect")
    numbers: dict[str, int] = {}
    for rank in report["ranks"]:
        machine = numbers.setdefault(rank["machine"], len(numbers))
        interfaces = rank["interfaces"]
        table.add_row(
            str(rank["rank"]),
            escape(rank["site"] or "-"),
            escape(f"{machine} ({rank['hostname']})"),
            "\n".join(rank["addresses"]),
            *("\n".join(str(one[key] or "?") for one in interfaces) for key in ("name", "speed", "mtu")),
            str(rank["cores"]),
            ", ".join(rank["gpus"]) or "none",
            "yes" if rank["gpus"] and rank["gpudirect"] else "no",
        )
    return table


def _rdma(report: dict[str, Any]) -> Table | str:
    table = _table("machine", "RDMA device", "link", "rate", "interface", "usable")
    seen: set[str] = set()
    for rank in report["ranks"]:
        if rank["machine"] in seen:
            continue
        seen.add(rank["machine"])
        for device in rank["rdma"]:
            link = f"{device['link_layer']}, {device['driver'] or 'software'}"
            usable = device["obstacle"] or rank["rdma_obstacle"] or "yes"
            cells = (device["name"], link, device["rate"], device["interface"], escape(usable))
            table.add_row(str(len(seen) - 1), *cells)
    return table if table.row_count else "no RDMA devices"


def _levels(report: dict[str, Any]) -> Table:
    table = _table("level", "ranks", "by", "4 B all-reduce", "16 MiB all-reduce", "a rank's bandwidth each way")
    for level in report["levels"]:
        table.add_row(
            level["level"],
            str(level["ranks"]),
            str(report["transport"][level["level"]]),
            f"{level['latency_seconds'] * 1e6:.0f} µs",
            f"{level['seconds'] * 1e3:.1f} ms",
            f"{level['bytes_per_second'] / 1e6:.0f} MB/s",
        )
    return table


def _table(*columns: str) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(column)
    return table


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.4g} MiB"
