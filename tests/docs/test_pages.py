"""The documentation is whole: links resolve, every public name, error and module is there."""

import inspect
import re
from pathlib import Path

import pytest

import bloomery
from bloomery import BloomFilter, errors
from docs.pages import DOCS, TREE, blocks, name_of, pages, prose

PAGES = [pytest.param(page, id=name_of(page)) for page in pages()]
ERRORS = [
    value
    for value in vars(errors).values()
    if isinstance(value, type) and issubclass(value, errors.BloomeryError)
]


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


def public_names() -> list[str]:
    """The public methods and properties of a filter."""
    return [name for name, _ in inspect.getmembers(BloomFilter) if not name.startswith("_")]


def test_every_public_name_is_documented() -> None:
    """All that is public in the package and on a filter is in the reference."""
    reference = (DOCS / "reference.md").read_text("utf-8")
    code = " ".join(re.findall(r"`([^`\n]+)`", reference))
    missing = [
        name
        for name in [*bloomery.__all__, *public_names()]
        if not re.search(rf"(?<!\w){re.escape(name)}(?!\w)", code)
    ]
    assert not missing


def test_the_reference_names_nothing_that_is_not_there() -> None:
    """Methods and properties that the reference's tables list exist."""
    text = (DOCS / "reference.md").read_text("utf-8").partition("## Errors")[0]
    cells = re.findall(r"^\| ([^|]*`[^|]*) \|", text.replace("\\|", "or"), re.M)
    named = {
        name
        for cell in cells
        for name in re.findall(r"`(?:BloomFilter\.)?([a-z_]+)(?:\(.*?\))?`", cell)
    }
    assert len(named) > 25
    assert named <= set(public_names()) | {"memoryview"}


def test_signatures_in_the_reference() -> None:
    """Where the reference writes out arguments, the method has them by these names."""
    text = (DOCS / "reference.md").read_text("utf-8")
    for name, written in re.findall(
        r"`(?:BloomFilter\.)?(?!memoryview)([a-z_]+)\(([^)]*)\)`", text
    ):
        arguments = set(re.findall(r"(?<![\"\w.])\*?([a-z_]+)(?=[,=]|$)", written))
        real = set(inspect.signature(getattr(BloomFilter, name)).parameters) - {"self"}
        assert arguments == real, name


@pytest.mark.parametrize("error", ERRORS, ids=lambda e: e.__name__)
def test_every_error_is_documented(error: type[errors.BloomeryError]) -> None:
    """Each error has a row: its class, the class it also is, and its code."""
    base = error.__bases__[-1].__name__
    row = f"| `{error.__name__}` | `{base}` | `{error.code}` |"
    assert row in (DOCS / "reference.md").read_text("utf-8")


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
