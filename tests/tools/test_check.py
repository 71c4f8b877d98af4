"""`fairring check`: its report on one machine and on emulated ones, and the cost rows that it saves."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from certificates import Authority
from lab_programs import REPOSITORY, needs_namespaces

from fairring import cost_rows, lab
from fairring.check import between, child, findings, gaps, installation, machine, network, report, saved_rows, variables
from fairring.check.findings import PASS, WARN, Finding
from fairring.check.measure import groups_of
from fairring.check.saved_rows import LARGE_BYTES, Measured
from fairring.config import MIB, Config, ConfigError, Cuda

# A safety net. The command itself gives up on a machine that is too slow, after five minutes of each import.
TIMEOUT_SECONDS = 1100
pytestmark = pytest.mark.timeout(1200)
CHECK = ["-m", "fairring", "check"]
GIB = 1 << 30
LAB_SECONDS = 150
BUILT_IN = [(15e-6, 2e-6, 5e9, 8e9), (40e-6, 10e-6, 1.25e9, 8e9)]


def check(
    *words: str, python: str = sys.executable, cwd: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """cwd: Python takes packages from there first."""
    return subprocess.run(
        [python, *CHECK, *words],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )


def facts(**changes: Any) -> dict[str, Any]:
    """The facts of a machine on which nothing is wrong, with changes."""
    name = {"addresses": ["10.0.0.1"], "error": ""}
    interface = {"name": "eth0", "address": "10.0.0.1", "speed": 10_000, "mtu": 1500, "state": "up"}
    healthy: dict[str, Any] = {
        "versions": {"built_for_torch": "2.15", "executable": "python"},
        "torch": {"error": "", "late": False, "version": "2.15.0"},
        "module": {
            "error": "",
            "late": False,
            "instruction_set": "avx2",
            "rdma": [],
            "rdma_obstacle": "",
            "why_no_cuda": "no CUDA",
        },
        "machine": {
            "usable_cores": 8,
            "core_quota": None,
            "load": 33.9,
            "available_memory": 8 * GIB,
            "memory_limit": None,
            "memory_used_of_limit": None,
            "shared_memory_files": {"size": GIB, "free": GIB},
            "limits": {"open_files": [4096, 8192]},
        },
        "network": {
            "hostname": "a",
            "hostname_stands_for": name,
            "master": "",
            "master_stands_for": None,
            "outward": "10.0.0.1",
            "interfaces": [interface],
            "reached": {"addresses": ["10.0.0.1"], "interfaces": [interface], "by": "a test", "passed_over": []},
        },
        "settings": {"error": ""},
        "trials": [{"what": "two ranks", "error": "", "late": False, "elements": 9, "seconds": 0.1}],
    }
    for key, value in changes.items():
        healthy[key] = {**healthy[key], **value} if isinstance(value, dict) else value
    return healthy


def of(environment: Mapping[str, str] | None = None, config: Config | None = None, **changes: Any) -> list[str]:
    """The findings that are doubtful or fail, one line each: level, text and advice."""
    found = findings.of(facts(**changes), config or Config(), environment or {})
    return [f"{one.level} {one.what} -> {one.advice}" for one in found if one.level != findings.PASS]


def test_nothing_is_found_on_a_machine_that_is_well() -> None:
    assert of() == []


FAST = {"name": "ib0", "address": "10.1.0.1", "speed": 100_000, "mtu": 1500, "state": "up"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"torch": {"error": "No module named 'torch'"}}, ["FAIL torch", "'torch==2.15.*'"]),
        ({"module": {"error": "undefined symbol: x"}}, ["FAIL", "undefined symbol: x", "build it"]),
        ({"settings": {"error": "FAIRRING_LANES='x'"}}, ["FAIL", "FAIRRING_LANES='x'"]),
        (
            {"network": {"hostname_stands_for": {"addresses": ["127.0.1.1"], "error": ""}}},
            ["WARN", "127.0.1.1", "MASTER_ADDR"],
        ),
        (
            {"network": {"hostname_stands_for": {"addresses": [], "error": "unknown"}}},
            ["WARN", "unknown", "/etc/hosts"],
        ),
        (
            {"network": {"master": "b", "master_stands_for": {"addresses": [], "error": "unknown"}}},
            ["FAIL MASTER_ADDR=b", "unknown"],
        ),
        (
            {"network": {"reached": {"passed_over": ["GLOO_SOCKET_IFNAME=ib7 is passed over: it is none"]}}},
            ["WARN GLOO_SOCKET_IFNAME=ib7 is passed over", "TP_SOCKET_IFNAME"],
        ),
        ({"network": {"outward": None}}, ["WARN", "default route", "TP_SOCKET_IFNAME"]),
        (
            {"network": {"interfaces": [*facts()["network"]["interfaces"], FAST]}},
            ["WARN", "eth0 of 10000 Mbit/s", "TP_SOCKET_IFNAME=ib0"],
        ),
        (
            {"module": {"rdma": [{"name": "mlx5_0", "obstacle": "its port 1 is DOWN"}]}},
            ["WARN", "mlx5_0", "its port 1 is DOWN"],
        ),
        (
            {
                "module": {
                    "rdma": [
                        {"name": "mlx5_0", "port": "1", "obstacle": ""},
                        {"name": "mlx5_0", "port": "2", "obstacle": "it is DOWN"},
                    ]
                }
            },
            ["WARN", "the RDMA device mlx5_0, port 2 can't be used: it is DOWN"],
        ),
        ({"machine": {"core_quota": 0.5}}, ["WARN", "0.5 of a core"]),
        ({"machine": {"limits": {"open_files": [256, 4096]}}}, ["WARN", "256 files", "ulimit -n 4096"]),
        (
            {"machine": {"memory_limit": 64 * MIB, "memory_used_of_limit": 40 * MIB}},
            ["WARN", "24 MiB of memory are free", "FAIRRING_TOTAL_MEMORY"],
        ),
        ({"machine": {"shared_memory_files": {"size": 64 * MIB, "free": 0}}}, ["WARN", "/dev/shm", "--shm-size"]),
        (
            {"trials": [{"what": "two ranks", "error": "rank 0 refused", "late": False}]},
            ["FAIL two ranks: rank 0 refused"],
        ),
        (
            {"trials": [{"what": "two ranks", "error": "rank 0 did not end", "late": True}]},
            ["WARN two ranks: rank 0 did not end", "the load here is 33.9 on 8 cores"],
        ),
    ],
)
def test_what_is_wrong_is_found_with_what_to_do(changes: dict[str, Any], words: list[str]) -> None:
    (line,) = of(**changes)
    for word in words:
        assert word in line


def test_a_machine_that_is_slow_is_told_as_slow() -> None:
    imported = installation.imports(os.environ, seconds=0.01)  # no machine imports torch so fast
    line = of(**imported)[0]
    assert line.startswith("WARN torch can't be judged: its import did not end within 0.01 s -> ")
    assert "the load here is 33.9 on 8 cores" in line
    assert "pip install" not in line
    (line,) = of(module=imported["module"])
    assert line.startswith("WARN Fairring's module can't be judged: its import did not end within 0.01 s -> ")


def test_settings_that_this_machine_cannot_follow_are_found() -> None:
    (line,) = of(config=Config(interfaces=("eth9",)))
    assert line == "FAIL TP_SOCKET_IFNAME names eth9, which has no address here -> give one of: eth0"
    (line,) = of(config=Config(cuda=Cuda("on")))
    assert line.startswith("FAIL FAIRRING_CUDA=on can't be used: no CUDA")
    (line,) = of({"LOCAL_WORLD_SIZE": "16"})
    assert "16 ranks share 8 cores" in line


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({}, "a trial decides between NCCL and Fairring"),
        ({"CUDA_DEVICE_MAX_CONNECTIONS": "32"}, "a trial decides between NCCL and Fairring"),
        ({"CUDA_DEVICE_MAX_CONNECTIONS": "1"}, "CUDA tensors are NCCL's: CUDA's streams share 1 hardware queues"),
        ({"CUDA_DEVICE_MAX_CONNECTIONS": "32", "NCCL_NET_PLUGIN": "x"}, "inside a site, by a faster network: that of"),
    ],
)
def test_it_says_who_has_the_calls_on_cuda_tensors(variables: dict[str, str], words: str) -> None:
    report = facts(torch={"gpus": ["one"]}, module={"why_no_cuda": ""})
    for use, is_said in (("auto", True), ("off", False)):
        found = findings.of(report, Config(), {"FAIRRING_CUDA": use, **variables})
        assert any(words in finding.what for finding in found) is is_said


def test_secrets_are_named_and_not_told() -> None:
    environment = {"FAIRRING_SECRET_FILE": "/x/secret", "FAIRRING_TLS_KEY": "/x/key.pem", "RANK": "1", "HOME": "/root"}
    assert variables.in_force(environment) == {
        "FAIRRING_SECRET_FILE": "(set)",
        "FAIRRING_TLS_KEY": "(set)",
        "RANK": "1",
    }
    cleaned = variables.without_secrets({"a": ["can't read /x/key.pem"], "b": 1}, environment)
    assert cleaned == {"a": ["can't read (set)"], "b": 1}


@pytest.mark.parametrize(
    ("files", "quota", "limit"),
    [
        ({"cgroup": "0::/a/b\n", "a/cpu.max": "150000 100000", "a/b/memory.max": "max", "memory.max": "1"}, 1.5, None),
        ({"cgroup": "0::/\n", "cpu.max": "max 100000", "memory.max": "4096"}, None, 4096),
        (
            {
                "cgroup": "4:memory:/c\n1:cpu,cpuacct:/c\n",
                "cpu/c/cpu.cfs_quota_us": "50000",
                "cpu/c/cpu.cfs_period_us": "100000",
                "memory/c/memory.limit_in_bytes": "8192",
            },
            0.5,
            8192,
        ),
        ({"cgroup": "4:memory:/\n", "memory/memory.limit_in_bytes": "9223372036854771712"}, None, None),
    ],
)
def test_limits_of_a_container_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], quota: float | None, limit: int | None
) -> None:
    for name, content in files.items():
        file = tmp_path / ("proc/self/cgroup" if name == "cgroup" else f"sys/{name}")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    monkeypatch.setattr(machine, "PROC", tmp_path / "proc")
    monkeypatch.setattr(machine, "CGROUPS", tmp_path / "sys")
    assert machine.core_quota() == quota
    assert machine.of_memory_group("memory.max", "memory.limit_in_bytes") == limit


def test_a_name_server_that_is_silent_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: answer.wait() and [])
    monkeypatch.setattr(network, "NAME_SECONDS", 0.01)
    assert network.resolve("a") == {"addresses": [], "error": "no answer within 0.01 s"}
    answer.set()


@pytest.mark.parametrize(
    ("program", "error"),
    [
        ("import time; print('x', flush=True); time.sleep(600)", "did not end within 1 s"),
        ("import os; os.abort()", "was killed by SIGABRT"),
        ("import torch_that_is_not_there", "ModuleNotFoundError: No module named 'torch_that_is_not_there'"),
        ("print('{')", "gave no result; it said: {"),
    ],
)
def test_a_child_that_hangs_or_dies_is_an_error_in_words(program: str, error: str) -> None:
    assert child.run(["-S", "-c", program], os.environ, 1 if "sleep" in program else TIMEOUT_SECONDS).error == error


def test_alone_it_sums_for_real_and_passes_here() -> None:
    ended = check("--json", FAIRRING_MACHINE="here", OMP_NUM_THREADS="1")
    assert ended.returncode == 0, ended.stdout
    report = json.loads(ended.stdout)
    (rank,) = report["ranks"]
    assert [trial["error"] for trial in rank["trials"]] == ["", ""]
    assert rank["variables"]["FAIRRING_MACHINE"] == "here"
    assert rank["module"]["instruction_set"] in ("baseline", "avx2", "avx512")


@pytest.mark.slow
def test_it_tries_tls_where_certificates_are_set_and_tells_no_path_of_a_key(tmp_path: Path) -> None:
    good = Authority(tmp_path / "good").issue("rank")
    ended = check(**good)  # type: ignore[arg-type]
    assert ended.returncode == 0, ended.stdout
    assert "over the network under TLS: " in ended.stdout
    assert good["FAIRRING_TLS_KEY"] not in ended.stdout
    foreign = Authority(tmp_path / "foreign", "foreign")
    ended = check(**{**good, "FAIRRING_TLS_CA": str(foreign.certificate)})  # type: ignore[arg-type]
    assert ended.returncode == 1
    assert "FAIL  two ranks as if on two machines, over the network under TLS: " in ended.stdout


def test_a_wrong_setting_fails_and_is_named() -> None:
    ended = check(FAIRRING_LANE="2")
    assert ended.returncode == 1
    assert "did you mean FAIRRING_LANES?" in ended.stdout
    assert "WARN  no all-reduce was tried" in ended.stdout


@pytest.fixture
def bare(tmp_path: Path) -> str:
    """A Python without any package."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    return str(tmp_path / "bare" / "bin" / "python")


