"""Wraps paragraphs of the pages that have a line of more than 120 characters; `make format` does.

Nothing else is touched: code blocks, tables, headings and paragraphs whose lines are short enough
stay as they are, and so does what a page renders to.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

TREE = Path(__file__).resolve().parent.parent
WIDTH = 120
_ITEM = re.compile(r"\s*(?:[-*+]|\d+\.)\s+")
_ALONE = re.compile(r"#{1,6} |<|---|\s*\|")  # a line that is no part of a paragraph
# What is not broken: links, pictures and code.
_WHOLE = re.compile(r"!?\[(?:[^\[\]`]|`[^`]*`)*\]\([^)]*\)|(`+).*?\1", re.S)
# What would be the beginning of something else at the beginning of a line.
_BOUND = re.compile(r"[-+#>|=]|\*$|\d+[.)]$|~~~|```")


def pages() -> list[Path]:
    """Every page that is wrapped."""
    top = [TREE / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    return [*top, *sorted((TREE / "docs").rglob("*.md"))]


def wrapped(text: str) -> str:
    """The text of a page with its long lines wrapped."""
    out: list[str] = []
    paragraph: list[str] = []
    fenced = False

    def end() -> None:
        breaks = any(line.endswith("  ") for line in paragraph)
        long = any(len(line) > WIDTH for line in paragraph)
        out.extend(_lines(paragraph) if long and not breaks else paragraph)
        paragraph.clear()

    for line in text.split("\n"):
        fence = line.lstrip().startswith("```")
        if fence or fenced or not line.strip() or _ALONE.match(line):
            end()
            out.append(line)
            fenced ^= fence
            continue
        if _ITEM.match(line):
            end()
        paragraph.append(line)
    end()
    return "\n".join(out)


def _lines(paragraph: list[str]) -> Iterator[str]:
    item = _ITEM.match(paragraph[0]) or re.match(r"\s*", paragraph[0])
    assert item is not None
    line, indent = item[0], " " * len(item[0])
    text = "\n".join([paragraph[0][len(line) :], *(rest.strip() for rest in paragraph[1:])])
    for word in _words(text):
        if len(line) + 1 + len(word) > WIDTH and line != item[0]:
            yield line
            line = indent + word
        else:
            line += word if line == item[0] else f" {word}"
    yield line


def _words(text: str) -> list[str]:
    """The parts of a paragraph between which it may be broken."""
    # A blank within a link or code is marked, and put back.
    marked = _WHOLE.sub(lambda found: "\0".join(found[0].split()), text)
    words: list[str] = []
    for word in (part.replace("\0", " ") for part in marked.split()):
        if words and _BOUND.match(word):
            words[-1] += f" {word}"
        else:
            words.append(word)
    return words


if __name__ == "__main__":
    for page in pages():
        page.write_text(wrapped(page.read_text("utf-8")), "utf-8")
