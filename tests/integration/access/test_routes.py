"""Every route of HTTP, by every role, on names that are theirs or not: as docs/access.md says."""

import re
from collections.abc import Iterator
from itertools import product
from typing import Any

import httpx
import pytest

from bloomery.service.http.app import make
from docs.pages import DOCS
from integration.access.conftest import PASSWORD, Guarded, Someone

COUNTING = {"kind": "counting", "capacity": 100}
ORDER = ["nobody", "read", "write", "admin"]
# A body for each route; {a} and {b} are names of filters.
REQUESTS: dict[str, Any] = {
    "GET /alerts": None,
    "GET /backup": None,
    "GET /filters": None,
    "POST /filters": {"name": "{a}", **COUNTING},
    "DELETE /filters/{name}": None,
    "GET /filters/{name}": None,
    "PATCH /filters/{name}": {"name": "{b}"},
    "POST /filters/{name}/add": {"keys": ["k", "l"]},
    "POST /filters/{name}/clear": None,
    "POST /filters/{name}/contains": {"key": "k"},
    "GET /filters/{name}/file": None,
    "PUT /filters/{name}/file": b"no filter",
    "POST /filters/{name}/forget": {"key": "k"},
    "POST /filters/{name}/lookup": {"key": "k"},
    "POST /filters/{name}/merge": {"sources": ["{b}"]},
    "POST /filters/{name}/rebuild": {},
    "POST /filters/{name}/remove": {"key": "k"},
    "POST /filters/{name}/rotate": None,
    "GET /filters/{name}/samples": None,
    "GET /healthz": None,
    "HEAD /healthz": None,
    "GET /metrics": None,
    "GET /nodes": None,
    "POST /nodes/recover": {"keep": True},
    "GET /readyz": None,
    "HEAD /readyz": None,
    "POST /snapshot": None,
    "GET /openapi.json": None,
}
MINE, OTHERS = ("mine:h1", "mine:h2"), ("others:h1", "others:h2")


def documented() -> dict[str, str]:
    """What each route takes, as the page says."""
    table = (DOCS / "access.md").read_text("utf-8").partition("\n## HTTP\n")[2]
    return dict(re.findall(r"^\| `([^`]+)` \| [a-z]+ \| ([^|]+) \|$", table, re.M))


def test_every_route_is_tried() -> None:
    """The requests of this test are those of all routes there are, each on the page."""
    paths = make().openapi()["paths"]
    every = {f"{method.upper()} {path}" for path, one in paths.items() for method in one}
    assert REQUESTS.keys() == documented().keys() == every | {"GET /openapi.json"}


def _filled(body: Any, a: str, b: str) -> Any:
    if isinstance(body, dict):
        return {key: _filled(value, a, b) for key, value in body.items()}
    if isinstance(body, list):
        return [_filled(value, a, b) for value in body]
    return body.replace("{a}", a).replace("{b}", b) if isinstance(body, str) else body


def cases(someone: Someone) -> Iterator[tuple[str, str, Any, bool]]:
    """Each method, path and body, with each kind of name, and whether this user may."""
    for (route, body), takes in product(REQUESTS.items(), [documented()]):
        role, _, whole = takes[route].partition(", ")
        method, path = route.split()
        named = "{name}" in path or "{a}" in str(body)
        for first, second in product((MINE, OTHERS), repeat=2) if named else [(MINE, MINE)]:
            if "{b}" not in str(body) and second is not first:
                continue
            may = ORDER.index(someone.role or "nobody") >= ORDER.index(role)
            theirs = someone.everything or OTHERS not in (first, second)
            may &= role == "nobody" or (theirs if named or not whole else someone.everything)
            filled = _filled(body, first[0], second[1])
            yield method, path.replace("{name}", first[0]), filled, may


@pytest.fixture(scope="module")
def client(guarded: Guarded) -> Iterator[httpx.Client]:
    """A client of that server, not logged in."""
    url = f"http://127.0.0.1:{guarded.server.http_port}"
    with httpx.Client(base_url=url, timeout=60, trust_env=False) as made:
        yield made


