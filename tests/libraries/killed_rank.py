"""Runs a program and kills rank 1, in its first life, in the middle of a step: python killed_rank.py PROGRAM ...

The optimizer's sixth step does it: the other ranks are in their next all-reduce then, or about to be.
"""

import itertools
import os
import runpy
import signal
import sys

from torch.optim.optimizer import register_optimizer_step_pre_hook

LAST_STEP = 6
steps = itertools.count(1)


def kill(*_: object) -> None:
    last = next(steps) == LAST_STEP
    if last and os.environ["RANK"] == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        os.kill(os.getpid(), signal.SIGKILL)


register_optimizer_step_pre_hook(kill)
sys.argv.pop(0)
runpy.run_path(sys.argv[0], run_name="__main__")
