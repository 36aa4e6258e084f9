"""What docs/migrate.md shows happens: ours against real servers, and the peers'."""

import re
from pathlib import Path

import pytest

from conftest import require
from docs.pages import DOCS, TREE, blocks
from docs.test_examples import PEERS, run
from integration.servers import RedisServer, Serve

PAGE = DOCS / "migrate.md"
# The module of a peer, where it is not called as its package.
MODULES = {"pybloom-live": "pybloom_live", "pybloomfiltermmap3": "pybloomfilter"}


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_our_blocks_run(redis_server: RedisServer, serve: Serve) -> None:
    """The blocks of ours run in order, give what they say, and leave nothing in Redis."""
    names: dict[str, object] = {"__name__": "__main__"}
    servers = {"redis://localhost:6379": redis_server.url, "6390": str(serve().resp_port)}
    shown = [block for block in blocks(PAGE) if block.info == "python"]
    assert len(shown) >= 10
    for block in shown:
        text = block.text
        for written, real in servers.items():
            text = text.replace(written, real)
        run(text, block.line, PAGE, names)
    assert redis_server.run("DBSIZE") == 0


@pytest.mark.parametrize("peer", PEERS)
def test_the_peers_blocks_run(peer: str) -> None:
    """What the page shows of a peer is what the peer does."""
    (block,) = [block for block in blocks(PAGE) if block.info == f"python {peer}"]
    assert re.search(rf"^{peer}$", (TREE / "requirements" / "bench.in").read_text("utf-8"), re.M)
    require(MODULES.get(peer, peer))
    run(block.text, block.line, PAGE, {"__name__": "__main__"})
