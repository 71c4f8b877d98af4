"""The tables in docs/compatibility.md: written by report.py, compared by tests."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from features import shortcomings
from features.table import AREAS, BACKENDS, Feature, features

Words = Mapping[Feature, Mapping[str, str]]  # how each feature ended on each backend

DOCUMENT = Path(__file__).parent.parent.parent / "docs" / "compatibility.md"
_BEGIN, _END = "<!-- written by make features -->\n", "<!-- to here -->\n"
_AREAS_HEAD = "| area | features | `ok` on both | what is tried |\n|---|---|---|---|\n"
_OTHERS_HEAD = "| area | feature | gloo | fairring | why not |\n|---|---|---|---|---|\n"
_TRIED = {
    "Reductions": "all operations and dtypes of all_reduce and reduce; views, sparse tensors, calls in flight, threads",
    "Exchanges": "all other collectives of tensors, with lists and single tensors, equal and unequal sizes, barriers",
    "Coalesced calls": "the coalescing manager, `_broadcast_coalesced`",
    "Objects": "all collectives and messages of objects, also in sub-groups",
    "Messages": "send, recv, isend, irecv, batch_isend_irecv; tags, any source, sub-groups, threads",
    "Works": "wait, timeouts, results, futures, callbacks, sequence numbers",
    "Groups and meshes": "new_group in all forms, split_group, DeviceMesh of 1 to 3 dimensions, overlapping groups",
    "Making and ending groups": (
        "init methods, backends by device, TORCH_DISTRIBUTED_DEBUG=DETAIL, timeouts, rpc, reconfigure, shrink_group"
    ),
    "Observers": "the profiler, the flight recorder, hooks, what a group says of itself",
    "Functional and compiled": "functional collectives, torch.compile, torch.distributed.nn, with gradients",
    "DistributedDataParallel": (
        "buckets, static_graph, unused parameters, no_sync, join, buffers, bfloat16, compiled models, equal bits"
    ),
    "Gradient hooks and model averages": "fp16, bf16, PowerSGD, quantization, post-local SGD, hooks in C++",
    "Sharded training": "FSDP2, HSDP, FSDP1, ZeroRedundancyOptimizer",
    "Tensors in parts": "DTensor, tensor and context parallelism, with FSDP2 on a 2D mesh",
    "Pipelines": "GPipe, 1F1B, interleaved, looped, zero bubble, a traced model",
    "Checkpoints": "DCP of plain and sharded tensors, async_save, FSDP2's and DDP's states",
}


def write(words: Words) -> None:
    before, _, rest = DOCUMENT.read_text().partition(_BEGIN)
    _, _, after = rest.partition(_END)
    DOCUMENT.write_text(f"{before}{_BEGIN}{tables(words)}{_END}{after}")


def tables(words: Words) -> str:
    """The counts of each area, then the features that do not work on both backends."""
    working = {backend: sum(each[backend] == "ok" for each in words.values()) for backend in BACKENDS}
    areas = "".join(_area_row(title, words) for title in (area.title for area in AREAS))
    others = "".join(_row(feature, each) for feature, each in words.items() if not _works_on_both(each))
    return (
        f"\n{len(words)} features: {working['gloo']} work on gloo, {working['fairring']} on fairring.\n"
        f"\n{_AREAS_HEAD}{areas}\nThe features that are not `ok` on both:\n\n{_OTHERS_HEAD}{others}\n"
    )


def written() -> str:
    """The document's tables as they are."""
    _, _, rest = DOCUMENT.read_text().partition(_BEGIN)
    return rest.partition(_END)[0]


def written_words() -> Words:
    """As the document has them: features without a row are ok."""
    found = {}
    for line in written().splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 5:
            found[cells[0], cells[1]] = dict(zip(BACKENDS, cells[2:4], strict=True))
    ok = dict.fromkeys(BACKENDS, "ok")
    return {feature: found.get((feature.area.title, feature.name), ok) for feature in features()}


def _area_row(title: str, words: Words) -> str:
    ended = [each for feature, each in words.items() if feature.area.title == title]
    return f"| {title} | {len(ended)} | {sum(map(_works_on_both, ended))} | {_TRIED[title]} |\n"


def _row(feature: Feature, ended: Mapping[str, str]) -> str:
    cells = (feature.area.title, feature.name, ended["gloo"], ended["fairring"], shortcomings.reasons(feature.key))
    return f"| {' | '.join(cells)} |\n"


def _works_on_both(ended: Mapping[str, str]) -> bool:
    return all(word == "ok" for word in ended.values())
