"""The planner in a browser: numbers of `bloomery.sizing`, all in the address."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from bloomery import Client, sizing
from bloomery.sizing.family import solve_kind
from conftest import require
from integration.access.conftest import PASSWORD, add_users
from integration.http.asking import Http
from integration.pages.conftest import OpenPage
from integration.servers import BloomeryServer, Serve

require("playwright.sync_api")


def planned(page: Any) -> None:
    """Wait until the answer to what is in the address is shown."""
    page.wait_for_function(
        """() => {
          const asked = new URLSearchParams(location.search);
          for (const name of [...asked.keys()]) if (name.startsWith("q_")) asked.delete(name);
          return document.documentElement.dataset.planned === asked.toString();
        }"""
    )


def bits(page: Any) -> int:
    """The memory that the page shows, in bytes."""
    shown = page.locator("#is-memory").inner_text()
    return int(shown.partition("(")[2].partition(" ")[0].replace(",", ""))


def test_numbers_are_those_of_sizing(
    visit: OpenPage, server: BloomeryServer, complaints: list[str]
) -> None:
    """Capacity and rate, memory and rate, capacity and memory: what is entered gives what
    `bloomery.sizing` says, and what is found is said to be."""
    page = visit(server, "/ui/planner")
    planned(page)
    assert bits(page) == sizing.plan(1_000_000, 0.01).nbytes
    page.get_by_label("Capacity (keys)").fill("10M")
    page.get_by_label("Error rate", exact=True).fill("0.1%")
    planned(page)
    plan = sizing.plan(10_000_000, 0.001)
    assert bits(page) == plan.nbytes
    assert page.locator("#is-hashes").inner_text() == f"{plan.num_hashes}, in one line of 64 bytes"
    page.get_by_label("Capacity (keys)").fill("")
    page.get_by_label("Memory (bytes)").fill("64MB")
    planned(page)
    plan = sizing.solve(memory=64_000_000, error_rate=0.001)
    assert page.locator("#is-capacity").inner_text() == f"{plan.capacity:,} keys (found)"
    page.get_by_label("Kind", exact=True).select_option("cuckoo")
    planned(page)
    cuckoo = solve_kind("cuckoo", memory=64_000_000, error_rate=0.001)
    assert page.locator("#is-capacity").inner_text() == f"{cuckoo.capacity:,} keys (found)"
    assert bits(page) == cuckoo.nbytes
    assert page.locator("#is-over").inner_text() == "it refuses keys"
    page.get_by_label("Error rate", exact=True).fill("banana")
    page.get_by_role("alert").filter(has_text="must be a share").wait_for()
    page.locator("#answer.stale").wait_for()
    assert all("422" in told for told in complaints)  # browsers print each such answer
    complaints.clear()


def test_the_address_restores_the_plan(visit: OpenPage, server: BloomeryServer) -> None:
    """Whoever opens the address that was shared sees the same plan, cost, nodes and answers to the
    questions."""
    page = visit(server, "/ui/planner")
    planned(page)
    page.get_by_text("Which kind?").click()
    page.get_by_label("Every one").check()
    page.get_by_label("It costs a look-up elsewhere").check()
    page.locator("#chosen", has_text="cuckoo").wait_for()
    page.get_by_role("button", name="Take this kind").click()
    page.get_by_label("Capacity (keys)").fill("5e6")
    page.get_by_label("When it is full").select_option("yes")
    page.get_by_label("Price of 1 GB").fill("2.50")
    page.get_by_label("Checks (keys a second)").fill("1M")
    planned(page)
    shown = ["is-capacity", "is-rate", "is-memory", "is-cost", "is-nodes", "chosen", "make"]

    def texts(page: Any) -> list[str]:
        return [str(page.locator(f"#{id}").inner_text()) for id in shown]

    page.locator("#is-nodes", has_text="nodes").wait_for()
    before = texts(page)
    assert "0.1%" in before[1]
    assert "grow=True" in before[6]
    again = visit(server, page.url.removeprefix(server.url))
    planned(again)
    again.locator("#chosen", has_text="cuckoo").wait_for()
    assert texts(again) == before
    assert again.get_by_label("Every one").is_checked()


def test_what_it_prints_makes_the_filter(visit: OpenPage, server: BloomeryServer) -> None:
    """The code, the request and the command of Redis that stand on the page make exactly what the
    page shows."""
    page = visit(server, "/ui/planner?kind=counting&capacity=20000&memory=80kB")
    planned(page)
    names: dict[str, Any] = {}
    exec(page.locator("#way-python").inner_text(), names)
    assert names["seen"].nbytes == bits(page)
    body = json.loads(shlex.split(page.locator("#way-http").inner_text())[-1])
    words = shlex.split(page.locator("#way-redis").inner_text())[4:]
    with Client(server.url) as client, Http(server) as http:
        http.ask("POST", "/filters", {**body, "name": "planned"}, 201)
        assert client["planned"].nbytes == bits(page)
        redis = require("redis").Redis(port=server.resp_port)
        redis.execute_command("BF.RESERVE", "reserved", *words[1:])
        assert client["reserved"].info()["nbytes"] == bits(page)
        assert client["reserved"].error_rate == client["planned"].error_rate
        redis.close()


def test_the_keyboard_alone_will_do(visit: OpenPage, server: BloomeryServer) -> None:
    """By Tab and keys: fields, the kind, a value of a chart, and a row of the table."""
    page = visit(server, "/ui/planner")
    planned(page)
    page.locator("#capacity").focus()
    page.keyboard.press("Control+A")
    page.keyboard.type("2M")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "error_rate"
    page.keyboard.press("Control+A")
    page.keyboard.type("2%")
    planned(page)
    assert bits(page) == sizing.plan(2_000_000, 0.02).nbytes
    page.locator("#rate-curve svg[tabindex]").focus()
    page.keyboard.press("End")
    page.keyboard.press("ArrowLeft")
    assert "%" in page.locator("#rate-curve .readout").inner_text()
    page.get_by_role("link", name="static").focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**kind=static**")
    planned(page)
    assert page.locator("#kind").input_value() == "static"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("", "too little"),
        ("capacity=ten&error_rate=1%25", "must be a whole number"),
        ("capacity=10&error_rate=200%25", "error_rate must be"),
        ("capacity=10&error_rate=nan", "must be a share"),
        ("capacity=10&memory=much", "must be an amount"),
        ("capacity=1e30&error_rate=0.1", "capacity must be"),
        ("capacity=10&error_rate=0.1&kind=tree", "kind must be one of"),
        ("capacity=10&error_rate=0.1&kind=cuckoo&grow=maybe", "grow must be yes or no"),
        ("capacity=10&error_rate=0.1&kind=rotating&window=soon", "window is"),
        ("capacity=10&error_rate=0.1&price=-1", "price is"),
        ("capacity=10&error_rate=0.1&checks=1e13", "checks must be at most"),
        ("capacity=10&error_rate=0.1&hashes=3", "num_hashes must be"),
        (f"capacity={'9' * 41}", "capacity"),
    ],
)
def test_what_cannot_be_planned(server: BloomeryServer, asked: str, said: str) -> None:
    """Says what would be right, and is never an error of the server."""
    with Http(server) as http:
        told = http.ask("GET", f"/ui/data/planner?{asked}", status=422)
        assert said in told["detail"]
        http.ask("GET", "/ui/data/planner/kind?remove=some", status=422)


def test_a_shared_address_survives_the_login(
    visit: OpenPage, serve: Serve, complaints: list[str], tmp_path: Path
) -> None:
    """Where the server has users, whoever opens an address logs in first and then sees that plan;
    the data are for who is logged in."""
    data = tmp_path / "data"
    add_users(data)
    server = serve(data=data)
    with Http(server) as http:
        http.ask("GET", "/ui/data/planner?capacity=10&error_rate=0.1", status=401)
    page = visit(server, "/ui/planner?capacity=123456&error_rate=3%25")
    page.get_by_label("Name").fill("read-some")
    page.get_by_label("Password, or token").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url("**/ui/planner**")
    planned(page)
    assert page.locator("#is-capacity").inner_text() == "123,456 keys"
    assert page.locator("#is-rate").inner_text() == "3%"
    assert all("401" in told for told in complaints)  # the form asks whether there is a session
    complaints.clear()


def test_a_server_without_pages_plans_nothing(serve: Serve) -> None:
    """With `dashboard` no there is neither page nor data."""
    with Http(serve("--set", "dashboard=no")) as http:
        http.ask("GET", "/ui/data/planner?capacity=10&error_rate=0.1", status=404)
        http.ask("GET", "/ui/data/planner/kind", status=404)
        http.ask("POST", "/ui/data/playground", {"steps": []}, 404)
        http.ask("POST", "/ui/data/playground/read", {"key": "apple"}, 404)
