"""The result of a lab that is over: a value without behaviour."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LabResult:
    """Lists are indexed by rank. Exit codes as in a shell: 128+n for a rank that signal n ended.

    first_failed: the rank that was the first to end with a code other than 0, None if all ended well.
    unshaped_because: why the machines share one network without shaping; None when each has its own.
    """

    exit_codes: list[int]
    stdout: list[str]
    stderr: list[str]
    seconds: float
    first_failed: int | None
    unshaped_because: str | None

    @property
    def exit_code(self) -> int:
        """The first failing rank's code; 0 if there is none."""
        return 0 if self.first_failed is None else self.exit_codes[self.first_failed]

    @property
    def output(self) -> list[str]:
        """Per rank, its stdout and then its stderr."""
        return [out + err for out, err in zip(self.stdout, self.stderr, strict=True)]
