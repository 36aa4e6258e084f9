"""A page of another origin in the same browser can do nothing to the server, and learn nothing."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from bloomery import Client
from conftest import require
from integration.access.conftest import PASSWORD, add_users
from integration.conftest import open_folder, started
from integration.pages.conftest import EVIL, OpenPage
from integration.servers import BloomeryServer
from waiting import wait_until

expect = require("playwright.sync_api").expect

# What it tries, each with what came of it. TARGET is the server as its users know it.
ATTACK = Path(__file__).with_name("attack.html").read_text()


class Attacker(BaseHTTPRequestHandler):
    """Serves the attack."""

    page = b""

    def do_GET(self) -> None:
        """Whatever is asked for."""
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(self.page)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture(params=["without users", "with users"])
def target(request: pytest.FixtureRequest) -> Iterator[tuple[BloomeryServer, str | None]]:
    """A server with a filter, and the token of its admin, if it has users."""
    with open_folder() as folder:
        token = None
        if request.param == "with users":
            token = next(one.token for one in add_users(folder / "data") if one.name == "admin-all")
        with started(BloomeryServer(folder), kill=True) as server:
            with Client(server.url, token=token) as client:
                client.create("secret-name", 1000).add("a key")
            yield server, token


def test_a_page_of_others_can_do_and_learn_nothing(
    visit: OpenPage, target: tuple[BloomeryServer, str | None], complaints: list[str]
) -> None:
    """Forms, fetches, beacons, images, scripts, styles, frames, windows, and a name of its own for
    this machine: of a browser whose user is logged in beside it."""
    server, token = target
    window = visit(server, "/ui/filters")
    if token is not None:
        window.get_by_label("Name").fill("admin-all")
        window.get_by_label("Password, or token").fill(PASSWORD)
        window.get_by_role("button", name="Log in").click()
    window.get_by_text("secret-name").wait_for()
    [static] = window.evaluate(
        "[document.querySelector('link[rel=stylesheet]').href.split('/').at(-2)]"
    )
    attack = ATTACK.replace("TARGET", server.url).replace("STATIC", static)
    Attacker.page = attack.encode()
    with ThreadingHTTPServer(("127.0.0.1", 0), Attacker) as others:
        threading.Thread(target=others.serve_forever, daemon=True).start()
        try:
            for host in (EVIL, "127.0.0.1"):  # another site, another port of this one
                evil = window.context.new_page()
                evil.goto(f"http://{host}:{others.server_port}/")
                expect(evil).to_have_title("done", timeout=60_000)
                learned = evil.evaluate("results")
                blind = {"blind clear": "opaque0", "blind create": "opaque0", "beacon": True}
                for name, came in learned.items():
                    assert came in ("failed", blind.get(name)), (host, name, came)
                framed = [frame.url for frame in evil.frames if frame.url.startswith(server.url)]
                assert not any("secret-name" in _text(frame) for frame in evil.frames[1:]), framed
                opened = evil.evaluate(
                    """url => { const w = window.open(url); try { return w.document.title; }
                    catch { return "failed"; } }""",
                    f"{server.url}/ui/filters",
                )
                assert opened in ("failed", "")
                evil.close()
            rebound = window.context.new_page()
            answer = rebound.goto(f"http://{EVIL}:{server.http_port}/ui/filters")
            assert answer.status == 403
            assert "secret-name" not in rebound.content()
            for path in ("/filters", "/filters/secret-name/clear"):
                told = rebound.evaluate(
                    "path => fetch(path, {method: path.endsWith('clear') ? 'POST' : 'GET'})"
                    ".then((answer) => answer.status, () => 0)",
                    path,
                )
                assert told in (0, 403)
            link = rebound.goto(f"http://{EVIL}:{others.server_port}/")
            assert link.status == 200
        finally:
            others.shutdown()
    with Client(server.url, token=token) as client:
        assert "a key" in client.filter("secret-name")
    login = {} if token is None else {"Authorization": f"Bearer {token}"}
    listed = httpx.get(f"{server.url}/filters", headers=login).json()["filters"]
    assert [one["name"] for one in listed] == ["secret-name"]
    complaints.clear()  # the browser complains of the attacks
    audit = (server.data / "audit.log").read_text().splitlines()
    done = [line for line in map(json.loads, audit) if line["operation"] == "clear"]
    assert [line["outcome"] for line in done if line["outcome"] == "done"] == []


def _text(frame: Any) -> str:
    """What a frame shows; nothing for the browser's own page of errors."""
    try:
        return str(frame.content())
    except require("playwright.sync_api").Error:
        return ""


@pytest.mark.parametrize("target", ["without users"], indirect=True)
def test_what_is_typed_is_in_no_log(
    visit: OpenPage, target: tuple[BloomeryServer, str | None]
) -> None:
    """A key and a password that were typed on a page are in no file that the server writes but the
    filter's own bits: not in its log of what happens, nor in the audit log."""
    server, _ = target
    page = visit(server, "/ui/filters/secret-name")
    page.locator("#test-key").fill("hunter2-key")
    page.locator("#test").get_by_role("button", name="Test").click()
    page.locator("#test-answer .notice").wait_for()
    page.locator("#add-key").fill("hunter2-key")
    page.locator("#add").get_by_role("button").click()
    page.locator("#add-answer .notice").wait_for()
    assert wait_until(lambda: (server.data / "audit.log").exists())
    files = [path for path in server.folder.rglob("*") if path.is_file()]
    assert [path.name for path in files if b"hunter2" in path.read_bytes()] == []
