"""No byte that a client sends breaks a page, or changes how others see one."""

import asyncio
import base64
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from starlette.routing import Route

from bloomery.service.http import app
from integration.access.conftest import MINE, add_users
from integration.conftest import open_folder, started
from integration.resp.wire import Connection
from integration.servers import BloomeryServer
from waiting import wait_until

# Bytes that are not UTF-8, surrogates in three spellings, controls, line ends, marks that reverse
# or hide text, markup, and names that are cut or look escaped.
HOSTILE: list[bytes] = [
    b"\xff",
    b"\x80\x81\xfe",
    b"\xed\xa0\x80",
    b"\xed\xb2\x80",
    b"\xf4\x90\x80\x80",
    b"\xc0\xaf",
    b"a\x00b",
    b"\x07\x08\x0b\x0c\x1b[31m\x7f",
    b"\r\nSet-Cookie: a=b\r\n\r\n",
    "\x85\x9b31m".encode(),
    "\u202etxt.exe\u202c".encode(),
    "\u2066a\u2067b\u2068c\u2069".encode(),
    "\u200b\u200e\u200f\u061c".encode(),
    "\u2028\u2029\ufeff".encode(),
    "\U000e0041\U000e007f".encode(),
    "\ufdd0\uffff\U0010ffff".encode(),
    b"</script><img src=x onerror=alert(1)>\"'{{7*7}}",
    rb"\udcff \x00 %ff \~",
    b"\xff" * 300,
    b"n" * 1016 + "ż".encode(),
    b"\xe2\x80\xae" * 700,
]
# Characters that move, hide or break the text around them.
UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ud800-\udfff\U000e0000-\U000e0fff]"
)


@dataclass(frozen=True)
class Attacked:
    """A server that has heard all of it, and the tokens of those who look at its pages."""

    server: BloomeryServer
    names: list[bytes]
    tokens: dict[str, str]


@pytest.fixture(scope="module")
def attacked() -> Iterator[Attacked]:
    """A server with users after clients without a login, and users with one, sent all of it."""
    with open_folder() as folder:
        users = add_users(folder / "data")
        tokens = {one.name: one.token for one in users if one.token is not None}
        with started(BloomeryServer(folder, "--set", "sample-seconds=1"), kill=True) as server:
            for text in HOSTILE:
                _send_unknown(server, text)
            created = [text for text in HOSTILE if len(text) < 1020]
            names = [*created, *(MINE.rstrip("*").encode() + text for text in created)]
            _send_known(server, names, tokens["admin-all"])
            yield Attacked(server, names, tokens)


def _send_unknown(server: BloomeryServer, text: bytes) -> None:
    """Send it without a login, in every place that takes it."""
    commands = [
        (b"DEL", text),
        (b"BF.RESERVE", text, 0.01, 100),
        (b"AUTH", text, b"password"),
        (b"HELLO", 2, b"AUTH", text, text, b"SETNAME", text),
        (b"CLIENT", b"SETNAME", text),
        (b"CLIENT", b"SETINFO", b"LIB-NAME", text),
        (text, text),
    ]
    with Connection(server.resp_port) as wire:
        wire.ask_all(commands)
    basic = base64.b64encode(text + b":" + text).decode()
    as_text = text.decode("utf-8", "surrogatepass" if b"\xed" in text else "replace")
    with httpx.Client(base_url=server.url, timeout=30) as http:
        for response in (
            http.delete(f"/filters/{quote(text, safe='')}"),
            http.delete(
                f"/filters/{quote(text, safe='')}", headers={"Authorization": f"Basic {basic}"}
            ),
            http.get("/ui/login", params={"to": text}),
            http.get(f"/ui/login?to=/ui/{quote(text, safe='')}"),
            http.post(
                "/ui/login",
                content=json.dumps({"name": as_text, "password": as_text}),
                headers={"Content-Type": "application/json", "Origin": server.url},
            ),
            http.post(
                "/filters",
                content=json.dumps({"name": as_text, "capacity": 10}),
                headers={"Content-Type": "application/json"},
            ),
        ):
            assert response.status_code < 500, (response.request.url, response.text)


