"""The demo's notion of equality: the two trainings may differ by the order of summation and by nothing else."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

pytest.importorskip("matplotlib", reason="the demo draws a plot: pip install 'torch-fairring[plot]'")
import demo

STEPS = 12


def result(loss: float = 3.0, norm: float = 1.0, step: int = STEPS) -> demo.Result:
    """A training whose values are all 3 and 1, except for those of one step."""
    losses, norms = [3.0] * STEPS, [1.0] * STEPS
    losses[step - 1], norms[step - 1] = loss, norm
    return {"losses": losses, "gradient_norms": norms}


def test_noise_of_summation_is_agreement() -> None:
    agreement = demo.compare(result(), result(3.0 * (1 + 5e-7), 1 + 5e-7, step=2))
    assert agreement.broken is None
    assert agreement.early == pytest.approx(5e-7, rel=1e-3)


@pytest.mark.parametrize(
    ("ours", "words"),
    [
        (result(loss=3.0 * (1 + 2e-6), step=5), "step 5: losses"),
        (result(loss=3.0 * (1 + 2e-5), step=11), "step 11: losses"),
        (result(norm=1.001, step=1), "step 1: gradient_norms"),
        (result(loss=math.nan), f"step {STEPS}: losses"),
    ],
)
def test_anything_more_is_told_with_its_step(ours: demo.Result, words: str) -> None:
    broken = demo.compare(result(), ours).broken
    assert broken is not None
    assert words in broken
