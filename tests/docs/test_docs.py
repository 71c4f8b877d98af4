"""The documents against what they speak of: variables, links, files, commands, error texts, layers."""

from __future__ import annotations

import re
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from fairring import cli, config
from fairring.bench.command import BENCHMARKS

sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "site"))
import gain

REPOSITORY = Path(__file__).parents[2]
DOCS = REPOSITORY / "docs"
README = REPOSITORY / "README.md"
CONFIGURATION = DOCS / "configuration.md"
TROUBLESHOOTING = DOCS / "troubleshooting.md"
DESIGN = DOCS / "design.md"
DOCUMENTS = [*sorted(REPOSITORY.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
README_BYTES = 8192
FOLDERS = ("src", "csrc", "docs", "examples", "benchmarks", "tests", "requirements", "third_party", ".ci")
LAYERS = ("base", "plan", "kernels", "transport", "exchange", "engine", "device", "group", "backend")
# Documents leave out the folder that these stand in.
ROOTS = {"fairring": "src", **dict.fromkeys(LAYERS, "csrc")}

each_document = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(REPOSITORY)))


def section(document: Path, heading: str) -> str:
    """The text under a heading, up to the next one of any depth."""
    match = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#|\Z)", document.read_text(), re.MULTILINE | re.DOTALL)
    assert match, f"{document.name} has no section {heading!r}"
    return match[1]


def rows(text: str) -> list[list[str]]:
    """The cells of all tables of a text, without their heads."""
    table = [
        [cell.strip().replace(r"\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in text.splitlines()
        if line.startswith("|")
    ]
    heads = {number - 1 for number, row in enumerate(table) if set("".join(row)) == {"-"}}
    return [row for number, row in enumerate(table) if number not in heads and number - 1 not in heads]


def code(text: str) -> list[str]:
    """The texts between backticks, in a line or as lines of a block."""
    blocks = re.findall(r"^```[^\n]*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    rest = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines()] + re.findall(r"`([^`\n]+)`", rest)


def anchors(document: Path) -> set[str]:
    return {slug(heading) for heading in re.findall(r"^#+ (.+)$", document.read_text(), re.MULTILINE)}


def slug(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def sources() -> str:
    """All texts that the code may show, with adjacent literals joined as the compilers join them."""
    files = [*(REPOSITORY / "csrc").rglob("*.cc"), *(REPOSITORY / "csrc").rglob("*.h")]
    files += (REPOSITORY / "src").rglob("*.py")
    return "\n".join(re.sub(r'"\s*\n\s*f?"', "", file.read_text()) for file in sorted(files))


def variables(document: Path, heading: str) -> list[tuple[str, ...]]:
    return [(name.strip("`"), default, meaning) for name, default, meaning in rows(section(document, heading))]


def test_the_table_of_variables_is_that_of_the_code() -> None:
    assert variables(CONFIGURATION, "Variables") == [(row.name, row.default, row.meaning) for row in config.VARIABLES]


def test_the_readme_says_of_five_variables_what_the_table_says() -> None:
    chosen = variables(README, "Configuration")
    assert len(chosen) == 5
    assert set(chosen) <= set(variables(CONFIGURATION, "Variables"))


def test_the_variables_that_must_be_equal_on_all_ranks_are_those_that_ranks_compare() -> None:
    paragraph = re.search(r"^\*\*Equal on all ranks\.\*\*.*$", CONFIGURATION.read_text(), re.MULTILINE)
    assert paragraph
    compared = re.findall(r"\b(FAIRRING_\w+)=", config.Config().agreement("1"))
    assert set(re.findall(r"`(FAIRRING_\w+)`", paragraph[0])) == set(compared)


def test_the_readme_stays_short() -> None:
    assert len(README.read_bytes()) <= README_BYTES


def test_the_readmes_figures_are_those_of_the_sections_that_it_links_to() -> None:
    for what, layout, *figures in rows(section(README, "Measured")):
        link = re.fullmatch(r"\[.*\]\((.*)#(.*)\)", what)
        assert link, what
        headings = re.findall(r"^#+ (.+)$", (REPOSITORY / link[1]).read_text(), re.MULTILINE)
        heading = next(heading for heading in headings if slug(heading) == link[2])
        table = rows(section(REPOSITORY / link[1], heading))
        measured = [set(" ".join(row).split()) for row in table if row[0] == layout]
        # Some tables have a row for each backend.
        measured += [above | below for above, below in pairwise(measured)]
        assert any({figure.split()[0] for figure in figures} <= row for row in measured), what


@each_document
def test_no_document_names_a_variable_that_is_not_there(document: Path) -> None:
    quoted = r"unknown variable FAIRRING_[A-Z_]+"  # in a table of errors
    named = set(re.findall(r"\bFAIRRING_[A-Z_]*[A-Z]\b", re.sub(quoted, "", document.read_text())))
    assert named <= {row.name for row in config.VARIABLES}


@each_document
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", document.read_text()):
        name, _, anchor = target.partition("#")
        assert ":" not in name, f"{target}: not a relative link"
        file = document.parent / name if name else document
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), target


