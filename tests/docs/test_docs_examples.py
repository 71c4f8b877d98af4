"""The documents, played: their blocks are run as they are shown, and a block that is wrong fails.

A `python` block is the file that its title names. A `bash` block runs beside these files: on the machine that its title
names, both at once, or on a machine of its own. A `text` block is what the commands before it print, but for decimal
fractions, which depend on the processor; with the title "for example" another machine printed it, and only what the
lines begin with is compared. test_docs_commands.py looks at all other blocks.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from lab_programs import REPOSITORY, needs_namespaces
from reader import CLONE, ENVIRONMENT

from fairring import lab

PAGES = (
    "README.md",
    *(f"docs/{name}.md" for name in ("check", "failures", "lab", "plan", "tls", "traffic")),
    *(f"docs/tutorials/{name}.md" for name in ("ddp", "elastic", "fsdp", "sites", "sparse")),
)
TIMEOUT_SECONDS = 240
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
EXAMPLE = "for example"
ANY_PROGRAM = 'import os\nprint("rank", os.environ["RANK"])\n'  # for a page that speaks of train.py and shows none
MACHINES = ("on the first machine", "on the second machine")
ADDRESS = "10.0.0.1"  # of the first of them, in the pages
# Starts in the directory, without the lab's variables for interfaces: a real machine has none of these variables.
START = 'cd "$0" && unset TP_SOCKET_IFNAME GLOO_SOCKET_IFNAME && . "./machine-$RANK"'

pytestmark = needs_namespaces


@dataclass
class Player:
    """Plays a page in a directory. printed: the commands' output since the last `text` block that was compared."""

    folder: Path
    printed: str = ""
    waiting: list[str] = field(default_factory=list)  # what the first machine does

    def play(self, language: str, title: str, text: str) -> None:
        if language == "python" and title:
            (self.folder / title).write_text(text)
        elif language == "bash" and title == MACHINES[0]:
            self.waiting = [text]
        elif language == "bash":
            self.printed += self.run([*self.waiting, text] if title == MACHINES[1] else [text])
        elif language == "text" and title == EXAMPLE:
            assert heads(text) <= heads(self.printed), self.printed
        elif language == "text":
            assert_printed(text, self.printed)
            self.printed = ""

    def run(self, commands: list[str]) -> str:
        """Runs each command on a machine of the lab, except those that make a lab of their own."""
        if "fairring lab" in commands[0]:
            shell = ["bash", "-euo", "pipefail", "-c", commands[0]]
            done = subprocess.run(
                shell,
                cwd=self.folder,
                env=ENVIRONMENT,
                capture_output=True,
                text=True,
                timeout=TIMEOUT_SECONDS,
                check=False,
            )
            assert done.returncode == 0, done.stdout + done.stderr
            return done.stdout
        for machine, command in enumerate(commands):
            (self.folder / f"machine-{machine}").write_text(command.replace(ADDRESS, "$MASTER_ADDR"))
        start = ["bash", "-euo", "pipefail", "-c", START, str(self.folder)]
        ended = lab.run(start, [1] * len(commands), "none", ENVIRONMENT, TIMEOUT_SECONDS)
        assert ended.exit_code == 0, ended.output
        return "\n".join(ended.stdout)


def assert_printed(shown: str, printed: str) -> None:
    there = {without_fractions(line) for line in printed.splitlines()}
    for line in shown.splitlines():
        assert without_fractions(line) in there, f"{line!r} is not in\n{printed}"


def heads(text: str) -> set[str]:
    """The words at the left edge, without numbers: those of findings depend on the machine."""
    return set(re.findall(r"^[a-z]\w*", text, re.MULTILINE))


def without_fractions(line: str) -> str:
    return " ".join(re.sub(r"-?\d+\.\d+", "#", line).split())


@pytest.mark.timeout(900)  # a page starts up to twenty processes that import torch
@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_the_blocks_of_the_page_do_what_it_says(page: str, tmp_path: Path) -> None:
    folder = tmp_path if CLONE == REPOSITORY else CLONE  # where README leaves its reader
    player = Player(folder)
    (folder / "train.py").write_text(ANY_PROGRAM)
    blocks = BLOCK.findall((REPOSITORY / page).read_text())
    assert any(language == "bash" for language, _, _ in blocks)
    for language, title, text in blocks:
        player.play(language, title, text)


def test_every_page_with_commands_to_run_is_run() -> None:
    pages = [REPOSITORY / "README.md", *(REPOSITORY / "docs").rglob("*.md")]
    assert {str(path.relative_to(REPOSITORY)) for path in pages if "```bash" in path.read_text()} == {*PAGES}
