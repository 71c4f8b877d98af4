"""torchft's own tests on Gloo, or with a Fairring group in Gloo's place.

    python torchft_suite.py gloo|fairring [FILE ...]

Copies of the tests that the installed torchft brings along; what is exchanged in them stands below, the rest runs as it
is. Prints how many passed, failed and were skipped, and pytest's reasons.
"""

from __future__ import annotations

import importlib.metadata
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from libraries import junit

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
    "(Connection closed by peer|": "(rank 2 .* has left|Connection closed by peer|",
    '"(timeout after 10ms|Socket Timeout)"': '"(timeout after 10ms|Socket Timeout|is no handle of)"',
    'RuntimeError, "aborted"': 'RuntimeError, "aborted|rank 2 .* has left"',
    '[("gloo",), ("nccl2",)]': '[("fairring",), ("nccl2",)]',
}


def has(name: str) -> bool:
    """Whether the torchft that is installed brings along this one of FILES."""
    return _source(name).exists()


def run(backend: str, name: str) -> junit.Result:
    """name: one of FILES. Of each test how it ended, in a process of their own."""
    text = _source(name).read_text()
    with tempfile.TemporaryDirectory() as folder:
        if backend == "fairring":
            Path(folder, "conftest.py").write_text(IN_ITS_PLACE)
            for old, new in (WITHOUT_SKIPS | TEXTS).items():
                text = text.replace(old, new)
        file = Path(folder, f"{name}.py")
        file.write_text(text)
        return junit.run(file, "-k", "not Baby")


def _source(name: str) -> Path:
    spec = find_spec("torchft")
    if spec is None or not spec.submodule_search_locations:
        raise OSError("torchft is not installed here")
    return Path(spec.submodule_search_locations[0], f"{name}.py")


def main() -> None:
    backend, *names = sys.argv[1:]
    versions = ", ".join(f"{d.name} {d.version}" for d in importlib.metadata.distributions() if "torchft" in d.name)
    for name in filter(has, names or FILES):
        print(f"{versions} on {backend}: {name}: {run(backend, name)}", flush=True)


if __name__ == "__main__":
    main()
