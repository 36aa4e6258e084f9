"""The documentation is whole: links resolve, every module and decision is there."""

import re
from pathlib import Path

import pytest

from docs.pages import DOCS, TREE, blocks, name_of, pages, prose

PAGES = [pytest.param(page, id=name_of(page)) for page in pages()]


def slug(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def anchors(page: Path) -> set[str]:
    return {slug(found) for found in re.findall(r"^#+ (.*)$", prose(page), re.M)}


@pytest.mark.parametrize("page", PAGES)
def test_relative_links_resolve(page: Path) -> None:
    """Every link within the tree leads to a file that is there, and to a heading it has."""
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), target
        assert not anchor or anchor in anchors(there), target


@pytest.mark.parametrize("page", [p for p in pages() if p.name != "README.md"], ids=name_of)
def test_every_page_is_linked(page: Path) -> None:
    """Each page can be reached from the README or from the list it belongs to."""
    lists = [TREE / "README.md", DOCS / "decisions" / "README.md"]
    linked = {
        (one.parent / target.partition("#")[0]).resolve()
        for one in lists
        for target in re.findall(r"\]\(([^)\s]+)\)", one.read_text("utf-8"))
    }
    assert page in linked


def modules() -> list[Path]:
    """Every module of the crates and of the package."""
    return [
        path
        for folder in ("crates", "python/bloomery")
        for path in sorted((TREE / folder).rglob("*"))
        if path.suffix in {".rs", ".py", ".pyi"} and "target" not in path.parts
    ]


def test_architecture_names_what_is_there() -> None:
    """Every path that the architecture page names exists."""
    text = prose(DOCS / "architecture.md")
    named = re.findall(r"`((?:crates|python|tests|benchmarks|examples|scripts)/[\w./-]*)`", text)
    assert len(named) > 30
    assert [path for path in named if not (TREE / path).exists()] == []


@pytest.mark.parametrize("module", modules(), ids=name_of)
def test_architecture_names_every_module(module: Path) -> None:
    """Every module of the two crates and of the package has its place on the page."""
    text = (DOCS / "architecture.md").read_text("utf-8")
    command = TREE / "python" / "bloomery" / "cli"
    if module.parent == command:
        (listed,) = re.findall(r"^In `python/bloomery/cli/`:(.*?)^$", text, re.M | re.S)
        assert f"`{module.name}`" in listed
    else:
        assert f"`{name_of(module)}`" in text


def test_decisions_are_listed_in_order() -> None:
    """Decisions are numbered without a gap, and the list has each with its own title."""
    folder = DOCS / "decisions"
    listed = (folder / "README.md").read_text("utf-8")
    for number, page in enumerate(sorted(folder.glob("0*.md")), 1):
        assert page.name.startswith(f"{number:04}-")
        title = page.read_text("utf-8").splitlines()[0]
        assert title.startswith(f"# {number}. ")
        assert f"{title.removeprefix('# ').replace('. ', '. [', 1)}]({page.name})" in listed


@pytest.mark.parametrize("page", PAGES)
def test_fences_are_closed(page: Path) -> None:
    """Every fence that is opened is closed."""
    fences = len(re.findall(r"^```", page.read_text("utf-8"), re.M))
    assert fences == 2 * len(list(blocks(page)))


@pytest.mark.parametrize("page", PAGES)
def test_lines_are_short(page: Path) -> None:
    """No line of prose is longer than 120 characters, so that it can be read beside code and a
    change shows as a change. A table's row, and a line that is one link, cannot be broken."""
    unbreakable = re.compile(r"\|| *(\d+\. |- )?!?\[[^\]]*\]\([^)]*\)[.:]?$")
    long = [line for line in prose(page).splitlines() if len(line) > 120]
    assert [line for line in long if not unbreakable.match(line)] == []
