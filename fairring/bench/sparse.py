"""Measures all-reduces of sparse gradients beside dense ones of the same table, on gloo and on fairring in turns.

    fairring bench sparse --machines 2 --ranks 4 --rate 1gbit --json sparse.json
    fairring bench sparse --machines 2 --ranks 2 --rows 50000 --densities 0.1%,1% --indices zipf
    torchrun --nnodes 2 ... -m fairring bench sparse

Each rank touches as many different rows of a table as the density says, drawn uniformly or by Zipf's law. Every element
of every result is compared. Beside the counted bytes stand those that the best form needs for these rows. What would
not fit into memory is left out, with the reason. Exit code 1 if any element was wrong, or if something failed.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fairring.bench import launch, results
from fairring.bench.contestants import FLOOR, STOCK, Contestant, parse_contestants

if TYPE_CHECKING:
    from fairring.bench.job import Job
    from fairring.bench.progress import Reporter
    from fairring.bench.sparse_race import Entrant
    from fairring.bench.sparse_rows import Touched
    from fairring.bench.sparse_table import Measured

HELP = "sparse gradients: time and bytes by density, beside dense ones"
DTYPES = ("float32", "float64", "float16", "bfloat16")
FORMS = ("sparse", "dense")
INDICES = ("uniform", "zipf")


@dataclass(frozen=True)
class Options:
    contestants: list[Contestant]
    forms: list[str]
    rows: int
    width: int
    dtype: str
    courses: list[tuple[str, float]]  # how the rows are drawn, and their share of the table
    warm_up: int
    iterations: int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--rows", type=int, default=200_000, metavar="N", help="of the table (default: %(default)s)")
    add("--width", type=int, default=256, metavar="N", help="elements of a row (default: %(default)s)")
    add("--dtype", choices=DTYPES, default="float32", help="default: %(default)s")
    densities = "0.1%,1%,5%,20%,50%"
    text = "share of the table that each rank touches (default: "
    add("--densities", default=densities, metavar="LIST", help=text + densities.replace("%", "%%") + ")")
    add("--indices", default=",".join(INDICES), metavar="LIST", help="how rows are drawn (default: %(default)s)")
    add("--forms", default=",".join(FORMS), metavar="LIST", help="of the tensors (default: %(default)s)")
    add("--backends", default=f"{STOCK},fairring", metavar="LIST", help="in turn (default: %(default)s)")
    add("--iterations", type=int, default=10, metavar="N", help="timed rounds (default: %(default)s)")
    add("--warmup", type=int, default=1, metavar="N", help="untimed ones before (default: %(default)s)")
    add("--json", type=Path, metavar="FILE", help="for the conditions, the rows and all samples")
    launch.add_arguments(parser)


def read(arguments: argparse.Namespace) -> Options:
    """Raises ValueError for what makes no sense."""
    for name, least in (("rows", 1), ("width", 1), ("iterations", 1), ("warmup", 0)):
        if getattr(arguments, name) < least:
            raise ValueError(f"--{name} {getattr(arguments, name)}: at least {least}")
    forms, indices = arguments.forms.split(","), arguments.indices.split(",")
    for name, values, known in (("forms", forms, FORMS), ("indices", indices, INDICES)):
        unknown = [value for value in values if value not in known]
        if unknown:
            raise ValueError(f"--{name}: {unknown[0]!r} is none of {', '.join(known)}")
    contestants = parse_contestants(arguments.backends)
    if any(one.backend == FLOOR for one in contestants):
        raise ValueError(f"--backends {arguments.backends}: {FLOOR} sums nothing that could be compared")
    return Options(
        contestants=contestants,
        forms=forms,
        rows=arguments.rows,
        width=arguments.width,
        dtype=arguments.dtype,
        courses=[(drawn, density(text)) for drawn in indices for text in arguments.densities.split(",")],
        warm_up=arguments.warmup,
        iterations=arguments.iterations,
    )


def density(text: str) -> float:
    """A share, from "0.1%" or "0.001"."""
    try:
        share = float(text.strip().removesuffix("%")) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise ValueError(f"--densities: {text!r} is no share of the table; write for instance 0.1%,50%")
    return share


def run(arguments: argparse.Namespace) -> int:
    return launch.run_joined(arguments, read, _measure)


def _measure(arguments: argparse.Namespace, chosen: Options, job: Job) -> int:
    """Returns the exit code, equal on all ranks."""
    from fairring.bench import conditions
    from fairring.bench.progress import reporting
    from fairring.bench.race import Racer
    from fairring.bench.sparse_race import Entrant
    from fairring.bench.sparse_table import Speeds, make_rows, show

    links, site_links = [job.measure_link()], [job.measure_site_link()]
    racers = [Racer(contestant) for contestant in chosen.contestants]
    entrants = [Entrant(racer, form) for form in chosen.forms for racer in racers]
    with reporting(job.is_first, len(chosen.courses) * (chosen.warm_up + chosen.iterations)) as report:
        measured = [_run(chosen, course, entrants, job, report) for course in chosen.courses]
    links.append(job.measure_link())
    site_links.append(job.measure_site_link())
    fastest, site_fastest = (max((one.slowest for one in of if one), default=None) for of in (links, site_links))
    rows = [row for one in measured for row in make_rows(one, Speeds(fastest, site_fastest))]
    if job.is_first:
        facts = conditions.conditions(arguments, job.places, [conditions.here()])
        facts["link_bytes_per_second"] = [asdict(link) for link in links if link]
        facts["site_link_bytes_per_second"] = [asdict(link) for link in site_links if link]
        facts |= {"rows": chosen.rows, "width": chosen.width, "dtype": chosen.dtype}
        facts["left_out"] = [text for one in measured for text in one.left_out]
        if rows:
            show(facts, rows)
        results.write(arguments.json, "sparse", facts, [asdict(row) for row in rows])
    return 1 if any(row.wrong for row in rows) else 0


def _run(chosen: Options, course: tuple[str, float], entrants: list[Entrant], job: Job, report: Reporter) -> Measured:
    from fairring.bench.sparse_bound import Table, bounds
    from fairring.bench.sparse_race import obstacle, race
    from fairring.bench.sparse_table import Measured

    drawn, share = course
    name = f"{share:.3g} of the rows, {drawn}"
    report.now(name)
    touched = _touched(chosen, course, job.place.world)
    why = {entrant: obstacle(entrant, touched) for entrant in entrants}
    running = [entrant for entrant in entrants if why[entrant] is None]
    left_out = [f"{name}: {one.backend}, {one.form} {text}" for one, text in why.items() if text]
    for text in left_out:
        report.done(f"left out: {text}")
    scores = race(touched, running, (chosen.warm_up, chosen.iterations), job.places, report.advance)
    table = Table(chosen.rows, chosen.width * touched.dtype.itemsize, len(touched.union))
    measured = Measured(
        drawn,
        share,
        max(map(len, touched.of_rank)),
        table,
        bounds(touched.brought(job.places), table),
        [(one.backend, one.form, score) for one, score in zip(running, scores, strict=True)],
        left_out,
    )
    medians = (
        f"{who} {form} {sorted(score.seconds)[len(score.seconds) // 2] * 1e3:.1f} ms"
        for who, form, score in measured.scores
    )
    report.done(f"{name}: {', '.join(medians)}")
    return measured


def _touched(chosen: Options, course: tuple[str, float], world: int) -> Touched:
    import torch

    from fairring.bench.sparse_rows import Touched, touched

    drawn, share = course
    count = max(1, round(share * chosen.rows))
    of_rank = [touched(chosen.rows, count, drawn, rank) for rank in range(world)]
    return Touched(chosen.rows, chosen.width, getattr(torch, chosen.dtype), of_rank)
