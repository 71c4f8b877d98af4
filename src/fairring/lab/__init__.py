"""An emulated cluster on one machine: every emulated machine is a network namespace behind a shaped link.

    from fairring import lab
    result = lab.run(["python", "train.py"], machines=[2, 2], rate="1gbit", timeout=120)
    print(result.exit_code, result.stdout[0])

`Lab` is the same as a context manager that a test can reach into: signals to single ranks, links that go down and up,
commands inside a machine. `fairring lab` is the command line over it. Nothing here imports torch.
"""

from fairring.lab.cluster import LabError
from fairring.lab.lab import Lab, LabTimeoutError, run
from fairring.lab.result import LabResult

__all__ = ["Lab", "LabError", "LabResult", "LabTimeoutError", "run"]
