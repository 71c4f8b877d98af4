"""The doctor's results, as one value for both outputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fairring.config import Config, ConfigError
from fairring.doctor import findings, installation, machine, network, trials, variables


def examine(environment: Mapping[str, str], seconds: float) -> dict[str, Any]:
    """seconds: how long the ranks of a trial wait for each other. Secret values are left out of all texts."""
    imports = installation.imports(environment)
    settings, config = _settings(environment)
    works = not (settings["error"] or imports["torch"]["error"] or imports["module"]["error"])
    report = {
        "versions": installation.versions(),
        **imports,
        "machine": machine.describe(),
        "network": network.describe(environment),
        "variables": variables.in_force(environment),
        "settings": settings,
        "trials": trials.run(environment, seconds) if works else [],
    }
    report["findings"] = [vars(finding) for finding in findings.of(report, config, environment)]
    cleaned: dict[str, Any] = variables.without_secrets(report, environment)
    return cleaned


def _settings(environment: Mapping[str, str]) -> tuple[dict[str, str], Config]:
    """Default settings if those in force can't be used."""
    try:
        return {"error": ""}, Config.from_environment(environment)
    except ConfigError as error:
        return {"error": str(error)}, Config()