def test_without_torch_it_says_what_to_install(bare: str) -> None:
    ended = check(python=bare, PYTHONPATH=str(REPOSITORY / "src"))
    assert ended.returncode == 1, ended.stderr
    assert "FAIL  torch can't be imported: ModuleNotFoundError: No module named 'torch'" in ended.stdout
    assert "-m pip install 'torch==" in ended.stdout
    assert "processor" in ended.stdout


def test_with_a_wrong_torch_it_names_both_versions(bare: str, tmp_path: Path) -> None:
    (tmp_path / "torch" / "distributed").mkdir(parents=True)
    (tmp_path / "torch" / "__init__.py").write_text(
        "__version__ = '2.9.1'\n"
        "class cuda: device_count = staticmethod(lambda: 0)\n"
        "class version: cuda = None\n"
        "from torch import distributed\n"
    )
    (tmp_path / "torch" / "distributed" / "__init__.py").write_text(
        "is_available = lambda: True\nis_nccl_available = lambda: False\n"
    )
    ended = check(python=bare, PYTHONPATH=f"{REPOSITORY / 'src'}:{tmp_path}")
    assert ended.returncode == 1, ended.stderr
    assert "PASS  torch 2.9.1 can be imported" in ended.stdout
    assert "but torch 2.9.1 is installed" in ended.stdout


