"""`fairring lab --emulated-gpus`: a script that knows nothing of it, on machines and devices that do not exist."""

from __future__ import annotations

import emulated_devices
import pytest
from lab_programs import TIMEOUT_SECONDS, program

from fairring import lab

pytestmark = [pytest.mark.gpu, emulated_devices.only_there]


def test_a_script_trains_on_two_machines_of_two_devices() -> None:
    environment = {"FAIRRING_CUDA": "on", "TORCH_CPP_LOG_LEVEL": "INFO"}
    command = program("ddp_on_cuda")
    with lab.Lab(command, [2, 2], rate="none", env=environment, emulated_gpus=2) as running:
        result = running.wait(4 * TIMEOUT_SECONDS)
    assert result.exit_codes == [0] * 4, result.output
    said = [text.split() for text in result.stdout]
    assert [words[0] for words in said] == ["cuda:0", "cuda:1"] * 2
    assert {words[1] for words in said} == {"2"}
    assert len({words[2] for words in said}) == 1, "the ranks' parameters differ"
    assert "fairring's: NCCL inside machines, tcp between them" in result.stderr[0]
