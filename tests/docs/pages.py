"""The pages of the documentation, and what stands on them."""

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

TREE = Path(__file__).resolve().parents[2]
DOCS = TREE / "docs"


class Block(NamedTuple):
    """A fenced block: where it begins, the words behind its fence, and its text."""

    line: int
    info: str
    text: str


def pages() -> list[Path]:
    """Every page a user reads."""
    return [TREE / "README.md", *sorted(DOCS.rglob("*.md")), *sorted(TREE.glob("examples/*.md"))]


def name_of(page: Path) -> str:
    return str(page.relative_to(TREE))


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page."""
    found = re.finditer(r"^```([^\n`]*)\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S)
    for match in found:
        line = match.string.count("\n", 0, match.start(2)) + 1
        yield Block(line, match[1].strip(), match[2])


def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.M | re.S)


def links(page: Path) -> list[str]:
    """What a page links to within the tree, as it is written; pictures are no links."""
    found: list[str] = re.findall(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)", prose(page))
    return [target for target in found if not re.match(r"[a-z]+:", target)]


def script(name: str) -> Any:
    """A script that makes a page, as a module."""
    path = TREE / "scripts" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
