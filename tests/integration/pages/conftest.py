"""A browser for the tests of pages: Debian's chromium, one process for a test worker.

Each test has a context of its own, as a private window is: no cookies, no files. Whatever the page
complains about in its console, the Content-Security-Policy above all, fails the test.
"""

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from conftest import missing, require
from integration.conftest import open_folder
from integration.servers import BloomeryServer
from waiting import PATIENCE, wait_until

EVIL = "evil.example"  # leads to this machine, for pages of others
PATIENT = 1000 * PATIENCE  # milliseconds, as Playwright has them

OpenPage = Callable[..., Any]


@pytest.fixture(scope="session")
def _chromium() -> Iterator[str]:
    """Where to talk to a browser that runs."""
    require("playwright.sync_api")
    program = shutil.which("chromium")
    if program is None:
        missing("chromium")
    with open_folder() as folder:
        log = folder / "log"
        options = [
            *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
            *("--no-first-run", "--disable-extensions", "--disable-component-update"),
            *("--disable-background-networking", "--remote-debugging-port=0"),
            f"--host-resolver-rules=MAP {EVIL} 127.0.0.1",
            f"--user-data-dir={folder / 'profile'}",
        ]
        with log.open("wb") as printed:
            process = subprocess.Popen([program, *options], stdout=printed, stderr=printed)
        try:
            wait_until(lambda: _address(log) or process.poll() is not None)
            address = _address(log)
            assert address is not None, log.read_text()
            yield address
        finally:
            process.terminate()
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _address(log: Path) -> str | None:
    found = re.search(r"DevTools listening on (ws://\S+)", log.read_text())
    return None if found is None else found[1]


# Of a module and not of all tests: while it is there, a loop runs in this thread, and a test
# elsewhere could not run one of its own.
@pytest.fixture(scope="module")
def browser(_chromium: str) -> Iterator[Any]:
    """The browser."""
    with require("playwright.sync_api").sync_playwright() as playwright:
        yield playwright.chromium.connect_over_cdp(_chromium, timeout=PATIENT)


@pytest.fixture
def complaints() -> list[str]:
    """What pages print to their console; a test that expects some takes them out."""
    return []


@pytest.fixture
def context(browser: Any) -> Iterator[OpenPage]:
    """A new private window: `context(color_scheme="dark")`, as Playwright's `new_context`."""
    with ExitStack() as ends:

        def make(**options: Any) -> Any:
            made = browser.new_context(**options)
            made.set_default_timeout(PATIENT)
            ends.callback(made.close)
            return made

        yield make


@pytest.fixture
def visit(context: OpenPage, complaints: list[str]) -> Iterator[OpenPage]:
    """Open a page of a server: `visit(server, "/ui/filters", within=window)`; in the end nothing
    may have been wrong with any."""

    def open_page(server: BloomeryServer, path: str, *, within: Any = None, **options: Any) -> Any:
        page = (within or context(**options)).new_page()
        page.on("console", lambda told: complaints.extend([told.text] * (told.type == "error")))
        page.on("pageerror", lambda problem: complaints.append(str(problem)))
        page.goto(f"{server.url}{path}")
        return page

    yield open_page
    assert complaints == []
