"""The scripts of examples/launchers, each started by its launcher: two machines of two ranks, with the losses of gloo.

The machines are the lab's, with networks of their own; or Slurm's daemons or groups of MPI's ranks on this machine,
which FAIRRING_MACHINE tells apart. kubernetes.yaml is checked against the schema only.
"""

from __future__ import annotations

import importlib.util
import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import torch
from lab_programs import REPOSITORY, needs_namespaces

from fairring import lab
from libraries import slurm_cluster
from libraries.slurm_cluster import SlurmCluster

LAUNCHERS = REPOSITORY / "examples" / "launchers"
TRAIN = LAUNCHERS / "train.py"
KILLED_RANK = Path(__file__).parent / "killed_rank.py"
BIN = Path(sys.executable).parent
TIMEOUT_SECONDS = 800  # a safety net: Ray alone takes minutes on two cores
MACHINES, RANKS, STEPS = 2, 2, 8
WORDS = ["--steps", str(STEPS)]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(TIMEOUT_SECONDS + 100)]


def environment(**changes: str) -> dict[str, str]:
    return {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1", **changes}


def run(command: list[str], **changes: str) -> str:
    """From the repository's root; what it printed, once it has ended well."""
    done = subprocess.run(
        command,
        cwd=REPOSITORY,
        env=environment(**changes),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def run_in_lab(script: str, **changes: str) -> str:
    """A command of bash on each machine of the lab; what the first one printed."""
    command = ["bash", "-c", script]
    with lab.Lab(command, [1] * MACHINES, "none", env=environment(**changes)) as running:
        ended = running.wait(TIMEOUT_SECONDS)
    assert ended.exit_codes[0] == 0, ended.output
    return ended.stdout[0]


def losses(output: str) -> dict[int, float]:
    """By step; the last one said counts."""
    return {int(step): float(loss) for step, loss in re.findall(r"step (\d+) loss ([0-9.]+)", output)}


@pytest.fixture(scope="module")
def expected() -> dict[int, float]:
    words = ["--standalone", f"--nproc-per-node={MACHINES * RANKS}", str(TRAIN), "--backend", "gloo", *WORDS]
    found = losses(run([sys.executable, "-m", "torch.distributed.run", *words]))
    assert len(found) == STEPS
    return found


def check(output: str, expected: dict[int, float]) -> None:
    """All steps, the losses of gloo, and bytes that went from machine to machine."""
    assert losses(output) == pytest.approx(expected, rel=1e-4), output
    assert re.search(r"rail: [1-9]\d* messages", output), output


@needs_namespaces
def test_torchrun_restarts_after_a_killed_rank_and_goes_on_from_the_checkpoint(
    tmp_path: Path, expected: dict[int, float]
) -> None:
    shutil.copy(LAUNCHERS / "torchrun.sh", tmp_path)
    words = [str(KILLED_RANK), str(TRAIN)]
    (tmp_path / "train.py").write_text(
        f"import runpy, sys\nsys.argv[:1] = {words}\nrunpy.run_path({words[0]!r}, run_name='__main__')\n"
    )
    arguments = f"{' '.join(WORDS)} --checkpoint {tmp_path}/model.pt"
    output = run_in_lab(f"HOST=$MASTER_ADDR exec {tmp_path}/torchrun.sh $GROUP_RANK {arguments}")
    check(output, expected)
    assert re.findall(r"from step (\d+) on", output) == ["0", "4"], output
    assert torch.load(tmp_path / "model.pt", weights_only=True)["step"] == STEPS


@pytest.mark.skipif(bool(slurm_cluster.missing()), reason=slurm_cluster.missing())
def test_slurm_starts_a_rank_for_each_task(tmp_path: Path, expected: dict[int, float]) -> None:
    shim = tmp_path / "bin" / "python"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nFAIRRING_MACHINE=$SLURMD_NODENAME exec {sys.executable} "$@"\n')
    shim.chmod(0o755)
    output = tmp_path / "output"
    changes = {"PATH": f"{shim.parent}:{os.environ['PATH']}", "MASTER_ADDR": "127.0.0.1"}
    with SlurmCluster(tmp_path, MACHINES, RANKS) as slurm:
        code = slurm.submit(LAUNCHERS / "slurm.sh", WORDS, changes, output)
    assert code == 0, output.read_text() if output.exists() else slurm.logs()
    check(output.read_text(), expected)


@pytest.mark.parametrize("mpirun", ["/usr/bin/mpirun", str(BIN / "mpirun")], ids=["debian", "wheel"])
def test_mpirun_starts_the_ranks(mpirun: str, expected: dict[int, float]) -> None:
    if shutil.which(mpirun) is None:
        pytest.skip(f"no {mpirun} here: apt-get install openmpi-bin, or make test-libraries")
    command = [mpirun, "--allow-run-as-root", "--oversubscribe"]
    for machine in range(MACHINES):
        command += [":"] if machine else []
        command += ["-np", str(RANKS), "-x", "MASTER_ADDR=127.0.0.1", "-x", f"FAIRRING_MACHINE=machine{machine}"]
        command += [str(LAUNCHERS / "mpirun.sh"), *WORDS]
    check(run(command), expected)


@needs_namespaces
def test_accelerate_starts_the_ranks(expected: dict[int, float]) -> None:
    if importlib.util.find_spec("accelerate") is None:
        pytest.skip("accelerate is not installed here: make test-libraries")
    words = f"--multi_gpu --num_machines {MACHINES} --num_processes {MACHINES * RANKS} --machine_rank $GROUP_RANK"
    meeting = "--main_process_ip $MASTER_ADDR --main_process_port $MASTER_PORT --mixed_precision no --dynamo_backend no"
    check(run_in_lab(f"exec accelerate launch {words} {meeting} {TRAIN} {' '.join(WORDS)}"), expected)


@needs_namespaces
def test_ray_train_takes_the_backend_by_its_name(expected: dict[int, float]) -> None:
    if importlib.util.find_spec("ray") is None:
        pytest.skip("ray is not installed here: make test-libraries")
    with tempfile.TemporaryDirectory(prefix="ray") as folder:  # sockets lie in it: pytest's own path is too long
        os.mkfifo(f"{folder}/end")
        train = f"python {LAUNCHERS}/ray_train.py --workers {MACHINES * RANKS} {' '.join(WORDS)}"
        script = f"""
          own=$(ip -4 -br address show eth0 | awk '{{print $3}}' | cut -d/ -f1)
          unset RANK WORLD_SIZE LOCAL_RANK
          if [ $GROUP_RANK = 0 ]; then
            ray start --head --node-ip-address=$own --port=6379 --num-cpus={RANKS} --include-dashboard=false \
              --temp-dir={folder} --block >&2 &
            RAY_ADDRESS=$own:6379 {train}
            code=$?
            echo > {folder}/end
          else
            ray start --address=$MASTER_ADDR:6379 --node-ip-address=$own --num-cpus={RANKS} --block >&2 &
            read < {folder}/end
          fi
          kill %1
          wait %1
          exit ${{code:-0}}
        """
        quiet = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0"}
        token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        check(run_in_lab(script, **token, **quiet), expected)


def test_the_manifests_are_those_of_kubernetes_and_kubeflow() -> None:
    validate = shutil.which("kubernetes-validate", path=str(BIN))
    if validate is None:
        pytest.skip("kubernetes-validate is not installed here: make test-libraries")
    said = run([validate, "--strict", str(LAUNCHERS / "kubernetes.yaml")])
    assert "service/train" in said
    assert "job/train" in said
    models = pytest.importorskip("kubeflow_trainer_api.models")
    yaml = pytest.importorskip("yaml")
    written = yaml.safe_load((LAUNCHERS / "kubeflow.yaml").read_text())
    assert models.TrainerV1alpha1TrainJob.from_dict(written).to_dict() == written
