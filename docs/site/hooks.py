"""What MkDocs does beside its own work: pages from outside of docs/, sources that pages link to, and --help texts.

The repository's README is the site's home page. A link to another file of the repository becomes a link to a page that
shows it. A line `<!-- help: lab -->` becomes a section with what `fairring lab --help` prints, and the lines of a
comment `<!-- site` are shown as if they were none: a reader of the files elsewhere sees neither.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

REPOSITORY = Path(__file__).parent.parent.parent
DOCS = REPOSITORY / "docs"
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/README.md": "benchmarks.md",
}
LINK = re.compile(r"(?<=\]\()([^)#\s]+)(?=[)#])")
HELP = re.compile(r"^<!-- help: (.*) -->$", re.MULTILINE)
SITE_ONLY = re.compile(r"^<!-- site\n(.*?)^-->$", re.MULTILINE | re.DOTALL)
LANGUAGES = {".py": "python", ".h": "cpp", ".cc": "cpp", ".yml": "yaml", ".toml": "toml"}


def on_files(files: Files, config: Any) -> Files:
    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=_linked(REPOSITORY / source, page)))
    for file in [file for file in files if file.is_documentation_page() and file.src_uri not in PAGES.values()]:
        file.content_string = _linked(DOCS / file.src_uri, file.src_uri)
    for source in sorted({name for file in files for name in _sources(file)}):
        files.append(File.generated(config, f"source/{source}.md", content=_shown(REPOSITORY / source)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        helps = threads.map(_help, HELP.findall(markdown))
        markdown = HELP.sub(lambda _: next(helps), markdown)
    return SITE_ONLY.sub(lambda match: match[1], markdown)


def _linked(source: Path, page: str) -> str:
    """A page's text, its links to files of the repository turned into links to pages of the site."""

    def target(match: re.Match[str]) -> str:
        path = (source.parent / match[0]).resolve()
        if ":" in match[0] or not path.is_file():
            return match[0]  # MkDocs says what is wrong with it
        return os.path.relpath(_page_of(path), Path(page).parent)

    return LINK.sub(target, source.read_text())


def _page_of(path: Path) -> str:
    name = path.relative_to(REPOSITORY).as_posix()
    if name in PAGES:
        return PAGES[name]
    return path.relative_to(DOCS).as_posix() if path.is_relative_to(DOCS) else f"source/{name}.md"


def _sources(file: File) -> list[str]:
    """Files of the repository that a page shows by a link."""
    if not file.is_documentation_page():
        return []
    return [found for link in LINK.findall(file.content_string) for found in re.findall(r"source/(.*)\.md$", link)]


def _shown(path: Path) -> str:
    name = path.relative_to(REPOSITORY).as_posix()
    return f"# {name}\n\n````{LANGUAGES.get(path.suffix, 'text')}\n{path.read_text()}\n````\n"


def _help(name: str) -> str:
    command = [sys.executable, "-m", "fairring", *name.split(), "--help"]
    environment = {**os.environ, "COLUMNS": "100", "PYTHONPATH": str(REPOSITORY / "src")}
    printed = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    depth = "#" * (name.count(" ") + 2)
    return f"{depth} fairring {name}\n```{{ .text .wrapped }}\n{printed.stdout}```\n"
