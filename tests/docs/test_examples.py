"""The examples: one trains alike by DDP and by every form of FSDP2, two go on as ranks die."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from lab_programs import needs_namespaces
from reader import CLONE, PYTHON
from versions import needs_reconfigure

from fairring import lab

TIMEOUT_SECONDS = 300
EXAMPLES = CLONE / "examples"


def losses(form: str, file: Path) -> list[float]:
    command = [PYTHON, str(EXAMPLES / "train_transformer.py"), "--parallel", form, "--steps", "3", "--json", str(file)]
    with lab.Lab(command, [2, 2], "none") as running:
        ended = running.wait(TIMEOUT_SECONDS)
    assert ended.exit_codes == [0] * 4, ended.output
    report = json.loads(file.read_text())
    assert report["parallel"] == form
    assert len(set(report["parameter_hashes"])) == 1
    found: list[float] = report["losses"]
    return found


@pytest.mark.slow
def test_the_example_has_the_same_losses_in_every_form_of_parallel_training(tmp_path: Path) -> None:
    expected = losses("ddp", tmp_path / "ddp.json")
    for form in ("fsdp", "fsdp-machine", "hsdp"):
        assert losses(form, tmp_path / f"{form}.json") == pytest.approx(expected, rel=1e-5)


@needs_namespaces
@pytest.mark.slow
@needs_reconfigure
def test_the_elastic_example_goes_on_as_a_machine_dies_and_another_joins() -> None:
    example = str(EXAMPLES / "elastic_membership.py")
    command = [PYTHON, example, "--kills", "1", "--every", "0.4", "--away", "0.2"]
    ended = subprocess.run(command, cwd=CLONE, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)
    assert ended.returncode == 0, ended.stderr
    lines = (
        r"8 train .* s after machine \d was ready to join",
        "6 train .* s after machine 0 was killed",
        "8 train .* s after machine 0 was ready to join",
        "parameters are equal on all 8 workers: True",
    )
    assert re.search(r"[\s\S]*".join(lines), ended.stdout), ended.stdout


@pytest.mark.slow
def test_the_example_of_fsdp_loads_its_checkpoint_onto_the_ranks_that_are_left() -> None:
    command = [PYTHON, str(EXAMPLES / "fsdp_after_deaths.py")]
    ended = subprocess.run(command, cwd=CLONE, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    for line in ("2 survivors load step-6", "two fresh ranks from the same checkpoint are equal: True"):
        assert line in ended.stdout


@needs_namespaces
@pytest.mark.slow
def test_a_reader_can_measure_every_collective_beside_gloo() -> None:
    """The ranks of `fairring bench` hand each other Python objects, for which torch needs numpy."""
    command = [PYTHON, "-m", "fairring", "bench", "all-reduce", "--machines", "2", "--ranks", "1"]
    command += ["--sizes", "4KiB", "--iterations", "3"]
    ended = subprocess.run(command, cwd=CLONE, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "4KiB" in ended.stdout
