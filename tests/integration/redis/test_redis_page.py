"""What docs/redis.md shows happens, against a real Redis, and what is listed is there."""

import inspect
import re

import pytest

import bloomery.integrations.redis as public
from bloomery.integrations.redis import AsyncRedisFilter, RedisFilter
from docs.pages import DOCS, blocks
from docs.test_examples import run
from integration.servers import RedisServer

SHOWN = "redis://localhost:6379"


def test_the_page_runs(redis_server: RedisServer) -> None:
    """The Python blocks of the page run in order, and give what they say."""
    names: dict[str, object] = {"__name__": "__main__"}
    page = DOCS / "redis.md"
    shown = [block for block in blocks(page) if block.info == "python"]
    for block in shown:
        run(block.text.replace(SHOWN, redis_server.url), block.line, page, names)
    assert len(shown) >= 4
    assert redis_server.run("DBSIZE") == 0


@pytest.mark.parametrize("one", [RedisFilter, AsyncRedisFilter])
def test_the_reference_lists_every_method(one: type) -> None:
    """Every public name of both classes is in the reference's section."""
    text = (DOCS / "reference.md").read_text("utf-8")
    (section,) = re.findall(r"^## redis$(.*?)^## ", text, re.M | re.S)
    named = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`\n]+)`", section))))
    assert {name for name, _ in inspect.getmembers(one) if not name.startswith("_")} <= named
    for method in ("create", "open"):
        (written,) = re.findall(rf"`RedisFilter\.{method}\(([^`]*)\)`", section)
        real = inspect.signature(getattr(one, method)).parameters
        assert re.findall(r"(?:^|, )(\w+)", written.replace("*, ", "")) == list(real)
        for name, default in re.findall(r"(\w+)=([^,]+)", written):
            assert eval(default) == real[name].default


def test_both_classes_do_the_same() -> None:
    """What one of them has, the other has under the same name; `contains` is `in` for threads."""
    mine, theirs = (
        {name for name, _ in inspect.getmembers(one) if not name.startswith("_")}
        for one in (RedisFilter, AsyncRedisFilter)
    )
    assert mine | {"contains"} == theirs
    assert {"RedisFilter", "AsyncRedisFilter"} <= set(public.__all__)
