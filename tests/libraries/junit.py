"""The outcome of a file of tests that others wrote, run by pytest in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree


@dataclass
class Result:
    passed: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)  # with the reason
    failed: dict[str, str] = field(default_factory=dict)  # with the first line of the error

    def __str__(self) -> str:
        lines = [f"{len(self.passed)} passed, {len(self.failed)} failed, {len(self.skipped)} skipped"]
        lines += [f"  failed {name}: {text}" for name, text in sorted(self.failed.items())]
        lines += [f"  skipped {count}: {why}" for why, count in sorted(Counter(self.skipped.values()).items())]
        return "\n".join(lines)


def run(file: Path, *options: str) -> Result:
    """Runs it in its folder, which gets a report."""
    report = file.with_suffix(".xml")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout", "120", *options]
    subprocess.run([*command, f"--junitxml={report}", str(file)], cwd=file.parent, stdout=sys.stderr, check=False)
    result = Result()
    for case in ElementTree.parse(report).iter("testcase"):
        name = f"{case.get('classname', '').split('.')[-1]}.{case.get('name')}"
        kinds = {child.tag: child.get("message", "") for child in case}
        if "failure" in kinds or "error" in kinds:
            text = kinds.get("failure") or kinds.get("error", "")
            result.failed[name] = text.partition("\n")[0][:300]
        elif "skipped" in kinds:
            result.skipped[name] = kinds["skipped"]
        else:
            result.passed.append(name)
    return result