@each_document
def test_files_that_are_named_exist(document: Path) -> None:
    for words in code(document.read_text()):
        for word in words.split():
            folder, _, rest = word.rstrip(",:.").partition("/")
            if rest and "*" not in rest and folder in (*FOLDERS, *ROOTS):
                root = REPOSITORY / ROOTS.get(folder, "")
                assert (root / folder / rest).exists(), f"{word} in {words!r}"


@each_document
def test_members_that_are_named_exist(document: Path) -> None:
    headers = [path.read_text() for path in (REPOSITORY / "csrc").rglob("*.h")]
    for words in code(document.read_text()):
        if match := re.fullmatch(r"([A-Z]\w+)::(\w+)", words):
            owner, member = (re.compile(rf"\b{name}\b") for name in match.groups())
            assert any(owner.search(text) and member.search(text) for text in headers), words


@pytest.mark.parametrize(("document", "heading"), [(README, "When something fails"), (TROUBLESHOOTING, "Errors")])
def test_error_texts_are_those_of_the_code(document: Path, heading: str) -> None:
    written = sources()
    table = rows(section(document, heading))
    assert table
    for text, _ in table:
        quoted = re.match(r"`([^`]+)`", text)
        assert quoted, text
        if "torch's own" not in text:
            assert quoted[1] in written


def test_the_table_of_layers_is_that_of_the_build() -> None:
    layers = {row[0]: row[1] for row in rows(section(DESIGN, "Layers"))}
    built = {path.parent.name: path.read_text() for path in (REPOSITORY / "csrc").glob("*/CMakeLists.txt")}
    assert set(layers) == set(built)
    for layer, text in built.items():
        roots = re.findall(rf"\bfairring_{layer} .*?SEES ([a-z ]+)|include_root\(_core ([a-z ]+)\)", text, re.DOTALL)
        assert roots, f"{layer}: nothing says what it may include"
        seen = {name for root in roots for name in "".join(root).split()}
        assert seen == (set(built) if layers[layer] == "all" else set(layers[layer].split(", ")))


def test_the_figures_are_pictures_and_shown() -> None:
    shown = "".join(document.read_text() for document in DOCUMENTS)
    for figure in (REPOSITORY / "docs" / "figures").iterdir():
        assert f"figures/{figure.name})" in shown
        assert figure.read_text().startswith("<svg ")


def test_the_picture_of_the_gain_is_drawn_from_the_table() -> None:
    assert (DOCS / "figures" / "gain.svg").read_text() == gain.draw()


def test_figures_of_the_home_page_can_be_read_on_a_telephone() -> None:
    text_width, legible = 368, 10  # of a window of 400 pixels; of letters
    for figure in re.findall(r"\]\((.*\.svg)\)", README.read_text()):
        match = re.search(r'viewBox="0 0 (\d+) .*font-size="(\d+)"', (REPOSITORY / figure).read_text())
        assert match, figure
        width, letters = map(int, match.groups())
        assert letters * text_width / width >= legible, figure


def test_the_page_of_the_api_names_what_there_is() -> None:
    for module, names, _ in rows(section(DOCS / "api.md", "Python API")):
        source = REPOSITORY / "src" / "/".join(code(module)[0].split("."))
        text = (source / "__init__.py" if source.is_dir() else source.with_suffix(".py")).read_text()
        for name in code(names):
            assert re.search(rf'^(def|class) {name}\b|"{name}"', text, re.MULTILINE), f"{module} has no {name}"


def test_the_page_of_commands_has_the_help_of_all() -> None:
    shown = re.findall(r"^<!-- help: (.*) -->$", (DOCS / "commands.md").read_text(), re.MULTILINE)
    assert sorted(shown) == sorted([*cli.COMMANDS, *(f"bench {name}" for name in BENCHMARKS)])
