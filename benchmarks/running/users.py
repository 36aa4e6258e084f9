"""What it costs to guard a server: requests a second with users, against the same without."""

from __future__ import annotations

import itertools
from pathlib import Path
from statistics import median

from benchmarks.lines import Line, missing, word
from benchmarks.report import Column, table
from benchmarks.service import servers
from benchmarks.service.rates import ANY, ERROR_RATE, QUIET, benchmark
from benchmarks.service.servers import Running
from benchmarks.settings import Record, Settings
from benchmarks.timing import progress
from bloomery.service.access.permissions import Role
from bloomery.service.access.users import Account, changing

LEAST = 0.9  # of the rate without users
PIPELINES = (16, 100)
COMMANDS = ("BF.EXISTS", "BF.ADD")
# A user of all names is served as before; for others the native path asks which names are theirs.
USERS = {"all filters": ("*",), "some filters": ("bench*", "other:*")}


def run(settings: Settings) -> list[Record]:
    with servers.scratch() as folder:
        tokens = _add_users(folder / "guarded")
        with (
            servers.bloomery(folder / "open", *QUIET) as plain,
            servers.bloomery(folder / "guarded", *QUIET) as guarded,
        ):
            bench = _Bench(plain, guarded, tokens, settings)
            for number, pipeline in itertools.product(
                range(settings.few_service_rounds), PIPELINES
            ):
                progress.step(
                    f"service: users on and off, pipeline of {pipeline}, round {number + 1}"
                )
                for command in COMMANDS:
                    bench.round(command, pipeline)
            return bench.records()


def _add_users(data: Path) -> dict[str, str]:
    """Add the users; a token of each."""
    data.mkdir(parents=True)
    with changing(data) as users:
        tokens = {}
        for number, (which, patterns) in enumerate(USERS.items()):
            users.add(Account(f"user{number}", Role.WRITE, patterns))
            tokens[which] = users.add_token(f"user{number}")
    return tokens


class _Bench:
    """The rounds, and what they gave."""

    def __init__(
        self, plain: Running, guarded: Running, tokens: dict[str, str], settings: Settings
    ) -> None:
        self.plain, self.guarded, self.tokens, self.settings = plain, guarded, tokens, settings
        self.found: dict[tuple[str, int, str], list[tuple[float, float]]] = {}
        self._numbers = itertools.count()
        for server, token in ((plain, None), (guarded, tokens["all filters"])):
            with server.wire() as wire:
                if token is not None:
                    wire.call("AUTH", token)
                wire.call("BF.RESERVE", "bench", ERROR_RATE, settings.service_keys)
                wire.add("bench", range(settings.service_keys))

    def round(self, command: str, pipeline: int) -> None:
        """Without users, with one, without, with the other, without."""
        # As many as elsewhere: the logins of 50 connections are not what is measured.
        requests = 2 * self.settings.service_requests(pipeline)
        off = self._rate(self.plain, None, command, pipeline, requests)
        for which, token in self.tokens.items():
            on = self._rate(self.guarded, token, command, pipeline, requests)
            after = self._rate(self.plain, None, command, pipeline, requests)
            found = self.found.setdefault((command, pipeline, which), [])
            found.append(((off + after) / 2, on))  # of the seconds before and after it
            off = after

    def _rate(
        self, server: Running, token: str | None, command: str, pipeline: int, requests: int
    ) -> float:
        name, numbers = "bench", 2 * self.settings.service_keys
        if command == "BF.ADD":  # new keys into a new filter: those that are in are not logged
            name, numbers = f"bench-{next(self._numbers)}", ANY
            with server.wire() as wire:
                if token is not None:
                    wire.call("AUTH", token)
                wire.call("BF.RESERVE", name, ERROR_RATE, requests)
        login = () if token is None else ("-a", token)
        words = [command, name, "__rand_int__"]
        return benchmark(server.port, words, pipeline, requests, numbers, login)

    def records(self) -> list[Record]:
        return [
            {
                "table": "users",
                "what": command,
                "pipeline": pipeline,
                "user": which,
                "off": median(off for off, _ in rates),
                "on": median(on for _, on in rates),
                "ratio": median(on / off for off, on in rates),
            }
            for (command, pipeline, which), rates in self.found.items()
        ]


def render(records: list[Record]) -> str:
    columns = [Column(t, left=True) for t in ("command", "user of")]
    columns += [Column(t) for t in ("pipeline", "without users", "with users", "ratio")]
    rows = [
        [
            *(r["what"], r["user"], str(r["pipeline"])),
            *(f"{r['off']:,.0f}", f"{r['on']:,.0f}", f"{r['ratio']:.2f}x"),
        ]
        for r in records
    ]
    return table("Users: requests a second, 50 connections, medians of the rounds", columns, rows)


def judge(records: list[Record]) -> list[Line]:
    """The *must* of the issue, by the least favourable case."""
    what, must = "RESP with users on, against off", f">= {LEAST:g}x"
    found = [r for r in records if r["table"] == "users"]
    if not found:
        return [missing(what, must)]
    worst = min(found, key=lambda r: float(r["ratio"]))
    measured = (
        f"{worst['ratio']:.2f}x at worst ({worst['what']}, pipeline of {worst['pipeline']}, "
        f"a user of {worst['user']})"
    )
    return [Line(what, must, "-", measured, word(worst["ratio"] >= LEAST))]
