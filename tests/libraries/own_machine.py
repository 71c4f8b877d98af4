"""Runs a program with each rank as if on a machine of its own: python own_machine.py PROGRAM [argument ...]"""

import os
import runpy
import sys

os.environ["FAIRRING_MACHINE"] = f"machine{os.environ['RANK']}"
sys.argv.pop(0)
runpy.run_path(sys.argv[0], run_name="__main__")
