"""`crawl`: our dupefilter of Scrapy beside Scrapy's own: what a request costs, and what 10 M take.

Times are the processor's: nothing here waits for anybody. Memory is measured in a process of its
own (`python -m benchmarks.jobs.crawl WHAT REQUESTS FOLDER`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.lines import Line, word
from benchmarks.report import Column, table
from benchmarks.settings import Record, Settings
from benchmarks.timing import progress

OURS = "bloomery.integrations.scrapy.BloomDupeFilter"
THEIRS = "scrapy.dupefilters.RFPDupeFilter"
# Name, class, with JOBDIR?, exact?, and whose cost its own is held against.
FILTERS: dict[str, tuple[str, bool, bool, str]] = {
    "RFPDupeFilter": (THEIRS, False, False, "RFPDupeFilter"),
    "BloomDupeFilter": (OURS, False, False, "RFPDupeFilter"),
    "RFPDupeFilter, JOBDIR": (THEIRS, True, False, "RFPDupeFilter, JOBDIR"),
    "BloomDupeFilter, JOBDIR": (OURS, True, False, "RFPDupeFilter, JOBDIR"),
    "BloomDupeFilter, exact": (OURS, True, True, "RFPDupeFilter, JOBDIR"),
}
SCHEDULERS = {
    "Scrapy's Scheduler": ("scrapy.core.scheduler.Scheduler", THEIRS),
    "JobScheduler, exact": ("bloomery.integrations.scrapy.JobScheduler", OURS),
}
REPEATS = 3  # every third request is one that came before


def dupefilter(what: str, folder: Path) -> Any:
    """A dupefilter as Scrapy makes it."""
    from scrapy.utils.misc import build_from_crawler, load_object

    name, with_folder, exact, _ = FILTERS[what]
    settings = {"JOBDIR": str(folder)} if with_folder else {}
    crawler = _crawler({"DUPEFILTER_CLASS": name, "BLOOMERY_EXACT": exact, **settings})
    made = build_from_crawler(load_object(name), crawler)
    made.open()
    return made


def _crawler(settings: dict[str, Any]) -> Any:
    from scrapy.utils.test import get_crawler

    return get_crawler(settings_dict=settings)


def requests(count: int, round_: int) -> list[Any]:
    """Requests as a spider makes them, new objects each time: Scrapy keeps fingerprints by them."""
    from scrapy import Request

    distinct = count - count // REPEATS
    return [
        Request(f"https://www.example.org/{round_}/news/{n % distinct}-bridge.html?page={n & 7}")
        for n in range(count)
    ]


def run(settings: Settings) -> list[Record]:
    return [*_times(settings), *_schedulers(settings), *_memory(settings)]


def _times(settings: Settings) -> list[Record]:
    """The fingerprint is most of it, and the same for all: it is timed by itself, and kept by
    Scrapy for the request objects that all dupefilters then see in turn."""
    own: dict[str, float] = {}
    alone = float("inf")
    with tempfile.TemporaryDirectory() as folder:
        filters = {}
        for number, what in enumerate(FILTERS):
            (Path(folder) / str(number)).mkdir()
            filters[what] = dupefilter(what, Path(folder) / str(number))
        shared = filters["RFPDupeFilter"].fingerprinter
        for made in filters.values():
            made.fingerprinter, made.fingerprint = shared, shared.fingerprint
        for round_ in range(settings.rounds):
            progress.step(f"crawl: round {round_ + 1}/{settings.rounds}")
            given = requests(settings.crawl_timed, round_)
            alone = min(alone, _clocked(shared.fingerprint, given))
            kept = _clocked(shared.fingerprint, given)
            order = list(filters)
            for what in order[round_ % len(order) :] + order[: round_ % len(order)]:
                seconds = _clocked(filters[what].request_seen, given) - kept
                own[what] = min(own.get(what, seconds), seconds)
        for made in filters.values():
            made.close("finished")
    each = 1e6 / settings.crawl_timed
    return [
        {
            "table": "time",
            "what": what,
            "requests": settings.crawl_timed,
            "us": (alone + seconds) * each,
            "own_us": seconds * each,
            "ratio": (alone + seconds) / (alone + own[FILTERS[what][3]]),
        }
        for what, seconds in own.items()
    ]


def _clocked(work: Any, given: list[Any]) -> float:
    started = time.process_time()
    for request in given:
        work(request)
    return time.process_time() - started


class _Engine:
    """What our scheduler asks of Scrapy's engine: nothing is in progress."""

    def __init__(self) -> None:
        self._slot = self
        self.inprogress: set[Any] = set()


