"""What the page about servers with BF.* shows happens, against a real server."""

from typing import Any

from bloomery import _native
from bloomery.integrations.redis.bf_keys import sent
from docs.pages import DOCS, blocks
from docs.test_examples import run
from integration.servers import Serve

PAGE = DOCS / "redis-bf.md"


def test_the_page_runs(serve: Serve) -> None:
    """Its Python gives what it says."""
    port = serve().resp_port
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(PAGE):
        run(block.text.replace("6390", str(port)), block.line, PAGE, names)
    names["server"].close()


def test_the_bytes_of_an_int() -> None:
    """For other clients, as the page has them."""
    assert sent(5).hex(" ").upper() in PAGE.read_text("utf-8")
    assert sent(5)[2:] == _native.canonical(5)
