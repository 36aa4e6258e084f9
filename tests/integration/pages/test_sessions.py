"""Logging in on a page: roles, wrong passwords, sessions that end, and no token of another's."""

import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import redis

from bloomery import Client
from conftest import require
from integration.access.conftest import MINE, PASSWORD, Someone, add_users
from integration.conftest import open_folder, started
from integration.pages.conftest import PATIENT, OpenPage
from integration.servers import BloomeryServer

expect = require("playwright.sync_api").expect

Guarded = tuple[BloomeryServer, dict[str, Someone]]


@pytest.fixture(scope="module")
def guarded() -> Iterator[Guarded]:
    """A server that has users, and two filters, of which some may see one."""
    with open_folder() as folder:
        users = {one.name: one for one in add_users(folder / "data")}
        with started(BloomeryServer(folder), kill=True) as server:
            with Client(server.url, token=users["admin-all"].token) as client:
                for name in ("theirs", MINE.replace("*", "x")):
                    client.create(name, 1000, kind="counting")
            yield server, users


def log_in(page: Any, name: str, password: str = PASSWORD) -> None:
    """Fill in the form."""
    page.get_by_label("Name").fill(name)
    page.get_by_label("Password, or token").fill(password)
    page.get_by_role("button", name="Log in").click()


def test_a_session_from_login_to_logout(
    visit: OpenPage, guarded: Guarded, complaints: list[str]
) -> None:
    """Whoever is not logged in sees the form and nothing else; a wrong password is told without
    the browser's own dialog; the session lasts until it is ended, and what was its cookie then
    opens nothing."""
    server, _ = guarded
    page = visit(server, "/ui/filters/theirs")
    expect(page).to_have_url(f"{server.url}/ui/login?to=%2Fui%2Ffilters%2Ftheirs")
    assert "theirs" not in page.locator("main").inner_text()
    answers: list[Any] = []
    page.on("response", lambda answer: answers.append(answer))
    log_in(page, "admin-all", "wrong password")
    page.get_by_text("wrong name, password or token").wait_for()
    refused = [one for one in answers if one.status == 401]
    assert refused
    assert {one.headers["www-authenticate"] for one in refused} == {'Bearer realm="bloomery"'}
    log_in(page, "admin-all")
    page.get_by_role("heading", name="theirs").wait_for()
    expect(page).to_have_url(f"{server.url}/ui/filters/theirs")
    [cookie] = page.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    assert page.evaluate("document.cookie") == ""
    headers = {"Cookie": f"{cookie['name']}={cookie['value']}"}
    with httpx.Client(base_url=server.url, headers=headers) as stolen:
        assert stolen.get("/filters/theirs").status_code == 200
        page.get_by_role("button", name="Log out").click()
        page.wait_for_url("**/ui/login")
        assert stolen.get("/filters/theirs").status_code == 401
    assert page.context.cookies() == []
    assert all("401" in one for one in complaints), complaints
    complaints.clear()


@pytest.mark.parametrize(
    ("name", "sees"),
    [
        ("read-all", {"#test"}),
        ("write-all", {"#test", "#add", "#remove", "#new"}),
        ("admin-all", {"#test", "#add", "#remove", "#new", "#policy", "[data-do=delete]"}),
    ],
)
def test_roles_apply(
    visit: OpenPage, guarded: Guarded, complaints: list[str], name: str, sees: set[str]
) -> None:
    """A page shows what its user's role allows; and what it does not show is refused."""
    server, users = guarded
    page = visit(server, "/ui/login")
    log_in(page, "", users[name].token or "")
    page.locator("#filters tbody tr").nth(1).wait_for()
    shown = {one for one in ("#new",) if page.locator(one).count()}
    page.goto(f"{server.url}/ui/filters/theirs")
    expect(page.locator("#items")).to_have_text(re.compile("of 1,000"), timeout=PATIENT)
    forms = ("#test", "#add", "#remove", "#policy", "[data-do=delete]")
    assert shown | {one for one in forms if page.locator(one).count()} == sees
    page.goto(f"{server.url}/ui/nodes")
    page.get_by_text("Nothing is wrong.").wait_for()
    assert bool(page.locator("#audit").count()) is (name == "admin-all")
    if name != "admin-all":
        status = page.evaluate(
            """async () => (await fetch("/filters/theirs", {method: "DELETE", headers: {
            "X-CSRF-Token": document.documentElement.dataset.csrf}})).status"""
        )
        assert status == 403
        complaints.remove(complaints[-1])
    complaints[:] = [one for one in complaints if "401" not in one]  # before the login


