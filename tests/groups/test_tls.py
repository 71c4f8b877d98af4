"""Connections under TLS: the same results, and an error that names both sides if ranks don't trust each other."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from certificates import Authority
from forked_programs import forked_program
from lab_programs import RUN_SECONDS, needs_namespaces

from fairring import _core, lab

pytestmark = needs_namespaces


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def run_apart(of_rank: Sequence[Mapping[str, str]], name: str = "first_error") -> lab.LabResult:
    """One all-reduce of ranks on machines of their own, each with variables of its own."""
    cases = "".join(
        f"{rank}) {' '.join(f'export {name}={shlex.quote(value)};' for name, value in env.items()) or ':'} ;;"
        for rank, env in enumerate(of_rank)
    ).replace("; ;;", " ;;")
    command = ["sh", "-c", f'case $RANK in {cases} esac; exec "$@"', "sh", *forked_program(name)]
    with lab.Lab(command, [1] * len(of_rank), "none") as running:
        return running.wait(RUN_SECONDS)


def test_a_rank_without_tls_is_an_error_that_names_both_sides(authority: Authority) -> None:
    for text in run_apart([authority.issue("rank"), {}]).stdout:
        for words in ("settings differ between ranks", "rank 0 (", "FAIRRING_TLS=on", "rank 1 (", "FAIRRING_TLS=off"):
            assert words in text, text


@pytest.mark.parametrize("foreigner", [0, 1])
def test_a_rank_of_another_authority_is_an_error_that_names_both_sides(
    authority: Authority, tmp_path: Path, foreigner: int
) -> None:
    settings = [authority.issue("rank"), authority.issue("other")]
    settings[foreigner] = Authority(tmp_path, "foreign").issue("foreigner")
    for text in run_apart(settings).stdout:
        for words in ("rank 0 (", "rank 1 (", "TLS", "FAIRRING_TLS_CA"):
            assert words in text, text


def test_a_rank_that_was_refused_and_left_is_told_as_that(authority: Authority, tmp_path: Path) -> None:
    """On the other rank, which makes its first call when nobody listens there any more."""
    settings = [authority.issue("rank"), Authority(tmp_path, "foreign").issue("foreigner")]
    for text in run_apart(settings, "refused_and_left").stdout:
        for words in ("rank 0 (", "rank 1 (", "TLS", "FAIRRING_TLS_CA"):
            assert words in text, text


def test_files_that_cannot_serve_are_errors_when_the_group_is_made(authority: Authority, tmp_path: Path) -> None:
    good = authority.issue("good")
    wrong = {
        "has expired": authority.issue("expired", days=-1),
        "does not match": {**good, "FAIRRING_TLS_KEY": authority.issue("another")["FAIRRING_TLS_KEY"]},
        "would be refused": {**good, "FAIRRING_TLS_CA": str(Authority(tmp_path, "foreign").certificate)},
        "gives no key": {**good, "FAIRRING_TLS_KEY": good["FAIRRING_TLS_CERTIFICATE"]},
    }
    for words, env in wrong.items():
        options = _core.MembershipOptions()
        files = tuple(env[f"FAIRRING_TLS_{name}"] for name in ("CERTIFICATE", "KEY", "CA"))
        with pytest.raises(RuntimeError, match=words):
            options.tls = files  # type: ignore[assignment]
    for output in run_apart([wrong["has expired"], wrong["has expired"]]).output:
        assert "fairring.config.ConfigError: FAIRRING_TLS_CERTIFICATE=" in output, output