def test_a_module_that_does_not_load_is_named_with_the_reason(tmp_path: Path) -> None:
    copied = shutil.copytree(REPOSITORY / "src" / "fairring", tmp_path / "fairring")
    for module in copied.glob("_core*.so"):
        module.write_bytes(b"no module")
    ended = check(PYTHONPATH=str(tmp_path), cwd=tmp_path)
    assert ended.returncode == 1, ended.stderr
    assert "FAIL  Fairring's module can't be imported: ImportError: " in ended.stdout
    assert "PASS  torch " in ended.stdout


@needs_namespaces
@pytest.mark.slow  # for a connection that is not made
def test_without_a_network_it_still_says_what_works() -> None:
    command = ["unshare", "--map-root-user", "--net", sys.executable, *CHECK, "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)
    (rank,) = json.loads(ended.stdout)["ranks"]
    assert rank["network"]["outward"] is None
    assert [trial["error"] == "" for trial in rank["trials"]] == [True, False]
    assert any("lo" in one["name"] and not one["address"] for one in rank["network"]["interfaces"])
    assert ended.returncode == 1


def here(interface: Mapping[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """The facts of a rank that is reached by this interface."""
    one = {"name": "eth0", "address": "10.0.0.1", "speed": 10_000, "mtu": 1500, "state": "up", **(interface or {})}
    return facts(network={"reached": {"interfaces": [one]}}, **changes)


def test_nothing_is_found_between_machines_that_are_alike() -> None:
    assert between.of([here(), here()], ["a", "b"], "no InfiniBand or RoCE device is here") == []


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (here({"mtu": 9000}), ["from 1500 (rank 0) to 9000"]),
        (here({"speed": 1000}), ["rank 1 have an interface of 1000 Mbit/s", "10000"]),
        (here(torch={"version": "2.14.0"}), ["2.14.0, 2.15.0"]),
    ],
)
def test_what_differs_between_machines_is_found(other: dict[str, Any], words: list[str]) -> None:
    (finding,) = between.of([here(), other], ["a", "b"], "")
    for word in words:
        assert word in finding.what


def test_a_setting_that_can_not_be_used_is_no_failed_import() -> None:
    found = installation.imports({**os.environ, "FAIRRING_TOTAL_MEMORY": "much"})
    assert found["module"]["error"] == ""
    assert found["module"]["instruction_set"]


def test_rdma_that_is_there_and_not_used_is_found_with_the_reason() -> None:
    there = here(module={"rdma": [{"name": "mlx5_0", "obstacle": "its port 1 is DOWN"}]})
    (finding,) = between.of([there, there], ["a", "b"], "rank 0 (x): its port 1 is DOWN")
    assert "rank 0 (x): its port 1 is DOWN" in finding.what
    assert between.of([there], ["a"], "") == []


def test_a_finding_of_several_ranks_is_told_once() -> None:
    few, well = Finding(WARN, "few files", "more"), Finding(PASS, "torch can be imported")
    assert between.together([[few, well], [well], [few]]) == [Finding(WARN, "ranks 0, 2: few files", "more")]


@pytest.mark.parametrize(
    ("machines", "groups"),
    [
        ("a", {}),
        ("aa", {"machine": [[0, 1]]}),
        ("ab", {"rail": [[0, 1]]}),
        ("abab", {"machine": [[0, 2], [1, 3]], "rail": [[0, 1], [2, 3]]}),
        ("aab", {"machine": [[0, 1]], "rail": [[0, 2]]}),
    ],
)
def test_a_level_is_measured_where_it_has_groups(machines: str, groups: dict[str, list[list[int]]]) -> None:
    assert groups_of(machines) == groups


def test_between_sites_the_ranks_of_a_place_are_measured() -> None:
    found = groups_of("aabbccdd", ["north"] * 4 + ["south"] * 4)
    assert found["rail"] == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert found["site"] == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert groups_of("ab", ["north", "south"]) == {"site": [[0, 1]]}


def test_saved_rows_are_the_inverse_of_the_prediction() -> None:
    latency, per_message, speed, summed = BUILT_IN[1]
    machine_latency = 2 * BUILT_IN[0][0]
    small = machine_latency + latency + 3 * per_message
    large = small + 2 * LARGE_BYTES * 3 / 4 / speed + LARGE_BYTES / summed
    measured = [Measured("rail", 4, small, large, 0.0)]
    machine, rail = saved_rows.rows(measured, BUILT_IN)
    assert machine == BUILT_IN[0]
    assert rail == pytest.approx(BUILT_IN[1])


def test_rows_that_were_saved_are_read_again_and_must_agree_between_ranks(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    cost_rows.write(file, BUILT_IN, "for a test")
    config = Config.from_environment({"FAIRRING_COST_ROWS": str(file)})
    assert config.cost_rows is not None
    assert config.cost_rows.by_level() == [*BUILT_IN, BUILT_IN[1]]
    assert config.agreement("0.1") != Config().agreement("0.1")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{}", "does not begin"),
        ("nonsense", "Expecting value"),
        (json.dumps({"format": cost_rows.FORMAT}), "level 'machine' needs these numbers"),
        (
            json.dumps({"format": cost_rows.FORMAT, "levels": {"machine": dict.fromkeys(cost_rows.FIELDS, 0)}}),
            "speed of 0",
        ),
    ],
)
def test_a_file_without_rows_is_an_error_that_says_why(tmp_path: Path, content: str, reason: str) -> None:
    file = tmp_path / "rows.json"
    file.write_text(content)
    with pytest.raises(ConfigError, match=reason):
        Config.from_environment({"FAIRRING_COST_ROWS": str(file)})


