"""Prints which lines of the CUDA sources the tests reach: first those of the simulated accelerator, then with all that
runs on emulated devices.

    python tests/emulated_cuda/reached_lines.py BUILD CLANG

BUILD: CMake's folder, <root>/build/torch-<minor>/cmake, which `make cover-cuda` has compiled by CLANG for its counters.
The package is put into <root>, and the tests are run from there: some processes look for it in the current directory
first. Counters lie in files that processes map, so those of a rank that is killed, or that ends by os._exit, count too.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import NamedTuple

CHECKOUT = Path(__file__).resolve().parents[2]
CSRC = CHECKOUT / "csrc"
SOURCES = ("device/*", "base/cuda_*", "backend/*device*", "backend/cuda_*", "backend/*nccl*")
TESTS = [str(CHECKOUT / "tests" / folder) for folder in ("emulated_cuda", "gpu")]
Place = tuple[str, int]  # a file and a line


class Reached(NamedTuple):
    """How often each was reached."""

    lines: dict[Place, int]
    functions: dict[Place, tuple[int, str]]  # by where they begin; each with a name


def main() -> int:
    build, clang = Path(sys.argv[1]).resolve(), sys.argv[2]
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    root, module = build.parents[2], build / f"_core{suffix}"
    package = root / "src" / "fairring"
    shutil.rmtree(package, ignore_errors=True)
    shutil.copytree(CHECKOUT / "src" / "fairring", package, ignore=shutil.ignore_patterns("_core_*", "__pycache__"))
    minor = build.parent.name.removeprefix("torch-").replace(".", "_")
    shutil.copy(module, package / f"_core_{minor}{suffix}")

    device, cuda = (build / "tests/cpp" / f"fairring_{layer}_tests" for layer in ("device", "cuda"))
    pytest = [
        str(Path(sys.executable).with_name("pytest")),
        "-c",
        str(CHECKOUT / "pyproject.toml"),
        "-m",
        "gpu and not slow",
    ]
    pytest += ["--numprocesses", "2", "--dist", "loadfile", *TESTS]
    emulated = [str(CHECKOUT / "tests/emulated_cuda/run"), str(build)]
    objects = [module, device, cuda]
    before = _reached(root / "before", clang, objects, root, [[str(device), "--gtest_brief=1"]])
    commands = [[*emulated, str(cuda), "--gtest_brief=1"], [*emulated, *pytest]]
    after = _reached(root / "after", clang, objects, root, commands)
    _print(before, after)
    return 0


def _reached(folder: Path, clang: str, objects: list[Path], root: Path, commands: list[list[str]]) -> Reached:
    """Of the CUDA sources, by these commands."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(root / "src"), "LLVM_PROFILE_FILE": f"{folder}/%m%c.profraw"}
    for command in commands:
        subprocess.run(command, cwd=root, env=environment, check=True)
    merged = folder / "merged"
    subprocess.run([_tool(clang, "llvm-profdata"), "merge", *folder.glob("*.profraw"), "-o", merged], check=True)
    export: list[str | Path] = [
        _tool(clang, "llvm-cov"),
        "export",
        "-format=lcov",
        "-instr-profile",
        merged,
        objects[0],
    ]
    export += [word for other in objects[1:] for word in ("-object", other)]
    done = subprocess.run(export, check=True, capture_output=True, text=True)
    return _read(done.stdout)


def _tool(clang: str, name: str) -> Path:
    """Of that Clang: another one's does not read its files."""
    return Path(clang).resolve().parent / name


def _read(report: str) -> Reached:
    sources = {source: str(source.relative_to(CSRC)) for pattern in SOURCES for source in CSRC.glob(pattern)}
    reached = Reached({}, {})
    file = ""
    begins: dict[str, int] = {}  # of the file, by their names
    for line in report.splitlines():
        word, _, rest = line.partition(":")
        if word == "SF":
            file, begins = sources.get(Path(rest).resolve(), ""), {}
        elif not file:
            continue
        elif word == "FN":
            begin, _, name = rest.partition(",")
            begins[name] = int(begin)
        elif word == "FNDA":  # a function of a header has several names
            times, _, name = rest.partition(",")
            place = (file, begins[name])
            known = reached.functions.get(place, (0, name))
            reached.functions[place] = (known[0] + int(times), known[1])
        elif word == "DA":
            number, times = rest.split(",")[:2]
            place = (file, int(number))
            reached.lines[place] = reached.lines.get(place, 0) + int(times)
    return reached


def _print(before: Reached, after: Reached) -> None:
    files = sorted({file for file, _ in after.lines})
    print("| file | lines | by the simulated accelerator | on emulated devices |", "|---|---|---|---|", sep="\n")
    for file in [*files, ""]:
        of_file = [place for place in after.lines if file in ("", place[0])]
        counts = [sum(reached.lines.get(place, 0) > 0 for place in of_file) for reached in (before, after)]
        print(f"| {file or 'all'} | {len(of_file)} | {counts[0]} | {counts[1]} |")
    print("\nFunctions that nothing reaches on emulated devices:")
    unreached = {place: name for place, (times, name) in sorted(after.functions.items()) if times == 0}
    names = subprocess.run(["c++filt", *unreached.values()], check=True, capture_output=True, text=True).stdout
    for (file, line), name in zip(unreached, names.splitlines(), strict=True):
        print(f"{file}:{line} {name}")
    print("\nLines that nothing reaches there:")
    for file in files:
        missed = [number for (of, number), times in sorted(after.lines.items()) if of == file and times == 0]
        if missed:
            print(f"{file}: {', '.join(map(str, missed))}")


if __name__ == "__main__":
    sys.exit(main())
