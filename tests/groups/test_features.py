"""c10d's features on fairring, and docs/compatibility.md's tables of them. `make features` tries gloo as well.

What fails is expected to, for the reason in features/shortcomings.py, and nothing else is.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from features import compatibility, shortcomings
from features.table import Feature, features
from features.world import Worlds


@pytest.fixture(scope="module")
def worlds() -> Iterator[Worlds]:
    worlds = Worlds()
    yield worlds
    worlds.end()
    assert not worlds.faults, "\n".join(worlds.faults)


def _expected(feature: Feature) -> list[pytest.MarkDecorator]:
    reason = shortcomings.FAIRRING.get(feature.key)
    return [] if reason is None else [pytest.mark.xfail(strict=True, reason=reason)]


@pytest.mark.parametrize("feature", [pytest.param(f, id=f.key, marks=_expected(f)) for f in features()])
def test_it_works(worlds: Worlds, feature: Feature) -> None:
    outcome = feature.play(worlds, "fairring")
    assert outcome.word == "ok", str(outcome)


def test_shortcomings_are_those_of_features() -> None:
    keys = {feature.key for feature in features()}
    for listed in shortcomings.OF.values():
        assert not set(listed) - keys


def test_the_document_has_the_tables_as_they_are() -> None:
    words = compatibility.written_words()
    for feature, ended in words.items():
        for backend, listed in shortcomings.OF.items():
            assert (ended[backend] == "ok") == (feature.key not in listed), feature.name
    assert compatibility.written() == compatibility.tables(words)
