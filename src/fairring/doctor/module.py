"""Imports Fairring's C++ module and prints what it finds here: `python -m fairring.doctor.module`, with torch."""

from __future__ import annotations

import json

from fairring import _core


def main() -> None:
    print(
        json.dumps(
            {
                "instruction_set": _core.instruction_set(),
                "rdma": _core.rdma_devices(),
                "rdma_obstacle": _core.rdma_obstacle(1),
                "why_no_cuda": _core.why_no_cuda(),
            }
        )
    )


if __name__ == "__main__":
    main()
