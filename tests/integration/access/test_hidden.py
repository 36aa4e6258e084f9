"""Filters that a user may not use leave no trace: not in lists, cursors, figures, nor in how long
an answer takes."""

import re
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from integration.access.conftest import Guarded, add_users
from integration.access.test_routes import bearer
from integration.conftest import open_folder, started
from integration.resp.wire import Wire, shown
from integration.servers import BloomeryServer, wait_until

MINE = [f"mine:{number}" for number in range(20)]
ALERTING = ("ONFULL", "alert", "WARNWITHIN", 0)
USERS = ("read-some", "write-some", "admin-some")


@pytest.fixture(scope="module")
def served() -> Iterator[Guarded]:
    """A server with users, for these tests alone: they count filters."""
    with open_folder() as folder:
        users = add_users(folder / "data")
        with started(BloomeryServer(folder), kill=True) as server:
            yield Guarded(server, users)


class Seen:
    """What one user sees."""

    def __init__(self, served: Guarded, name: str) -> None:
        self.served, self.token = served, served.token(name)

    def resp(self, *words: str | int | float) -> Any:
        """A reply."""
        with Wire(self.served.server.resp_port) as wire:
            assert wire.ask("AUTH", self.token) == b"+OK\r\n"
            return shown(wire.ask(*map(str, words)))

    def http(self, path: str, **query: Any) -> httpx.Response:
        """An answer."""
        url = f"{self.served.server.url}{path}"
        return httpx.get(url, params=query, headers=bearer(self.token), timeout=60)

    def scanned(self, count: int) -> list[Any]:
        """Every page of SCAN, with its cursor."""
        pages, cursor = list[Any](), 0
        while not pages or cursor:
            text, names = self.resp("SCAN", cursor, "COUNT", count)
            cursor = int(text.lstrip("$"))
            pages.append((cursor, names))
        return pages

    def listed(self, limit: int, pattern: str = "*") -> list[Any]:
        """Every page of GET /filters, with its cursor."""
        pages, cursor = list[Any](), 0
        while not pages or cursor:
            told = self.http("/filters", limit=limit, cursor=cursor, pattern=pattern).json()
            cursor = told["cursor"] or 0
            pages.append((cursor, [one["name"] for one in told["filters"]]))
        return pages

    def everything(self) -> dict[str, Any]:
        """All answers that are about more than one filter."""
        figures = r"^(bloomery_(?:filters(?:_not_shown)?|alerts_total|alert_active)\b.*)$"
        return {
            "KEYS": sorted(self.resp("KEYS", "*")),
            "KEYS of others": self.resp("KEYS", "o*"),
            "SCAN": self.scanned(3),
            "SCAN all": self.scanned(1000),
            "SCAN others": self.resp("SCAN", 0, "MATCH", "others*", "COUNT", 7),
            "DBSIZE": self.resp("DBSIZE"),
            "INFO keyspace": self.resp("INFO", "keyspace"),
            "INFO filters": re.findall(r"filters:\d+", self.resp("INFO", "bloomery")),
            "RANDOMKEY": self.resp("RANDOMKEY") in [f"${name}" for name in MINE],
            "list": self.listed(3),
            "list others": self.listed(7, "others*"),
            "metrics": re.findall(figures, self.http("/metrics").text, re.M),
            "alerts": self.http("/alerts").json(),
        }


def test_nothing_tells_of_others(served: Guarded) -> None:
    """What a user is told is the same with and without filters of others, cursors too."""
    admin = Seen(served, "admin-all")
    admin.resp("FLUSHALL")
    for number, name in enumerate(MINE):
        admin.resp("BF.RESERVE", name, 0.01, 100, *ALERTING)
        if number == 10:  # full enough for an alert
            admin.resp("BF.MADD", name, *(f"{n}" for n in range(99)))
    assert wait_until(lambda: Seen(served, "read-some").http("/alerts").json()["alerts"])
    before = {name: Seen(served, name).everything() for name in USERS}
    for number in range(60):
        admin.resp("BF.RESERVE", f"others:{number}", 0.01, 100, *ALERTING)
        admin.resp("BF.MADD", f"others:{number}", *(f"{n}" for n in range(99)))
        admin.resp("EXPIRE", f"others:{number}", 1000)
    for name in USERS:
        now = Seen(served, name).everything()
        for what, told in now.items():
            assert told == before[name][what], (name, what)
    sizes = [len(names) for _, names in before["read-some"]["SCAN"]]
    assert sizes == [3] * 6 + [2]
    assert before["read-some"]["DBSIZE"] == ":20"
    assert "keys=20,expires=0" in before["read-some"]["INFO keyspace"]
    assert admin.resp("DBSIZE") == ":80"


def test_filters_of_others_in_between(served: Guarded) -> None:
    """Pages are full however many filters of others were made in between, and their cursors tell
    no number of them; each filter is met, once."""
    admin, user = Seen(served, "admin-all"), Seen(served, "read-some")
    admin.resp("FLUSHALL")
    for number, name in enumerate(MINE):
        admin.resp("BF.ADD", name, "k")
        for other in range(number):
            admin.resp("BF.ADD", f"others:{number}:{other}", "k")
    for pages in (user.scanned(3), user.listed(3)):
        assert [len(names) for _, names in pages] == [3] * 6 + [2]
        assert sorted(name.lstrip("$") for _, names in pages for name in names) == sorted(MINE)
        assert all(cursor > 1_000_000 for cursor, _ in pages[:-1])
    assert user.resp("SCAN", 12).startswith("-ERR")
    assert user.http("/filters", cursor=12).status_code == 422
    assert len(admin.scanned(10)[0][1]) == 10


def test_how_long_it_takes(served: Guarded) -> None:
    """A pattern that is hard to match against names of others takes no longer than one that no name
    of theirs is even looked at for."""
    admin, user = Seen(served, "admin-all"), Seen(served, "read-some")
    admin.resp("FLUSHALL")
    admin.resp("BF.ADD", "mine:1", "k")
    for number in range(60):
        admin.resp("BF.ADD", "others:" + "a" * 900 + f"{number}", "k")

    def took(*words: str | int) -> float:
        began = time.perf_counter()
        user.resp(*words)
        return time.perf_counter() - began

    hard = "*" + "a" * 400 + "b"
    for before in (("KEYS",), ("SCAN", 0, "COUNT", 1000, "MATCH")):
        easy = min(took(*before, "zz") for _ in range(5))
        assert min(took(*before, hard) for _ in range(5)) < 20 * easy + 0.1
