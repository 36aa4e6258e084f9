"""Writes tests/golden/urls.json: `python tests/golden/make_urls.py urltestdata.json`.

The input is the table of the web-platform-tests for the URL standard (url/resources in their
repository; the crate url 2.5.8 has it, too). The output has the URLs of the web, those that no
parser accepts, and of each what a browser makes of it. Its license is in urls-license.md.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from golden.make import FOLDER

VECTORS = FOLDER / "urls.json"
_WEB = ("http:", "https:", "ws:", "wss:", "ftp:")


def vectors(rows: list[Any]) -> list[list[str | None]]:
    """Return URL, base, and what a browser makes of them: host and URL, or None twice."""
    kept = []
    for row in rows:
        if isinstance(row, str):  # a heading
            continue
        if row.get("failure") or row["protocol"] in _WEB:
            base = None if row["base"] == "about:blank" else row["base"]
            kept.append([row["input"], base, row.get("hostname"), row.get("href")])
    return kept


if __name__ == "__main__":
    table = vectors(json.loads(Path(sys.argv[1]).read_text("utf-8")))
    lines = ",\n".join(json.dumps(one) for one in table)
    VECTORS.write_text(f"[\n{lines}\n]\n", "ascii")
