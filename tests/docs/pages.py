"""The pages of the documentation, and what stands on them."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

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
