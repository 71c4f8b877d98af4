"""torchft's own tests on Gloo, or with a Fairring group in Gloo's place.

    python torchft_suite.py gloo|fairring [FILE ...]

Copies of the tests that the installed torchft brings along; what is exchanged in them stands below, the rest runs as it
is. Prints how many passed, failed and were skipped, and pytest's reasons.
"""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

FILES = (
    "process_group_test",
    "reconfigure_test",
    "manager_test",
    "manager_integ_test",
    "local_sgd_integ_test",
    "lighthouse_test",
    "parameter_server_test",
    "ddp_test",
)
# Before a test imports it.
IN_ITS_PLACE = """
import torchft, torchft.process_group
from fairring.torchft import ProcessGroupFairring
torchft.ProcessGroupGloo = torchft.process_group.ProcessGroupGloo = ProcessGroupFairring
"""
# Edits that remove the skips for what Gloo can't do, since another group stands in its place.
WITHOUT_SKIPS = {
    'BACKEND = "gloo"\n    WORLD_SIZE = 3\n    SKIP = [\n        "alltoall_base",\n        "reduce_scatter",\n'
    '        "reduce_scatter_tensor_coalesced",\n    ]': 'BACKEND = "gloo"\n    WORLD_SIZE = 3\n    SKIP = []',
    '    if tensor.device.type == "cpu":\n        return\n    # reduce scatter not supported on GLOO\n': "",
}
# The tests know each backend's errors by their texts.
TEXTS = {
    "(Connection closed by peer|": "(rank 2 has left|Connection closed by peer|",
    '"(timeout after 10ms|Socket Timeout)"': '"(timeout after 10ms|Socket Timeout|is no handle of)"',
    'RuntimeError, "aborted"': 'RuntimeError, "aborted|rank 2 has left"',
    '[("gloo",), ("nccl2",)]': '[("fairring",), ("nccl2",)]',
}


@dataclass
class Result:
    passed: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)  # with the reason
    failed: dict[str, str] = field(default_factory=dict)  # with the first line of the error

    def __str__(self) -> str:
        lines = [f"{len(self.passed)} passed, {len(self.failed)} failed, {len(self.skipped)} skipped"]
        lines += [f"  failed {name}: {text}" for name, text in sorted(self.failed.items())]
        lines += [f"  skipped {count}: {why}" for why, count in sorted(Counter(self.skipped.values()).items())]
        return "\n".join(lines)


def has(name: str) -> bool:
    """Whether the torchft that is installed brings along this one of FILES."""
    return _source(name).exists()


def run(backend: str, name: str) -> Result:
    """name: one of FILES. Of each test how it ended, in a process of their own."""
    text = _source(name).read_text()
    with tempfile.TemporaryDirectory() as folder:
        if backend == "fairring":
            Path(folder, "conftest.py").write_text(IN_ITS_PLACE)
            for old, new in (WITHOUT_SKIPS | TEXTS).items():
                text = text.replace(old, new)
        file, report = Path(folder, f"{name}.py"), Path(folder, "report.xml")
        file.write_text(text)
        command = [sys.executable, "-m", "pytest", "-q", "-k", "not Baby", "-p", "no:cacheprovider", "--timeout", "120"]
        subprocess.run([*command, f"--junitxml={report}", str(file)], cwd=folder, stdout=sys.stderr, check=False)
        return _read(report)


def _source(name: str) -> Path:
    spec = find_spec("torchft")
    if spec is None or not spec.submodule_search_locations:
        raise OSError("torchft is not installed here")
    return Path(spec.submodule_search_locations[0], f"{name}.py")


def _read(report: Path) -> Result:
    result = Result()
    for case in ElementTree.parse(report).iter("testcase"):
        name = f"{case.get('classname', '').split('.')[-1]}.{case.get('name')}"
        kinds = {child.tag: child.get("message", "") for child in case}
        if "failure" in kinds or "error" in kinds:
            text = kinds.get("failure") or kinds.get("error", "")
            result.failed[name] = text.partition("\n")[0][:300]
        elif "skipped" in kinds:
            result.skipped[name] = kinds["skipped"]
        else:
            result.passed.append(name)
    return result


def main() -> None:
    backend, *names = sys.argv[1:]
    versions = ", ".join(f"{d.name} {d.version}" for d in importlib.metadata.distributions() if "torchft" in d.name)
    for name in filter(has, names or FILES):
        print(f"{versions} on {backend}: {name}: {run(backend, name)}", flush=True)


if __name__ == "__main__":
    main()
