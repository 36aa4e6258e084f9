"""Every file that has published figures, as the results make it."""

from __future__ import annotations

from pathlib import Path

from benchmarks.summary import summary
from scripts.figures import code, engines, jobs, kinds, library, servers
from scripts.figures.blocks import MARKED, filled
from scripts.figures.results import RESULTS, TREE

PAGES = (engines, jobs, kinds, library, servers)
"""Whose functions are the blocks."""


def made() -> dict[Path, str]:
    pages = [TREE / "README.md", *sorted((TREE / "docs").glob("*.md"))]
    texts = {page: page.read_text("utf-8") for page in pages}
    files = {page: filled(text) for page, text in texts.items() if MARKED.search(text)}
    return files | code.made() | {RESULTS / "summary.md": summary(RESULTS)}
