"""Trains the same model with Ray Train (ray[train]): `python examples/launchers/ray_train.py --workers 4`

Ray starts the workers where its cluster has room, makes the process group of the given backend, and train.py's loop
runs in it as it does under torchrun.
"""

from __future__ import annotations

import argparse
from typing import Any

from ray.train import ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer


def worker(settings: dict[str, Any]) -> None:
    from train import train

    train(settings["steps"], None)


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a small model with Ray Train.")
    parser.add_argument("--backend", default="fairring", help="process group (default %(default)s)")
    parser.add_argument("--workers", type=int, default=2, help="ranks, each with a core (default %(default)s)")
    parser.add_argument("--steps", type=int, default=10, help="of the optimizer (default %(default)s)")
    arguments = parser.parse_args()
    trainer = TorchTrainer(
        worker,
        train_loop_config={"steps": arguments.steps},
        torch_config=TorchConfig(backend=arguments.backend),
        scaling_config=ScalingConfig(num_workers=arguments.workers, resources_per_worker={"CPU": 1}),
    )
    trainer.fit()


if __name__ == "__main__":
    main()
