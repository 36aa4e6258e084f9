"""`exact`: what an exact set of revoked keys among a hundred times as many valid ones takes, beside
the bounds and beside cascades of filters; what a question costs, in Python and in Chromium.

A cascade is built as CRLite first was: a filter of the revoked ones at the best rate, then filters
at a rate of 1/2, each of those of the other side that the one before took for its own, until none
is left. Each way is asked about every key of both sides.
"""

from __future__ import annotations

import base64
import math
import shutil
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.lines import Line, missing, word
from benchmarks.report import Column, table
from benchmarks.settings import Record, Settings
from benchmarks.timing import count_true, progress, quiet
from bloomery import BloomFilter, ExactSet, StaticFilter, sizing
from bloomery.browser import MODULE

OURS = "ExactSet"
OTHERS = 100
"""Valid keys for each revoked one."""
BROWSER_KEYS, BROWSER_ASKED = 800_000, 100_000
"""A filter of a megabyte at 1%, and as many questions to it as the *must* names."""
Ints = npt.NDArray[np.int64]
Ask = Callable[[Ints], Any]


def run(settings: Settings) -> list[Record]:
    members = settings.size(100_000)
    keys = np.random.default_rng(22).permutation(members * (OTHERS + 1)).astype(np.int64)
    revoked, valid = keys[:members], keys[members:]
    ways: list[Callable[[Ints, Ints], tuple[str, int, Ask, int]]] = [
        _exact,
        _cascade(StaticFilter.build, "cascade of StaticFilters"),
        _cascade(BloomFilter.from_keys, "cascade of BloomFilters"),
    ]
    records: list[Record] = []
    for way in ways:
        progress.step("exact: sizes")
        start = time.perf_counter()
        name, nbytes, ask, levels = way(revoked, valid)
        seconds = time.perf_counter() - start
        wrong = members - count_true(ask(revoked)) + count_true(ask(valid))
        records.append(_size(name, nbytes, members, seconds, levels, wrong))
    records += _questions(settings, revoked, valid)
    records += _browser()
    return records


def _exact(revoked: Ints, valid: Ints) -> tuple[str, int, Ask, int]:
    made = ExactSet.build(revoked, valid)
    return OURS, len(made.to_bytes()), made.contains_many, 2


def _cascade(
    build: Callable[..., Any], name: str
) -> Callable[[Ints, Ints], tuple[str, int, Ask, int]]:
    def made(revoked: Ints, valid: Ints) -> tuple[str, int, Ask, int]:
        levels: list[Any] = []
        held, others = revoked, valid
        rate = min(0.5, len(revoked) / (2 * len(valid) * math.log(2)))
        while len(held):
            # With seeds of their own: what one level lets through by chance, the next must not.
            levels.append(build(held, rate, seed=len(levels)))
            held, others = others[np.asarray(levels[-1].contains_many(others))], held
            rate = 0.5

        def ask(keys: Ints) -> Any:
            answers = np.zeros(len(keys), bool)
            left = np.arange(len(keys))
            for number, level in enumerate(levels):
                found = np.asarray(level.contains_many(keys[left]))
                answers[left[~found]] = number % 2 == 1
                left = left[found]
            answers[left] = len(levels) % 2 == 1
            return answers

        return name, sum(len(level.to_bytes()) for level in levels), ask, len(levels)

    return made


def _size(name: str, nbytes: int, members: int, seconds: float, levels: int, wrong: int) -> Record:
    plan = sizing.exact_plan(members, members * OTHERS)
    return {
        "table": "sizes",
        "way": name,
        "members": members,
        "nbytes": nbytes,
        "bits": 8 * nbytes / members,
        "of_least": 8 * nbytes / plan.least_bits,
        "of_cascade": 8 * nbytes / plan.cascade_bits,
        "levels": levels,
        "seconds": seconds,
        "wrong": wrong,
    }


def _questions(settings: Settings, revoked: Ints, valid: Ints) -> list[Record]:
    """The best of several rounds, in a batch and one by one; a list of texts, as tokens are."""
    texts = [f"token-{key}" for key in valid[: settings.size(1_000_000)].tolist()]
    some = [f"token-{key}" for key in revoked.tolist()]
    ints, strings = ExactSet.build(revoked, valid), ExactSet.build(some, texts)
    tries: dict[str, tuple[Callable[[], object], int]] = {
        "batch: int64 column, all valid": (lambda: ints.contains_many(valid), len(valid)),
        "batch: int64 column, all revoked": (lambda: ints.contains_many(revoked), len(revoked)),
        "batch: list of str": (lambda: strings.contains_many(texts), len(texts)),
        "one by one: str": (lambda: [key in strings for key in some], len(some)),
    }
    records = []
    for name, (ask, count) in tries.items():
        progress.step(f"exact: {name}")
        best = math.inf
        for _ in range(2 * settings.rounds):
            with quiet():
                start = time.perf_counter()
                ask()
                best = min(best, time.perf_counter() - start)
        records.append({"table": "questions", "way": name, "ns": best / count * 1e9})
    return records