def test_patterns_apply(guarded: Guarded) -> None:
    """Who may use some filters sees those in the table, and no others by any page."""
    server, users = guarded
    mine = MINE.replace("*", "x")
    with httpx.Client(base_url=server.url) as client:
        client.headers["Authorization"] = f"Bearer {users['read-some'].token}"
        table = client.get("/ui/data/filters").json()
        assert [row["name"] for row in table["rows"]] == [mine]
        for path in (
            "/ui/filters/theirs",
            "/ui/data/filters/theirs",
            "/ui/data/filters/theirs/anatomy",
        ):
            assert client.get(path).status_code == 403
        assert client.get(f"/ui/filters/{mine}").status_code == 200
        assert client.get("/ui/data/audit").status_code == 403


def test_a_session_that_is_over_is_told(
    visit: OpenPage, guarded: Guarded, complaints: list[str]
) -> None:
    """A page that is open when its session ends says so, shows nothing new, and leads back."""
    server, users = guarded
    page = visit(server, "/ui/filters")
    log_in(page, "read-all")
    page.locator("#filters tbody tr").nth(1).wait_for()
    token = users["admin-all"].token
    with redis.Redis(port=server.resp_port, username="admin-all", password=token) as client:
        client.config_set("session-seconds", 1)
        page.get_by_text("Your session is over.").wait_for()
        client.config_set("session-seconds", 3600)
    page.get_by_role("link", name="Log in again").click()
    log_in(page, "read-all")
    page.locator("#filters tbody tr").nth(1).wait_for()
    assert all("401" in one for one in complaints), complaints
    complaints.clear()


def test_a_session_takes_its_own_token(guarded: Guarded) -> None:
    """What a session changes needs the token of a page of that session: without it, and with that
    of another session or of nobody's, nothing is done."""
    server, _ = guarded
    origin = {"Origin": server.url, "Sec-Fetch-Site": "same-origin"}

    def csrf(client: httpx.Client) -> str:
        [token] = re.findall('data-csrf="([0-9a-f]+)"', client.get("/ui/login").text)
        return str(token)

    with (
        httpx.Client(base_url=server.url, headers=origin) as one,
        httpx.Client(base_url=server.url, headers=origin) as other,
    ):
        nobodys = csrf(one)
        form = {"name": "admin-all", "password": PASSWORD}
        assert one.post("/ui/login", json=form).status_code == 403
        for client in (one, other):
            answer = client.post("/ui/login", json=form, headers={"X-CSRF-Token": nobodys})
            assert answer.status_code == 204
        body = {"key": "a"}
        for token in ("", nobodys, csrf(other)):
            headers = {"X-CSRF-Token": token}
            assert one.post("/filters/theirs/add", json=body, headers=headers).status_code == 403
            assert one.post("/filters/theirs/clear", headers=headers).status_code == 403
            assert one.post("/ui/logout", headers=headers).status_code == 403
        headers = {"X-CSRF-Token": csrf(one)}
        assert one.post("/filters/theirs/add", json=body, headers=headers).status_code == 200
        assert one.get("/ui/session").json()["user"] == "admin-all"
        assert other.post("/filters/theirs/add", json=body, headers=headers).status_code == 403


def test_pages_can_be_turned_off(guarded: Guarded) -> None:
    """With the setting `dashboard` no, there are no pages, no forms to log in, and no sessions."""
    server, users = guarded
    token = users["admin-all"].token
    with redis.Redis(port=server.resp_port, username="admin-all", password=token) as client:
        client.config_set("dashboard", "no")
        try:
            for path in ("/", "/ui/filters", "/docs", "/ui/login", "/ui/session"):
                assert httpx.get(f"{server.url}{path}").status_code == 404, path
        finally:
            client.config_set("dashboard", "yes")
    assert httpx.get(f"{server.url}/ui/login").status_code == 200