def _send_known(server: BloomeryServer, names: list[bytes], token: str) -> None:
    """Create filters of these names as an administrator, each with an alert that it is full."""
    with Connection(server.resp_port) as wire:
        assert wire.ask(b"AUTH", token) == b"OK"
        for name in names:
            assert wire.ask(b"BF.RESERVE", name, 0.01, 10, b"NONSCALING") == b"OK"
            wire.ask_all(
                [
                    (b"BF.MADD", name, *range(20)),
                    (b"DEL", b"missing " + name),
                    (b"CLIENT", b"SETNAME", name),
                    (b"CLIENT", b"SETINFO", b"LIB-NAME", name),
                ]
            )
    with httpx.Client(
        base_url=server.url, timeout=30, headers={"Authorization": f"Bearer {token}"}
    ) as http:
        alerts = wait_until(
            lambda: len(http.get("/alerts").json()["alerts"]) >= len(names), pause=0.1
        )
        assert alerts, http.get("/alerts").text


def _paths() -> list[str]:
    """Return every path that answers a GET."""
    found = {
        route.path
        for route in app.make().routes
        if isinstance(route, Route) and "GET" in (route.methods or ())
    }
    return sorted(found)


QUERIES = {
    "/ui/data/filters/{name}/series": "?seconds=60",
    "/ui/data/audit": "?limit=1000",
    "/ui/data/planner": "?capacity=1000&error_rate=0.01",
}


def _problem(response: httpx.Response) -> str | None:
    """Return what is wrong with a response, or None."""
    if response.status_code >= 500:
        return f"status {response.status_code}"
    kind = response.headers.get("content-type", "").partition(";")[0]
    if kind in ("application/json", "application/problem+json"):
        text = json.dumps(response.json(), ensure_ascii=False)
    elif kind.startswith("text/"):
        text = response.content.decode("utf-8")
    else:
        return None
    seen = UNSEEN.search(text.replace("\r\n", "\n"))
    return None if seen is None else f"{seen[0]!r} in {text[max(0, seen.start() - 40) :][:80]!r}"


@pytest.mark.parametrize("who", ["admin-all", "read-some", "nobody"])
@pytest.mark.parametrize("path", _paths())
def test_no_byte_breaks_a_page(attacked: Attacked, path: str, who: str) -> None:
    """Each page and route answers, with text that shows where it ends, for every filter's name."""
    login = {} if who == "nobody" else {"Authorization": f"Bearer {attacked.tokens[who]}"}
    query = QUERIES.get(path, "?")
    names = attacked.names if "{name}" in path else [b""]
    paths = [re.sub(r"\{[^}]+\}", quote(name, safe=""), path) + query for name in names]
    # Whoever may see all gets every page of every filter; else a page may be missing or refused.
    plain = set(paths) if who == "admin-all" and "{digest}" not in path else set()
    if path == "/ui/data/health" and who != "nobody":
        plain = set(paths)
    if "{" in path:
        paths += [re.sub(r"\{[^}]+\}", f"x{quote(t, safe='')}", path) + query for t in HOSTILE]
    paths += [f"{paths[0]}&search={quote(t, safe='')}" for t in HOSTILE]

    async def ask() -> dict[str, str]:
        found = {}
        async with httpx.AsyncClient(
            base_url=attacked.server.url, timeout=30, headers=login
        ) as http:
            for one in paths:
                response = await http.get(one)
                problem = _problem(response)
                if problem is None and one in plain and response.status_code >= 400:
                    problem = f"status {response.status_code}"
                if problem is not None:
                    found[one] = problem
        return found

    assert asyncio.run(ask()) == {}


def test_audit_page_shows_what_was_sent(attacked: Attacked) -> None:
    """The administrator sees each name and user in the same letters as on other pages."""
    login = {"Authorization": f"Bearer {attacked.tokens['admin-all']}"}
    with httpx.Client(base_url=attacked.server.url, headers=login) as http:

        def lines() -> list[dict[str, Any]]:
            answer = http.get("/ui/data/audit", params={"limit": 1000})
            answer.raise_for_status()
            return list(answer.json()["lines"])

        def shows(text: str) -> bool:
            return any(
                text in line.get("names", []) and line["outcome"] == "done" for line in lines()
            )

        assert wait_until(lambda: shows("\\xff"), pause=0.1)
        assert wait_until(lambda: shows("\\xe2\\x80\\xaetxt.exe\\xe2\\x80\\xac"), pause=0.1)
