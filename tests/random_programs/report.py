"""Plays programs of many seeds and says which fail; exit code 1 if one does.

Usage: python tests/random_programs/report.py [--seeds N] [--first SEED] [--minimise] [--show] ...
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from random_programs.play import PATIENCE_SECONDS, ProgramError, Stage, minimised
from random_programs.program import STEPS, Program, draw_program


def main() -> int:
    arguments = _arguments()
    with Stage(arguments.patience) as stage:
        return bool(_report(arguments, stage))


def _report(arguments: argparse.Namespace, stage: Stage) -> list[int]:
    """The seeds that failed."""
    failed, played, begun = [], 0, time.monotonic()
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        program = draw_program(seed, arguments.steps)
        if arguments.only:
            program = program.with_steps(arguments.only)
        if arguments.show:
            print(program, *program.steps, sep="\n  ")
            continue
        before = time.monotonic()
        text = _failure(stage, program)
        played += len(program.steps)
        print(f"{program}: {'FAILED' if text else 'ok'}, {time.monotonic() - before:.1f} s", flush=True)
        if text:
            failed.append(seed)
            print(text, f"again: {again(program)}", sep="\n", flush=True)
            if stage.played:
                print(f"with what its ranks had played before: {again(program, stage.played)}", flush=True)
            if arguments.minimise:
                least = minimised(program, lambda fewer: bool(_failure(stage, fewer)))
                print(f"least: {again(least)}", *least.steps, sep="\n  ", flush=True)
    if not arguments.show:
        seconds = time.monotonic() - begun
        print(f"{arguments.seeds} programs, {played} steps, each twice, in {seconds:.0f} s; failed: {failed or 'none'}")
    return failed


def _failure(stage: Stage, program: Program) -> str:
    try:
        stage.play(program)
    except ProgramError as failure:
        return str(failure)
    return ""


def again(program: Program, before: int = 0) -> str:
    """The command that plays it. before: how many programs, of the seeds below, its ranks had played."""
    seeds = f"--seeds {before + 1} --first {program.seed - before}"
    words = f"python tests/random_programs/report.py {seeds} --steps {program.drawn}"
    if len(program.steps) == program.drawn:
        return words
    return f"{words} --only {','.join(map(str, program.numbers()))}"


def _numbers(text: str) -> set[int]:
    ranges = [part.partition("-") for part in text.split(",")]
    return {number for low, _, high in ranges for number in range(int(low), int(high or low) + 1)}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20, help="how many")
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--steps", type=int, default=STEPS, help="of each program")
    parser.add_argument("--only", type=_numbers, help="numbers of the steps to keep, as 3,7-9")
    parser.add_argument("--patience", type=float, default=PATIENCE_SECONDS, help="seconds that one run may take")
    parser.add_argument("--minimise", action="store_true", help="drop steps of failing programs while they fail")
    parser.add_argument("--show", action="store_true", help="print the programs, play nothing")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