def bearer(token: str | None) -> dict[str, str]:
    """The header of a token."""
    return {} if token is None else {"Authorization": f"Bearer {token}"}


def ask(
    client: httpx.Client, someone: Someone, method: str, path: str, body: Any
) -> httpx.Response:
    """The answer to one request."""
    headers = bearer(someone.token)
    if isinstance(body, bytes):
        headers["Content-Type"] = "application/octet-stream"
        return client.request(method, path, content=body, headers=headers)
    return client.request(method, path, json=body, headers=headers)


def state(client: httpx.Client, guarded: Guarded) -> object:
    """All filters, with what is known of each."""
    headers = bearer(guarded.token("admin-all"))
    listed = client.get("/filters", params={"limit": 1000}, headers=headers).json()["filters"]
    found = [client.get(f"/filters/{one['name']}", headers=headers).json() for one in listed]
    figures = ("name", "kind", "items", "nbytes", "adds", "expires_at")
    return [{key: one[key] for key in figures} for one in found]


def test_who_may_not_does_nothing(client: httpx.Client, guarded: Guarded) -> None:
    """What the page does not allow is 401 or 403, and nothing has changed."""
    headers = bearer(guarded.token("admin-all"))
    for name in (*MINE, *OTHERS):
        client.post("/filters", json={"name": name, **COUNTING}, headers=headers)
        client.post(f"/filters/{name}/add", json={"keys": ["k", "m"]}, headers=headers)
    before = state(client, guarded)
    wrong = []
    for someone in guarded.users:
        for method, path, body, may in cases(someone):
            if not may:
                answer = ask(client, someone, method, path, body)
                if answer.status_code != (401 if someone.role is None else 403):
                    wrong.append((someone.name, method, path, body, answer.status_code))
    assert wrong == []
    assert state(client, guarded) == before


def test_to_bind_a_new_filter_takes_an_admin(client: httpx.Client, guarded: Guarded) -> None:
    """Who may make a filter may not bind it: a source has more than its users may know."""
    wanted = {"name": "mine:bound", "source": "nothing", **COUNTING}
    asked = {"write-all": 403, "admin-all": 422}  # there is no such source
    for user, status in asked.items():
        answer = client.post("/filters", json=wanted, headers=bearer(guarded.token(user)))
        assert answer.status_code == status, answer.text


def test_who_may_is_let(client: httpx.Client, guarded: Guarded) -> None:
    """What the page allows is never 401 or 403."""
    wrong = []
    for someone in guarded.users:
        for method, path, body, may in cases(someone):
            if may:
                answer = ask(client, someone, method, path, body)
                if answer.status_code in (401, 403):
                    wrong.append((someone.name, method, path, body, answer.text))
    assert wrong == []


def test_lists_show_what_is_ones_own(client: httpx.Client, guarded: Guarded) -> None:
    """Neither the list nor the metrics tell of filters that are not the user's to use."""
    headers = bearer(guarded.token("admin-all"))
    for name in ("mine:list", "others:list"):
        client.post("/filters", json={"name": name, **COUNTING}, headers=headers)
    for path in ("/filters?limit=1000", "/metrics", "/alerts"):
        text = client.get(path, headers=bearer(guarded.token("read-some"))).text
        assert "others:" not in text, path
    listed = client.get("/filters?limit=1000", headers=bearer(guarded.token("read-some"))).json()
    assert "mine:list" in {one["name"] for one in listed["filters"]}


def test_basic(client: httpx.Client, guarded: Guarded) -> None:
    """A name with its password, or with a token of theirs, logs in; all else is one and the same
    401."""
    token = guarded.token("read-all")
    for password in (PASSWORD, token):
        assert client.get("/filters", auth=("read-all", password)).status_code == 200
    refusals = {
        client.get("/filters", auth=auth).text
        for auth in (("read-all", "wrong"), ("nobody", PASSWORD), ("write-all", token))
    }
    refusals.add(client.get("/filters", headers=bearer(token[:-1] + "x")).text)
    assert len(refusals) == 1
    answer = client.get("/filters", auth=("read-all", "wrong"))
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert client.get("/filters").status_code == 401
