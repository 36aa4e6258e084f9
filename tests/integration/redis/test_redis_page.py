"""What docs/redis.md shows happens, against a real Redis, and what is listed is there."""

import ast
import inspect
import re

import pytest

import bloomery.integrations.redis as public
from docs.pages import DOCS, blocks
from docs.test_examples import run
from integration.servers import RedisServer, Serve

REDIS, FILTERS = "redis://localhost:6379", "6390"
KINDS = ["RedisFilter", "RedisCountingFilter", "RedisRotatingFilter"]


def reference() -> str:
    """The section of the reference."""
    text = (DOCS / "reference.md").read_text("utf-8")
    (section,) = re.findall(r"^## redis$(.*?)^## ", text, re.M | re.S)
    return str(section)


def members(kind: str) -> set[str]:
    """Its public names."""
    found = inspect.getmembers(getattr(public, kind))
    return {name for name, _ in found if not name.startswith("_")}


def test_the_page_runs(redis_server: RedisServer, serve: Serve) -> None:
    """The Python blocks of the page run in order, give what they say and leave nothing behind."""
    names: dict[str, object] = {"__name__": "__main__"}
    page = DOCS / "redis.md"
    shown = [block for block in blocks(page) if block.info == "python"]
    ports = {REDIS: redis_server.url, FILTERS: str(serve().resp_port)}
    for block in shown:
        text = block.text
        for written, real in ports.items():
            text = text.replace(written, real)
        run(text, block.line, page, names)
    assert len(shown) >= 8
    assert redis_server.run("DBSIZE") == 0


@pytest.mark.parametrize("kind", KINDS)
def test_the_reference_lists_every_method(kind: str) -> None:
    """Every public name of both classes is in the reference's section."""
    named = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`\n]+)`", reference()))))
    assert members(kind) | members(f"Async{kind}") <= named


@pytest.mark.parametrize("kind", KINDS)
def test_the_reference_has_the_signatures(kind: str) -> None:
    """What the reference's section says of how one is made is what the classes take."""
    written = re.findall(rf"`{kind}\.(\w+)\(([^`]*)\)`", reference())
    assert written
    for method, arguments in written:
        for one in (getattr(public, kind), getattr(public, f"Async{kind}")):
            real = inspect.signature(getattr(one, method)).parameters
            plain = arguments.replace("*, ", "").replace("**", "")
            assert re.findall(r"(?:^|, )(\w+)", plain) == list(real)
            for name, default in re.findall(r"(\w+)=([^,]+)", plain):
                assert ast.literal_eval(default) == real[name].default


@pytest.mark.parametrize("kind", KINDS)
def test_both_classes_do_the_same(kind: str) -> None:
    """What one of them has, the other has under the same name; `contains` is `in` for threads."""
    assert members(kind) | {"contains"} == members(f"Async{kind}")
    assert {kind, f"Async{kind}"} <= set(public.__all__)
