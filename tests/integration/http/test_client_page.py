"""What docs/client.md shows happens, against a real server."""

from pathlib import Path

import pytest

from docs.pages import DOCS, blocks
from docs.test_examples import run
from integration.servers import Serve

SHOWN = "http://127.0.0.1:8100"


def test_the_page_runs(serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Python blocks of the page run in order against a new server, and give what they say."""
    server = serve()
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    page = DOCS / "client.md"
    used = 0
    for block in blocks(page):
        assert block.info == "python"
        used += block.text.count(SHOWN)
        run(block.text.replace(SHOWN, server.url), block.line, page, names)
    assert used == 2
