"""The names of levels, and settings of those above the machine: one value for both, or `rail=...,site=...`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

LEVELS = ("rail", "site")

Value = TypeVar("Value")


def level_names(sites: int) -> tuple[str, ...]:
    """The names of the planner's levels, by number."""
    return ("machine", "rail", "site" if sites > 1 else "groups")


class LevelError(Exception):
    """The text names an unknown level, or one level twice."""


def parse(text: str, default: Value, parse_one: Callable[[str], Value]) -> tuple[Value, Value]:
    """The values of rail and site; an unnamed level has the default. Raises LevelError, and what parse_one raises."""
    if "=" not in text:
        value = parse_one(text)
        return value, value
    found: dict[str, Value] = {}
    for part in text.split(","):
        level, _, value_text = part.strip().partition("=")
        if level not in LEVELS or level in found:
            raise LevelError(f"{part!r} is for no level; give rail=... or site=..., each once")
        found[level] = parse_one(value_text)
    rail, site = (found.get(level, default) for level in LEVELS)
    return rail, site


def describe(values: Sequence[object]) -> str:
    """The shortest text that parse() reads the same."""
    rail, site = values
    return str(rail) if rail == site else f"rail={rail},site={site}"
