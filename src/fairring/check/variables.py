"""The variables in force that decide how a job runs. The values of those that keep or show a secret are not told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PREFIXES = ("FAIRRING_", "TORCH", "PYTORCH_", "PET_", "NCCL_", "GLOO_", "TP_", "OMP_", "KMP_", "MKL_", "CUDA_")
NAMES = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "GROUP_WORLD_SIZE",
    "ROLE_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "PYTHONPATH",
    "SLURM_JOB_ID",
    "SLURM_PROCID",
    "SLURM_NTASKS",
)
SECRET_WORDS = ("SECRET", "KEY", "TOKEN", "PASSWORD", "PASSWD", "CREDENTIAL")
HIDDEN = "(set)"
LEAST_SECRET = 4  # characters: shorter values, such as "1", occur in texts that reveal nothing


def in_force(environment: Mapping[str, str]) -> dict[str, str]:
    chosen = {name for name in environment if name.startswith(PREFIXES)} | (set(NAMES) & set(environment))
    return {name: HIDDEN if _is_secret(name) else environment[name] for name in sorted(chosen)}


def _is_secret(name: str) -> bool:
    return any(word in name.upper() for word in SECRET_WORDS)


def without_secrets(value: Any, environment: Mapping[str, str]) -> Any:
    """The same value of lists, dicts and texts, in which no text shows the value of a secret variable."""
    if isinstance(value, dict):
        return {key: without_secrets(one, environment) for key, one in value.items()}
    if isinstance(value, list):
        return [without_secrets(one, environment) for one in value]
    if isinstance(value, str):
        hidden = [text for name, text in environment.items() if _is_secret(name) and len(text) >= LEAST_SECRET]
        for text in sorted(hidden, key=len, reverse=True):
            value = value.replace(text, HIDDEN)
    return value
