"""What docs/redis-kinds.md shows happens, against a real Redis."""

import ast
import inspect
import re

import pytest

from bloomery.integrations import redis as public
from docs.pages import DOCS, blocks
from docs.test_examples import run
from integration.servers import RedisServer


def test_the_page_runs(redis_server: RedisServer) -> None:
    """The Python blocks of the page run in order, give what they say and leave nothing behind."""
    page = DOCS / "redis-kinds.md"
    shown = [block for block in blocks(page) if block.info == "python"]
    with redis_server.client() as client:
        names: dict[str, object] = {"__name__": "__main__", "redis": client}
        for block in shown:
            run(block.text, block.line, page, names)
        assert not client.keys()
    assert len(shown) >= 5


@pytest.mark.parametrize("kind", ["RedisFilter", "RedisCountingFilter", "RedisRotatingFilter"])
def test_both_classes_do_the_same(kind: str) -> None:
    """What the one for threads has, that for asyncio has; `contains` is `in` for threads."""
    mine, theirs = (
        {name for name, _ in inspect.getmembers(getattr(public, one)) if not name.startswith("_")}
        for one in (kind, f"Async{kind}")
    )
    assert mine | {"contains"} == theirs


@pytest.mark.parametrize("kind", ["RedisFilter", "RedisCountingFilter", "RedisRotatingFilter"])
def test_the_reference_has_the_signatures(kind: str) -> None:
    """What the reference's section says of how one is made is what the class takes."""
    text = (DOCS / "reference.md").read_text("utf-8")
    (section,) = re.findall(r"^## redis kinds$(.*?)^## ", text, re.M | re.S)
    written = re.findall(rf"`{kind}\.(\w+)\(([^`]*)\)`", section)
    assert written
    for method, arguments in written:
        for one in (getattr(public, kind), getattr(public, f"Async{kind}")):
            real = inspect.signature(getattr(one, method)).parameters
            plain = arguments.replace("*, ", "").replace("**", "")
            assert re.findall(r"(?:^|, )(\w+)", plain) == list(real)
            for name, default in re.findall(r"(\w+)=([^,]+)", plain):
                assert ast.literal_eval(default) == real[name].default