@pytest.mark.slow
@needs_namespaces
def test_between_machines_it_measures_every_level_and_saves_rows_that_ranks_take(tmp_path: Path) -> None:
    saved = tmp_path / "rows.json"
    with lab.Lab([sys.executable, *CHECK, "--json", "--save", str(saved)], [2, 1], "100mbit") as running:
        result = running.wait(LAB_SECONDS)
    assert result.exit_codes == [0, 0, 0], result.output
    told = json.loads(result.stdout[0])
    assert (told["machines"], told["transport"]["rail"]) == (2, "tcp")
    assert [(level["level"], level["ranks"]) for level in told["levels"]] == [("machine", 2), ("rail", 2)]
    assert {rank["network"]["reached"]["interfaces"][0]["name"] for rank in told["ranks"]} == {"eth0"}
    assert result.stdout[1:] == ["", ""]
    rail = told["levels"][1]
    assert rail["seconds"] > 3 * rail["predicted_seconds"]
    assert [one for one in told["findings"] if "16 MiB at level rail took" in one["what"] and "--save" in one["advice"]]
    assert told["plan"]["measured_seconds"] > rail["predicted_seconds"]

    with lab.Lab([sys.executable, *CHECK], [2, 1], "100mbit", env={"FAIRRING_COST_ROWS": str(saved)}) as running:
        result = running.wait(LAB_SECONDS)
    assert result.exit_codes == [0, 0, 0], result.output
    for words in ("shared memory", "0 failed", cost_rows.read(saved).digest()):
        assert words in result.stdout[0]


