"""A page in Debian's chromium that has imported bloomery.js, from a server that sends a folder."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from bloomery.browser import MODULE
from conftest import missing, require

Run = Callable[..., Any]


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A folder and its address; bloomery.js is in it."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copyfile(MODULE, folder / "bloomery.js")
    (folder / "index.html").write_text("<!doctype html><title>a page</title>", "utf-8")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield folder, f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()
    thread.join()


# Of a module: while it is there, a loop runs in this thread, and no other test could run its own.
@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium, without a window."""
    playwright = require("playwright.sync_api")
    program = shutil.which("chromium")
    if program is None:
        missing("chromium")
    options = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    with playwright.sync_playwright() as running:
        opened = running.chromium.launch(executable_path=program, args=options)
        yield opened
        opened.close()


@contextmanager
def opened(browser: Any, address: str) -> Iterator[Any]:
    """A page in a window of its own, with the module as `bloomery`; nothing may go wrong in it."""
    context = browser.new_context()
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda problem: problems.append(str(problem)))
    page.goto(address)
    page.evaluate(SET_UP)
    yield page
    context.close()
    assert problems == []


@pytest.fixture(scope="module")
def page(browser: Any, site: tuple[Path, str]) -> Iterator[Any]:
    """A page for all tests of a module, which leave nothing there that others would find."""
    with opened(browser, site[1]) as shared:
        yield shared


@pytest.fixture
def window(browser: Any, site: tuple[Path, str]) -> Iterator[Any]:
    """A page for one test: it begins with nothing stored."""
    with opened(browser, site[1]) as own:
        yield own


SET_UP = """async () => {
    window.bloomery = await import("./bloomery.js");
    window.bytes = (text) => Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
    // A key as JSON can carry it: ["bytes", base64], ["int", digits], ["tuple", parts], …
    window.key = ([type, value]) => ({
        str: () => value,
        bytes: () => bytes(value),
        int: () => BigInt(value),
        number: () => Number(value),
        tuple: () => value.map(key),
        uuid: () => bloomery.uuid(value),
        instant: () => bloomery.instant(value),
        clock: () => bloomery.clockTime(value),
    })[type]();
    window.refusal = async (work) => {
        try {
            await work();
        } catch (problem) {
            return [problem.name, problem.code ?? null, problem.reason ?? null, problem.message];
        }
        return null;
    };
}"""
