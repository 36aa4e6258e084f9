"""The documentation is whole: links resolve, every page, module and decision is there."""

import re
from pathlib import Path

import pytest

from docs.pages import DOCS, TREE, blocks, links, name_of, pages, prose, script

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


def test_every_page_can_be_reached() -> None:
    """Whoever begins at docs/README.md and follows links comes to every page, which the README at
    the top leads to."""
    start = DOCS / "README.md"
    reached, left = {start}, [start]
    while left:
        page = left.pop()
        for target in links(page):
            there = (page.parent / target.partition("#")[0]).resolve()
            if there.suffix == ".md" and there not in reached:
                reached.add(there)
                left.append(there)
    assert set(pages()) - {TREE / "README.md"} <= reached
    assert "docs/README.md" in links(TREE / "README.md")


def test_the_first_page_has_few_links() -> None:
    """The README links each feature to its page; docs/README.md gives each reader at most five."""
    assert len(links(TREE / "README.md")) <= 16
    for part in re.split(r"^## ", prose(DOCS / "README.md"), flags=re.M)[1:]:
        assert len(re.findall(r"\]\(", part)) <= 5, part.splitlines()[0]


@pytest.mark.parametrize("name", ["docs/architecture.md", "docs/promise.md", "CONTRIBUTING.md"])
def test_named_paths_are_there(name: str) -> None:
    """Every path of the tree that these pages name exists."""
    text = prose(TREE / name)
    named = re.findall(r"`((?:crates|python|tests|benchmarks|examples|scripts)/[\w./-]*)`", text)
    assert len(named) > 15
    assert [path for path in named if not (TREE / path).exists()] == []


def test_the_glossary_says_where_things_are() -> None:
    """The rooms and modules that the glossary names exist."""
    text = prose(DOCS / "glossary.md")
    named = re.findall(r"`((?:crates|service|guard|integrations)/[\w./-]*|\w+\.py)`", text)
    package = TREE / "python" / "bloomery"
    assert len(named) > 15
    assert [path for path in named if not (TREE / path).exists() | (package / path).exists()] == []


def test_the_architecture_is_short_and_has_every_room() -> None:
    """docs/architecture.md is read in five minutes, and its table of rooms is what
    `scripts/tree.py --page` makes of the docstrings."""
    text = (DOCS / "architecture.md").read_text("utf-8")
    assert len(text.splitlines()) <= 200
    assert text == script("tree").page()


def test_every_module_says_what_it_is() -> None:
    """Each module begins with a sentence about itself, which `make tree` prints."""
    tree = script("tree")
    wordless = [name_of(path) for path in tree.modules() if len(tree.sentence(path).split()) < 3]
    assert tree.modules()
    assert wordless == []


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


def test_wrapping_leaves_what_is_not_a_paragraph() -> None:
    """`make format` wraps long paragraphs and items, and nothing else; links and code are whole."""
    wrapped = script("wrap_pages").wrapped
    words, link = "word " * 30, "[a link of five words](page.md)"
    kept = f"# {words}\n\n| {words} |\n\n```\n{words}\n```\n\nshort\nlines\n"
    assert wrapped(kept) == kept
    lines = wrapped(f"- {words}{link} `some code` {words}- 1").splitlines()
    assert all(len(line) <= 120 for line in lines)
    assert all(line.startswith("- " if at == 0 else "  ") for at, line in enumerate(lines))
    assert any(link in line for line in lines)
    assert any("`some code`" in line for line in lines)
    assert not any(line.lstrip().startswith("- 1") for line in lines)
    assert [
        page for page in pages() if wrapped(page.read_text("utf-8")) != page.read_text("utf-8")
    ] == []