def level(**changes: Any) -> dict[str, Any]:
    """The rails of two machines with two ranks each: as predicted, with changes."""
    as_predicted = {
        "level": "rail",
        "seconds": 0.030,
        "predicted_seconds": 0.028,
        "bytes_per_second": 1.2e9,
        "predicted_bytes_per_second": 1.25e9,
    }
    return {**as_predicted, **changes}


SLOW = {"seconds": 0.281, "bytes_per_second": 60e6}


@pytest.mark.parametrize(
    ("changes", "speed", "saved", "words"),
    [
        ({}, None, False, []),
        ({"seconds": 0.060}, None, False, []),
        (
            SLOW,
            None,
            False,
            ["rail took 281.0 ms, 10.0 times longer than the predicted 28.0 ms", "10 Gbit/s", "960 Mbit"],
        ),
        (SLOW, None, True, ["saved when it was faster"]),
        (SLOW, 10_000, False, ["10000 Mbit/s should bring 625 to each of 2 rank(s)", "look at cables"]),
        (SLOW, 1000, False, ["1000 Mbit/s should bring 62 to each of 2 rank(s)", "and does", "check --save"]),
        ({"seconds": 0.003}, None, False, ["9.3 times shorter", "slower system", "check --save"]),
        ({"level": "machine", "seconds": 0.2}, None, False, ["2 ranks of a share 1 cores", "a load of 7.0 on 1 cores"]),
        ({"level": "machine", "seconds": 0.2, "cores": 8, "load": 0.1}, None, False, ["memory is slow"]),
    ],
)
def test_a_large_gap_to_the_prediction_is_told_with_its_likely_cause(
    changes: dict[str, Any], speed: int | None, saved: bool, words: list[str]
) -> None:
    changes = dict(changes)
    machine = {"usable_cores": changes.pop("cores", 1), "load": changes.pop("load", 7.0)}
    facts = here({"speed": speed}, machine=machine)
    told = [
        f"{one.what}: {one.advice}"
        for one in gaps.gaps([level(**changes)], [facts] * 4, ["a", "a", "b", "b"], saved=saved)
    ]
    assert len(told) == bool(words)
    for word in words:
        assert word in told[0]


def test_every_level_is_compared_with_what_the_rows_say_of_it_alone() -> None:
    rows = [*BUILT_IN, (30e-3, 10e-6, 12.5e6, 8e9)]
    found = {
        name: report.compared(Config(), Measured(name, 2, 100e-6, 0.1, 1e9), rows)
        for name in ("machine", "rail", "site")
    }
    seconds = [found[name]["predicted_seconds"] for name in ("machine", "rail", "site")]
    assert seconds == sorted(seconds)
    assert found["rail"]["predicted_seconds"] == pytest.approx(LARGE_BYTES / 1.25e9, rel=0.5)
    assert found["site"]["predicted_seconds"] == pytest.approx(LARGE_BYTES / 12.5e6, rel=0.5)
    assert [one["predicted_bytes_per_second"] for one in found.values()] == [5e9, 1.25e9, 12.5e6]