def _browser() -> list[Record]:
    """Milliseconds for 10^5 questions in Chromium: the first time, and when it has compiled."""
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium")
    if program is None:
        return []
    progress.step("exact: Chromium")
    filter = BloomFilter(BROWSER_KEYS, 0.01)
    filter.update(f"https://example.org/{n}" for n in range(BROWSER_KEYS))
    module = base64.b64encode(MODULE.read_bytes()).decode("ascii")
    first, best = [], []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for _ in range(3):
            page = browser.new_page()
            times = page.evaluate(
                _ASK, [module, base64.b64encode(filter.to_bytes()).decode("ascii"), BROWSER_ASKED]
            )
            first.append(times[0])
            best.append(min(times))
            page.close()
        version = browser.version
        browser.close()
    figures = {"nbytes": filter.nbytes, "questions": BROWSER_ASKED, "chromium": version}
    return [{"table": "browser", "first_ms": min(first), "best_ms": min(best), **figures}]


_ASK = """async ([source, file, count]) => {
    const { Filter } = await import(`data:text/javascript;base64,${source}`);
    const filter = Filter.open(Uint8Array.from(atob(file), (one) => one.charCodeAt(0)));
    const made = Array.from({length: count}, (_, i) => `https://example.org/${i * 16}`);
    const keys = JSON.parse(JSON.stringify(made)), times = [];
    for (let i = 0; i < 20; i++) {
        const start = performance.now();
        filter.containsMany(keys);
        times.push(performance.now() - start);
    }
    return times;
}"""


def render(records: list[Record]) -> str:
    sizes = [
        [
            *(
                r["way"],
                f"{r['nbytes'] / 1e3:,.1f} kB",
                f"{r['bits']:.2f}",
                f"{r['of_least']:.2f}x",
            ),
            *(
                f"{r['of_cascade']:.2f}x",
                str(r["levels"]),
                f"{r['seconds']:.1f} s",
                str(r["wrong"]),
            ),
        ]
        for r in records
        if r["table"] == "sizes"
    ]
    asked = [[r["way"], f"{r['ns']:,.1f}"] for r in records if r["table"] == "questions"]
    members = next(r["members"] for r in records if r["table"] == "sizes")
    heads = ("size", "bits a revoked key", "of the least", "of an ideal cascade", "levels", "built")
    parts = [
        table(
            f"{members:,} revoked, {members * OTHERS:,} valid",
            [Column("way", left=True), *map(Column, heads), Column("wrong answers")],
            sizes,
        ),
        table("A question", [Column("way", left=True), Column("ns")], asked),
    ]
    parts += [
        f"Chromium {r['chromium']}: {r['questions']:,} questions to a filter of {r['nbytes']:,}"
        f" bytes: {r['first_ms']:.0f} ms the first time, {r['best_ms']:.0f} ms when compiled"
        for r in records
        if r["table"] == "browser"
    ]
    return "\n\n".join(parts)


def judge(records: list[Record]) -> list[Line]:
    what, must = "ExactSet, 100 k among 10 M", "<= 1.3x an ideal cascade, no wrong answer"
    asked_what, asked_must = "ExactSet, a question in a batch", "<= 200 ns"
    browser_what, browser_must = "browser: 10^5 questions, 1 MB", "<= 100 ms"
    ours = [r for r in records if r["table"] == "sizes" and r["way"] == OURS]
    asked = [r["ns"] for r in records if r["table"] == "questions" and "batch" in r["way"]]
    browser = [r for r in records if r["table"] == "browser"]
    lines = [missing(what, must), missing(asked_what, asked_must)]
    if ours and asked:
        [size], worst = ours, max(asked)
        measured = f"{size['of_cascade']:.2f}x, {size['of_least']:.2f}x the least of all"
        right = size["of_cascade"] <= 1.3 and size["wrong"] == 0
        aim = size["of_least"] <= 1.3
        lines = [
            Line(
                what,
                must,
                "<= 1.3x the least",
                f"{measured}, {size['wrong']} wrong",
                word(right, aim),
            ),
            Line(asked_what, asked_must, "-", f"{worst:.1f} ns at most", word(worst <= 200)),
        ]
    if not browser:
        return [*lines, missing(browser_what, browser_must)]
    first, best = browser[0]["first_ms"], browser[0]["best_ms"]
    told = f"{first:.0f} ms the first time, {best:.0f} ms when compiled"
    return [*lines, Line(browser_what, browser_must, "-", told, word(first <= 100))]