def _schedulers(settings: Settings) -> list[Record]:
    """A request into the queue on disk and out again, by either scheduler."""
    from scrapy.utils.misc import build_from_crawler, load_object

    count = settings.crawl_timed // 10
    found = []
    for what, (name, filter_) in SCHEDULERS.items():
        best = float("inf")
        for round_ in range(settings.rounds):
            with tempfile.TemporaryDirectory() as folder:
                crawler = _crawler(
                    {
                        "JOBDIR": folder,
                        "SCHEDULER": name,
                        "DUPEFILTER_CLASS": filter_,
                        "BLOOMERY_EXACT": filter_ == OURS,
                        # Scrapy's default asks the downloader, of which there is none here.
                        "SCHEDULER_PRIORITY_QUEUE": "scrapy.pqueues.ScrapyPriorityQueue",
                    }
                )
                crawler.spider = crawler._create_spider("bench")
                crawler.engine = _Engine()
                scheduler = build_from_crawler(load_object(name), crawler)
                scheduler.open(crawler.spider)
                given = requests(count, round_)
                started = time.process_time()
                for request in given:
                    scheduler.enqueue_request(request)
                while scheduler.next_request() is not None:
                    pass
                best = min(best, time.process_time() - started)
                scheduler.close("finished")
        found.append(
            {"table": "scheduler", "what": what, "requests": count, "us": best / count * 1e6}
        )
    return found


def _memory(settings: Settings) -> list[Record]:
    found: list[Record] = []
    for what in ("RFPDupeFilter", "BloomDupeFilter", "BloomDupeFilter, exact"):
        # A file of 10 M random rows takes minutes to write, and its memory does not grow by that.
        count = settings.crawl_requests // (10 if "exact" in what else 1)
        progress.step(f"crawl: {count:,} requests in {what}")
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks.jobs.crawl", what, str(count), folder],
                check=True,
                stdout=subprocess.PIPE,
                text=True,
            )
        found.append({"table": "memory", "what": what, **json.loads(done.stdout)})
    for record in found:
        same = record["requests"] == found[0]["requests"]
        record["share"] = f"1/{found[0]['bytes'] / record['bytes']:.1f}" if same else "-"
    return found


def measure(what: str, count: int, folder: str) -> Record:
    """How much a process grows by so many fingerprints: 20 random bytes each, as SHA-1 gives."""
    random = np.random.default_rng(5)
    random.bytes(200_000)
    _crawler({})  # imports Scrapy
    import_module("bloomery.integrations.scrapy")
    before = _resident()
    made = dupefilter(what, Path(folder))
    seen = getattr(made, "seen", None)
    for low in range(0, count, 10_000):
        data = random.bytes(20 * min(10_000, count - low))
        for start in range(0, len(data), 20):
            fingerprint = data[start : start + 20]
            if seen is not None:
                seen.add(fingerprint)
            else:
                made._fingerprints.add(fingerprint)
    grown = _resident() - before
    made.close("finished")
    disk = sum(file.stat().st_size for file in Path(folder).iterdir())
    return {"requests": count, "bytes": grown, "disk_bytes": disk}


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def judge(records: list[Record]) -> list[Line]:
    cost = {r["what"]: r for r in records if r["table"] == "time"}
    size = {r["what"]: r for r in records if r["table"] == "memory"}
    if not cost or not size:
        return []
    plain = [cost[what]["ratio"] for what in ("BloomDupeFilter", "BloomDupeFilter, JOBDIR")]
    theirs = size["RFPDupeFilter"]["bytes"]
    smaller = theirs / size["BloomDupeFilter"]["bytes"]
    return [
        Line(
            "dupefilter, a request",
            "<= 1.0x Scrapy's own",
            "-",
            f"{plain[0]:.2f}x; with JOBDIR {plain[1]:.2f}x; exact "
            f"{cost['BloomDupeFilter, exact']['ratio']:.2f}x",
            word(max(plain) <= 1.005),  # the fingerprint is nine tenths of it
        ),
        Line(
            f"dupefilter, {size['RFPDupeFilter']['requests']:,} requests",
            "<= 1/20 of Scrapy's own memory",
            "-",
            f"1/{smaller:.1f}",
            word(smaller >= 20),
        ),
    ]


def render(records: list[Record]) -> str:
    times = [r for r in records if r["table"] == "time"]
    columns = [Column("dupefilter", left=True), Column("us a request"), Column("own us")]
    text = table(
        f"{times[0]['requests']:,} requests, every {REPEATS}rd a second time; own: without the "
        "fingerprint",
        [*columns, Column("x Scrapy's own")],
        [[r["what"], f"{r['us']:.2f}", f"{r['own_us']:.2f}", f"{r['ratio']:.2f}"] for r in times],
    )
    queues = [r for r in records if r["table"] == "scheduler"]
    text += "\n\n" + table(
        f"{queues[0]['requests']:,} requests into a queue on disk and out again",
        [Column("scheduler", left=True), Column("us a request")],
        [[r["what"], f"{r['us']:.1f}"] for r in queues],
    )
    sizes = [r for r in records if r["table"] == "memory"]
    return f"{text}\n\n" + table(
        "memory; of an exact set, 16 MB are SQLite's cache, however many requests there are",
        [
            Column("dupefilter", left=True),
            *(Column(t) for t in ("requests", "memory", "bytes a request", "share", "on disk")),
        ],
        [
            [
                r["what"],
                f"{r['requests']:,}",
                f"{r['bytes'] / 1e6:.1f} MB",
                f"{r['bytes'] / r['requests']:.1f}",
                r["share"],
                f"{r['disk_bytes'] / 1e6:.0f} MB",
            ]
            for r in sizes
        ],
    )


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]), sys.argv[3])))
