"""What the connection of HTTP uses of uvicorn's internals is there, and nothing else imports them:
after an upgrade of uvicorn this says what has changed before a client does."""

from __future__ import annotations

import ast
import asyncio
import inspect
import logging
import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

from uvicorn import Config

import bloomery
from bloomery.service.http import uvicorn_internals
from bloomery.service.http.uvicorn_internals import (
    FlowControl,
    HttpToolsProtocol,
    RequestResponseCycle,
    ServerState,
)

# Attributes and methods that are read, set, called or overridden.
PROTOCOL = {
    *("access_logger", "app", "cycle", "expect_100_continue", "flow", "headers", "logger", "loop"),
    *("parser", "pipeline", "scope", "transport", "_start_asgi_task", "on_body", "on_header"),
    *("_unset_keepalive_if_required", "connection_lost", "connection_made", "data_received"),
    *("on_headers_complete", "on_message_begin", "on_message_complete", "on_response_complete"),
    *("on_url", "pause_writing", "resume_writing", "send_400_response", "shutdown"),
}
CYCLE = {
    *("chunked_encoding", "disconnected", "expected_content_length", "flow", "keep_alive", "send"),
    *("message_event", "on_response", "response_complete", "response_started", "scope"),
    *("transport", "waiting_for_100_continue", "receive", "run_asgi"),
}
CYCLE_PARAMETERS = {
    *("scope", "transport", "flow", "logger", "access_logger", "access_log", "default_headers"),
    *("message_event", "expect_100_continue", "keep_alive", "on_response"),
}
FLOW = {
    *("read_paused", "write_paused", "pause_reading", "resume_reading", "pause_writing"),
    *("resume_writing", "drain"),
}
STATE = {"connections", "tasks"}


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Answer nothing."""


def missing(thing: object, names: set[str]) -> set[str]:
    """Those of the names that it has not."""
    return {name for name in names if not hasattr(thing, name)}


def test_what_is_used_is_there() -> None:
    """A protocol, a cycle, flow control and the shared state have every attribute that is used."""

    async def look() -> None:
        state, transport = ServerState(), asyncio.Transport()
        config = Config(app, interface="asgi3", ws="none", lifespan="off", log_config=None)
        config.load()
        protocol = HttpToolsProtocol(config, state, {}, asyncio.get_running_loop())
        protocol.on_message_begin()  # it sets the URL
        assert missing(protocol, PROTOCOL | {"url"}) == set()
        assert missing(state, STATE) == set()
        flow = FlowControl(transport)
        assert missing(flow, FLOW) == set()
        logger = logging.getLogger("bloomery.test")
        cycle = RequestResponseCycle(
            scope=protocol.scope,
            transport=transport,
            flow=flow,
            logger=logger,
            access_logger=logger,
            access_log=False,
            default_headers=[],
            message_event=asyncio.Event(),
            expect_100_continue=False,
            keep_alive=True,
            on_response=lambda: None,
        )
        assert missing(cycle, CYCLE) == set()
        assert {*inspect.signature(RequestResponseCycle).parameters} == CYCLE_PARAMETERS

    asyncio.run(look())


def test_nothing_else_imports_internals() -> None:
    """One module of the package imports more of uvicorn than `uvicorn.Config`."""
    package = Path(bloomery.__file__).parent
    own = Path(uvicorn_internals.__file__)
    for source in sorted(package.rglob("*.py")):
        for node in ast.walk(ast.parse(source.read_text("utf-8"))):
            modules = [name.name for name in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            inside = [module for module in modules if module.startswith("uvicorn.")]
            assert not inside or source == own, f"{source} imports {inside}"


def test_the_version_is_bounded() -> None:
    """The extra `serve` bounds uvicorn above, since its internals change between versions, and the
    version that the tests run with is within."""
    text = (Path(__file__).resolve().parents[4] / "pyproject.toml").read_text("utf-8")
    bounds = re.search(r'"uvicorn>=([0-9]+)\.([0-9]+),<([0-9]+)\.([0-9]+)"', text)
    assert bounds is not None
    least, most = (int(bounds[1]), int(bounds[2])), (int(bounds[3]), int(bounds[4]))
    major, minor, *_ = version("uvicorn").split(".")
    assert least <= (int(major), int(minor)) < most
