"""Writes every file that has published figures."""

from __future__ import annotations

import sys

from benchmarks.summary import Unpublishable
from scripts.figures.files import made

if __name__ == "__main__":
    try:
        for path, text in made().items():
            path.write_text(text, "utf-8")
    except Unpublishable as problem:
        sys.exit(f"not published: {problem}")
