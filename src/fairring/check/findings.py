"""The findings on this machine (pass, doubtful or fail), each with advice: a pure function of the facts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fairring import cuda_calls
from fairring.check.network import is_loopback
from fairring.config import MIB, Config, CudaHost

PASS, WARN, FAIL = "PASS", "WARN", "FAIL"
FEW_OPEN_FILES = 1024  # Linux' own default; a rank has several for each peer
SMALL_SHARED_MEMORY = 64 * MIB  # Docker's default for /dev/shm


@dataclass(frozen=True)
class Finding:
    """level: one of PASS, WARN, FAIL. advice: the remedy, empty if it passes."""

    level: str
    what: str
    advice: str = ""


def of(report: Mapping[str, Any], config: Config, environment: Mapping[str, str]) -> list[Finding]:
    """report: as report.here builds it."""
    return [
        *_imports(report, config),
        *_settings(report, config, environment),
        *_gloo(report, config),
        *_names(report["network"]),
        *_interfaces(report["network"], config),
        *_passed_over(report["network"]),
        *_rdma(report),
        *_cores(report["machine"], environment),
        *_memory(report["machine"], config),
        *_trials(report),
    ]


def _imports(report: Mapping[str, Any], config: Config) -> Iterator[Finding]:
    torch, module, versions = report["torch"], report["module"], report["versions"]
    if torch["late"]:
        yield Finding(WARN, f"torch can't be judged: its import {torch['error']}", _slowness(report))
        return
    if torch["error"]:
        newest = versions["built_for_torch"].split(", ")[-1]
        minor = f"=={newest}.*" if newest else ""
        advice = f"run: {versions['executable']} -m pip install 'torch{minor}'"
        if config.replace and "backend extension: fairring" in torch["error"]:
            advice = "unset FAIRRING_REPLACE, which needs torch 2.15 or later"
        yield Finding(FAIL, f"torch can't be imported: {torch['error']}", advice)
        return
    yield Finding(PASS, f"torch {torch['version']} can be imported")
    if module["late"]:
        yield Finding(WARN, f"Fairring's module can't be judged: its import {module['error']}", _slowness(report))
    elif module["error"]:
        advice = "install a Fairring that has a module for this torch, or build it: see Install in README.md"
        yield Finding(FAIL, f"Fairring's module can't be imported: {module['error']}", advice)
    else:
        yield Finding(PASS, f"Fairring's module can be imported; its kernels use {module['instruction_set']}")


def _slowness(report: Mapping[str, Any]) -> str:
    """The advice where something had not ended in time."""
    machine, python = report["machine"], report["versions"]["executable"]
    return (
        f"a busy machine is slow (the load here is {machine['load']:.1f} on {machine['usable_cores']} cores), and so is"
        f" a busy disk: try again when less runs. If it never ends, see where: {python} -X importtime -c 'import torch'"
    )


def _settings(report: Mapping[str, Any], config: Config, environment: Mapping[str, str]) -> Iterator[Finding]:
    if report["settings"]["error"]:
        advice = "correct the variable on all ranks; trials of Fairring wait for that"
        yield Finding(FAIL, f"a setting can't be used: {report['settings']['error']}", advice)
        return
    yield Finding(PASS, "the variables in force can be used")
    obstacle = report["module"].get("why_no_cuda", "")
    if config.cuda.use == "on" and obstacle:
        yield Finding(FAIL, f"FAIRRING_CUDA=on can't be used: {obstacle}", "unset it on all ranks, or see docs/cuda.md")
    if report["torch"].get("gpus") and (way := cuda_calls.in_words(CudaHost.from_environment(environment), obstacle)):
        yield Finding(PASS, way)


def _gloo(report: Mapping[str, Any], config: Config) -> Iterator[Finding]:
    """Who makes the groups of a program that asks for Gloo and does not import fairring."""
    torch = report["torch"]
    if not config.replace or torch["error"]:
        return
    if torch["gloo_is_ours"]:
        yield Finding(PASS, f"Fairring makes the groups of {config.replace!r}, by FAIRRING_REPLACE")
        return
    advice = "unset TORCH_DEVICE_BACKEND_AUTOLOAD, and install Fairring beside this torch (a PYTHONPATH is not enough)"
    yield Finding(FAIL, f"FAIRRING_REPLACE={config.replace} has no effect: torch loads nothing of Fairring's", advice)


def _names(network: Mapping[str, Any]) -> Iterator[Finding]:
    master = network["master_stands_for"]
    if master and master["error"]:
        text = f"MASTER_ADDR={network['master']} has no address here: {master['error']}"
        yield Finding(FAIL, text, "give the master's address, or a name that all machines know")
    if master:  # then no launcher has to look up the host's own name
        return
    name, found = network["hostname"], network["hostname_stands_for"]
    if found["error"]:
        text = f"the host's own name, {name}, has no address here: {found['error']}"
        yield Finding(WARN, text, "add it to /etc/hosts or to the name server: Gloo and torchrun ask for it")
    elif all(map(is_loopback, found["addresses"])):
        text = f"the host's own name, {name}, stands for {', '.join(found['addresses'])} here, which others can't reach"
        yield Finding(WARN, text, "give MASTER_ADDR as an address, or name the host's real one in /etc/hosts")
    else:
        yield Finding(PASS, f"the host's own name, {name}, stands for {', '.join(found['addresses'])}")


def _interfaces(network: Mapping[str, Any], config: Config) -> Iterator[Finding]:
    there = {one["name"]: one for one in network["interfaces"]}
    chosen = {"TP_SOCKET_IFNAME": config.interfaces, "FAIRRING_SITE_IFNAME": config.site_interfaces}
    for variable, names in chosen.items():
        for name in names:
            if not there.get(name, {}).get("address"):
                text = f"{variable} names {name}, which has no address here"
                yield Finding(FAIL, text, f"give one of: {', '.join(n for n in there if there[n]['address'])}")
    if network["outward"] is None and not config.interfaces:
        text = "no interface leads to other machines: there is no default route"
        yield Finding(WARN, text, "set TP_SOCKET_IFNAME to the interface that reaches them, or use one machine")
    elif not config.interfaces:
        yield from _slow_choice(network)


def _passed_over(network: Mapping[str, Any]) -> Iterator[Finding]:
    for sentence in network["reached"]["passed_over"] if network["reached"] else ():
        yield Finding(WARN, sentence, "name an interface with TP_SOCKET_IFNAME, or unset the variable")


def _slow_choice(network: Mapping[str, Any]) -> Iterator[Finding]:
    """The default route may lead over another interface than the fast one."""
    usable = [one for one in network["interfaces"] if one["address"] and one["speed"] and one["state"] == "up"]
    chosen = next((one for one in usable if one["address"] == network["outward"]), None)
    fastest = max(usable, key=lambda one: one["speed"], default=None)
    if chosen and fastest and fastest["speed"] > chosen["speed"]:
        text = f"the default route is {chosen['name']} of {chosen['speed']} Mbit/s; {fastest['name']} has"
        advice = f"set TP_SOCKET_IFNAME={fastest['name']} if it reaches the other machines"
        yield Finding(WARN, f"{text} {fastest['speed']} Mbit/s", advice)


def _rdma(report: Mapping[str, Any]) -> Iterator[Finding]:
    module = report["module"]
    ports = module.get("rdma", [])
    for port in ports:
        obstacle = port["obstacle"] or module["rdma_obstacle"]
        name = port_named(port, ports)
        if obstacle:
            advice = "see docs/rdma.md, or leave it: TCP is used instead"
            yield Finding(WARN, f"the RDMA device {name} can't be used: {obstacle}", advice)
        else:
            yield Finding(PASS, f"the RDMA device {name} can be used")


def port_named(port: Mapping[str, Any], ports: Sequence[Mapping[str, Any]]) -> str:
    """Its device, and its number if the device has several of these ports."""
    several = sum(one["name"] == port["name"] for one in ports) > 1
    return f"{port['name']}, port {port['port']}" if several else str(port["name"])


def _cores(machine: Mapping[str, Any], environment: Mapping[str, str]) -> Iterator[Finding]:
    cores = min(machine["usable_cores"], machine["core_quota"] or machine["usable_cores"])
    ranks = environment.get("LOCAL_WORLD_SIZE", "")
    if ranks.isdigit() and int(ranks) > cores:
        text = f"{ranks} ranks share {cores:g} cores here (LOCAL_WORLD_SIZE)"
        yield Finding(WARN, text, "start fewer ranks on this machine, or give the container more cores")
    elif cores < 1:
        text = f"the container may use {cores:g} of a core"
        yield Finding(WARN, text, "give it a core for each rank: a rank computes and drives its connections")


def _memory(machine: Mapping[str, Any], config: Config) -> Iterator[Finding]:
    soft, hard = machine["limits"]["open_files"]
    if soft is not None and soft < FEW_OPEN_FILES:
        text = f"a process may open {soft} files; a rank keeps several connections to each peer"
        yield Finding(WARN, text, f"raise it: ulimit -n {hard or 65536}")
    free = _available(machine)
    if free is not None and free < config.total_memory:
        text = (
            f"{free // MIB} MiB of memory are free, and a rank's staging takes up to {config.total_memory // MIB} MiB"
        )
        yield Finding(WARN, text, "free some, or set FAIRRING_TOTAL_MEMORY lower on all ranks")
    files = machine["shared_memory_files"]
    if files and files["size"] <= SMALL_SHARED_MEMORY:
        text = f"/dev/shm holds {files['size'] // MIB} MiB; Fairring does not use it, torch's DataLoader and NCCL do"
        yield Finding(WARN, text, "give the container more: docker run --shm-size=8g, or a volume in memory")


def _available(machine: Mapping[str, Any]) -> int | None:
    """Bytes of the machine, or as many as the cgroup leaves."""
    limit, used = machine["memory_limit"], machine["memory_used_of_limit"]
    left = [limit - used] if limit is not None and used is not None else []
    free = [machine["available_memory"]] if machine["available_memory"] is not None else []
    return min(left + free, default=None)


def _trials(report: Mapping[str, Any]) -> Iterator[Finding]:
    for trial in report["trials"] or ():
        if trial["error"] and trial["late"]:
            yield Finding(WARN, f"{trial['what']}: {trial['error']}", _slowness(report))
        elif trial["error"]:
            advice = "correct what the error names; where it names nothing, report it with this text"
            yield Finding(FAIL, f"{trial['what']}: {trial['error']}", advice)
        else:
            what = f"{trial['what']}: {trial['elements']} elements were summed right in {trial['seconds']:.2f} s"
            yield Finding(PASS, what)
    if report["trials"] == []:
        yield Finding(WARN, "no all-reduce was tried", "see first to what stands above")
