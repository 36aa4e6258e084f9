"""The benchmarks run; what they say about speed is for `make bench`."""

import gc
import itertools
import json
import os
import queue
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import beats, busy
from benchmarks.__main__ import main
from benchmarks.parts import PARTS, USUAL, Part, command_of, expected
from conftest import require
from docs.pages import script

TREE = Path(__file__).parents[2]


def run(folder: Path, part: str) -> Any:
    """What a part finds at the least size, once it has ended well."""
    options = ["--quick", "--scale", "0.001", "--only", part, "--results", str(folder)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", *options],
        cwd=TREE,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return json.loads((folder / f"{part}.json").read_text("utf-8"))


def test_make_bench_is_a_quarter_of_an_hour(capsys: pytest.CaptureFixture[str]) -> None:
    """The plan of `make bench` is under 15 minutes, names each part with its minutes, and says what
    is left out and how to run that."""
    assert expected(USUAL) < 15 * 60
    assert main(["--plan"]) == 0
    plan = capsys.readouterr().out
    assert re.findall(r"min  (\w+):", plan) == USUAL
    left_out = re.findall(r"^    (make bench.*): (.+)$", plan, re.M)
    assert {name: command for command, names in left_out for name in names.split(", ")} == {
        name: command_of(name) for name in PARTS if name not in USUAL
    }


@pytest.mark.parametrize("name", PARTS)
def test_every_part_can_be_found(name: str) -> None:
    """Each part is in the room that is named, with what the harness calls."""
    place = TREE / "benchmarks" / PARTS[name].module.replace(".", "/")
    file = next(path for path in (place.with_suffix(".py"), place / "__init__.py") if path.exists())
    text = file.read_text("utf-8")
    assert "def run(settings: Settings) -> list[Record]:" in text
    assert "def render(records: list[Record]) -> str:" in text


@pytest.fixture
def spinner() -> Iterator[int]:
    """A program of somebody else, busy on one core: it does not descend from this process."""
    program = (
        "import os\nif os.fork(): os._exit(0)\nprint(os.getpid(), flush=True)\nwhile True: pass"
    )
    started = subprocess.run(
        [sys.executable, "-c", program],
        stdout=(reading := os.pipe())[1],
        check=True,
        timeout=30,
    )
    assert started.returncode == 0
    with os.fdopen(reading[0]) as said:
        os.close(reading[1])
        number = int(said.readline())
    yield number
    os.kill(number, 9)


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="needs Linux")
def test_others_are_told_from_our_own(spinner: int) -> None:
    """Cores that others take are counted, and those of our own children are not."""
    watch = busy.Watch()
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as child:
        try:
            until = time.monotonic() + 30
            while watch.cores() < 0.1 and time.monotonic() < until:
                time.sleep(0.1)
            numbers = {number for number, _ in busy.others()}
        finally:
            child.kill()
    assert watch.cores() >= 0.1
    assert spinner in numbers
    assert not {child.pid, os.getpid()} & numbers


@pytest.fixture
def tiny_part(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A part that takes no time, in the place of a real one."""
    found = {"run": lambda _: [{"seconds": 1}], "render": lambda _: "it was measured"}
    monkeypatch.setitem(sys.modules, "benchmarks.tiny", SimpleNamespace(**found))
    monkeypatch.setitem(PARTS, "spark", Part("nothing", 1, "tiny"))
    monkeypatch.setattr(busy, "PATIENCE", 0.0)
    yield "spark"
    gc.unfreeze()


def test_a_run_on_a_busy_machine_is_not_published(
    spinner: int, tiny_part: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is said, the exit code is 1, and the results file is kept apart."""
    assert main(["--only", tiny_part, "--results", str(tmp_path)]) == 1
    printed = capsys.readouterr()
    assert "NOT PUBLISHED" in printed.out
    assert "too busy" in printed.err
    assert not (tmp_path / "spark.json").exists()
    assert json.loads((tmp_path / "busy" / "spark.json").read_text("utf-8"))["busy"] > busy.BUSY
    assert "it was measured" not in (tmp_path / "summary.md").read_text("utf-8")


def test_a_run_leaves_one_report(
    tiny_part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a quiet machine: machine, versions, commit, minutes, and what it printed."""
    monkeypatch.setattr(busy, "BUSY", 1000.0)
    assert main(["--only", tiny_part, "--results", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "spark.json").read_text("utf-8"))
    report = (tmp_path / "summary.md").read_text("utf-8")
    machine = found["machine"]
    for told in (machine["cpu"], machine["commit"], machine["python"], "it was measured"):
        assert told in report
    assert f"numpy {machine['versions']['numpy']}" in " ".join(report.split())
    assert re.search(r"\| \[spark\]\(#spark\) \| nothing \| 0\.\d \|", report)
    assert "Not measured yet" in report


@pytest.mark.slow
def test_family_runs_and_judges(tmp_path: Path) -> None:
    """Every step of the family's part runs at the least size, loses no key, and gets its lines."""
    found = run(tmp_path, "family")
    records = found["records"]
    assert {r["table"] for r in records} == {"speed", "static", "weights", "bank"}
    assert not any(r["lost_keys"] for r in records if r.get("ours"))
    assert any(line["what"].startswith("bank") for line in found["how_good"])


@pytest.mark.slow
def test_library_is_one_run(tmp_path: Path) -> None:
    """What README says of the library and its peers, all of it from one run."""
    found = run(tmp_path, "library")
    ours = [r for r in found["records"] if r["peer"] == "bloomery"]
    singly = {r["kind"] for r in ours if r["table"] == "peers"}
    whole = {r["door"] for r in ours if r["table"] == "batch"}
    assert singly == {"str", "int", "bytes"}
    assert whole >= {"list of str", "list of int", "int64 array"}
    assert {line["what"] for line in found["how_good"]} >= {"add, in: one key at a time"}


@pytest.mark.slow
def test_limits_are_measured_and_judged(tmp_path: Path) -> None:
    """Every limit of the library is measured at the least size, and has its line."""
    require("pyarrow"), require("fastbloom_rs")
    found = run(tmp_path, "limits")
    assert len(found["how_good"]) == len(found["records"]) > 30


def test_what_the_host_took_is_no_pause() -> None:
    """Time in which a processor stood still is taken off once, whichever and how many did."""
    late = [(1.0, 2.0), (1.5, 3.0), (4.0, 5.0), (1.2, 1.3)]
    assert beats.without(0.0, 10.0, late) == pytest.approx(7.0)
    assert beats.without(1.1, 2.5, late) == 0.0
    assert beats.without(2.9, 4.5, late) == pytest.approx(1.0)
    assert beats.without(5.0, 6.0, late) == 1.0


def test_beats_are_late_only_where_something_was() -> None:
    """A beat tells when it was late, by our clock; where nobody may go first there is none."""
    before = os.sched_getscheduler(0)
    with beats.before_others() as allowed:
        if not allowed:
            pytest.skip("real time is not allowed here")
        processor = min(os.sched_getaffinity(0))
        began = time.perf_counter()
        with beats.beating({processor}) as late:
            assert late == []
    assert os.sched_getscheduler(0) == before
    ended = time.perf_counter()
    assert all(began < start < end < ended for start, end in late)


@pytest.mark.slow
def test_hashing_runs(tmp_path: Path) -> None:
    """Every hash is timed by length and by k, and inserts at a pace."""
    records = run(tmp_path, "hashing")["records"]
    assert {r["table"] for r in records} == {"length", "k", "paced"}
    assert all(ns > 0 for r in records if r["table"] != "paced" for ns in r["ns"].values())
    assert {r["way"] for r in records if r["table"] == "paced"} >= {"nothing", "xxh3", "siphash"}


@pytest.mark.slow
def test_shell_runs_and_judges(tmp_path: Path) -> None:
    """Both commands and what they are beside print the same lines."""
    records = run(tmp_path, "shell")["records"]
    assert {r["table"] for r in records} == {"dedup", "diff"}
    assert all(r["lines_out"] == r["wanted"] for r in records)


@pytest.mark.soak
def test_compare_runs(tmp_path: Path) -> None:
    """Every contender is filled and asked, and none has lost a key."""
    records = run(tmp_path, "compare")["records"]
    assert len(records) == 8
    assert not any(r["lost_keys"] for r in records)


@pytest.mark.soak
def test_service_runs_and_judges(tmp_path: Path) -> None:
    """Latency is measured under half of what the server could answer in that run."""
    found = run(tmp_path, "service")
    records = found["records"]
    loads = [r["load"] for r in records if r["table"] == "latency"]
    assert all(0 < load["offered"] == load["capacity"] / 2 for load in loads)
    assert not any(load["errors"] for load in loads)
    assert any("half the load" in line["what"] for line in found["how_good"])
    pauses = [r for r in records if r["table"] == "pauses"]
    assert len(pauses) > 20
    assert all(r["requests"] > 0 and r["read"] > 0 and r["write"] > 0 for r in pauses)


def _answer_late(listener: socket.socket) -> None:
    """Answer each request 30 ms after it came, but nothing for 0.3 s in the middle."""
    client, _ = listener.accept()
    due: queue.SimpleQueue[float | None] = queue.SimpleQueue()

    def answer() -> None:
        stalled = 0.0
        for count in itertools.count(1):
            if (at := due.get()) is None:
                return
            stalled = time.monotonic() + 0.3 if count == 50 else stalled
            time.sleep(max(0.0, max(at, stalled) - time.monotonic()))
            client.sendall(b":0\r\n")

    answering = threading.Thread(target=answer)
    answering.start()
    while data := client.recv(1 << 16):
        for _ in range(data.count(b"BF.EXISTS")):
            due.put(time.monotonic() + 0.03)
    due.put(None)
    answering.join()
    client.close()


def test_a_probe_measures_the_server_and_not_its_own_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Replies that take longer than probes are apart take as long as they do, and no longer; and a
    stall meets as many probes as there would be users."""
    from benchmarks.service import latency
    from benchmarks.service.wire import Wire

    monkeypatch.setattr(latency, "EVERY", 0.01)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        answering = threading.Thread(target=_answer_late, args=(listener,))
        answering.start()
        looks = itertools.count(1)
        with Wire(listener.getsockname()[1]) as wire:
            samples, wall = latency._probe(wire, lambda: next(looks) == 2)
        answering.join()
    assert len(samples) == len(wall) == 2 * 50
    assert 0.03 <= sorted(wall)[50] < 0.5, "one behind the other, the last would wait for 2 s"
    assert sum(one > 0.1 for one in wall) >= 10
    assert all(one <= two for one, two in zip(samples, wall, strict=True))


@pytest.mark.slow
def test_admission_runs_and_is_drawn(tmp_path: Path) -> None:
    """A trace, the edges and the cost are measured; fewer writes and more hits at every size; the
    plot of it is the same picture each time."""
    found = run(tmp_path, "admission")
    assert {r["table"] for r in found["records"]} == {"trace", "edges", "cost"}
    (line,) = found["how_good"]
    assert line["verdict"] == "must met", line
    require("matplotlib")
    pictures = [tmp_path / "first.svg", tmp_path / "second.svg"]
    for picture in pictures:
        script("admission_plot").draw(tmp_path / "admission.json", picture)
    first, second = (picture.read_text("utf-8") for picture in pictures)
    assert first == second
    assert all(title in first for title in ("byte hit ratio", "writes into the cache"))


@pytest.mark.slow
def test_feeds_run_and_are_judged(tmp_path: Path) -> None:
    """Deltas of every kind of file are measured; those of plain filters are small, and a static
    filter has none."""
    found = run(tmp_path, "feeds")
    assert {r["table"] for r in found["records"]} == {"deltas", "followed", "checked"}
    static = [r["delta"] for r in found["records"] if r.get("kind") == "static, 1%"]
    assert static == [None] * 3
    assert found["how_good"][0]["must"] == "<= 5% of the full file"


@pytest.mark.slow
def test_seen_runs_and_judges(tmp_path: Path) -> None:
    """Both stores are measured, offer nothing again, and the bill has sets beside them."""
    found = run(tmp_path, "seen")
    assert [r["table"] for r in found["records"]] == ["stores", "stores", "sets", "sets"]
    assert not any(r["lost"] for r in found["records"] if r["table"] == "stores")
    assert "Redis SET" in found["how_good"][0]["measured"]


@pytest.mark.slow
def test_engines_run_and_judge(tmp_path: Path) -> None:
    """Terms of queries and filters in Parquet files are timed, and answer as they should."""
    found = run(tmp_path, "engines")
    assert {r["table"] for r in found["records"]} == {"queries", "parquet"}
    assert not any(r.get("wrong", 0) or r.get("lost", 0) for r in found["records"])
    assert len(found["how_good"]) == 7


@pytest.mark.slow
def test_segments_run_and_judge(tmp_path: Path) -> None:
    """The store and the folder are asked at the least size, and get their lines."""
    found = run(tmp_path, "segments")
    assert [r["table"] for r in found["records"]] == ["store", "store", "index", "index"]
    assert all(r["reads"] < 20 for r in found["records"] if r["table"] == "store")
    assert all(r["touched"] < 0.05 for r in found["records"] if r["table"] == "index")
    assert [line["what"][:12] for line in found["how_good"]] == ["SegmentStore", "SegmentIndex"]


@pytest.mark.soak
def test_guard_runs_and_judges(tmp_path: Path) -> None:
    """Every step of the guard's part runs at the least size, and the database's own count of the
    keys that reached it is the guard's."""
    found = run(tmp_path, "guard")
    records = found["records"]
    assert {r["table"] for r in records} == {"reads", "orders", "cost", "batches"}
    reads = [r for r in records if r["table"] == "reads"]
    assert all(r["asked"] == r["looked_up"] == r["answers"]["source"] for r in reads)
    assert any(line["what"].startswith("reads that reach") for line in found["how_good"])


@pytest.mark.soak
def test_spark_runs_and_judges(tmp_path: Path) -> None:
    """Joins with and without a filter have one result at the least size, and get their lines."""
    found = run(tmp_path, "spark")
    records = found["records"]
    joins = [r for r in records if r["table"] == "join"]
    assert {(r["mode"], r["way"]) for r in joins} == {
        (mode, way) for mode in ("shuffled", "defaults") for way in ("plain", "bloom_join")
    }
    assert len({tuple(r["result"]) for r in joins}) == 1
    assert len(found["how_good"]) == 3


@pytest.mark.soak
def test_cluster_runs_and_judges(tmp_path: Path) -> None:
    """Every step of the cluster's part runs at the least size with real processes; filters in Redis
    lose no key, and every write is known to the other nodes."""
    found = run(tmp_path, "cluster")
    records = found["records"]
    nodes = {"checks", "checking", "costs", "lag", "weight"}
    assert {r["table"] for r in records} == {"library", "loading"} | nodes
    assert not any(r["lost_keys"] for r in records if r["table"] == "library")
    assert not any(r["late"] for r in records if r["table"] == "lag")
    assert len(found["how_good"]) == 13
    assert not any(line["verdict"] == "not measured" for line in found["how_good"])


@pytest.mark.soak
def test_signatures_runs_and_judges(tmp_path: Path) -> None:
    """Every way answers every question with its rows, on a real PostgreSQL too."""
    found = run(tmp_path, "signatures")
    records = found["records"]
    assert {r["table"] for r in records} == {"sizes", "false", "questions"}
    asked = [r for r in records if r["table"] == "questions"]
    assert len(asked) == 8
    assert not any(r["lost_rows"] for r in asked)
    assert len(found["how_good"]) == 2


@pytest.mark.slow
def test_crawl_runs_and_judges(tmp_path: Path) -> None:
    """Dupefilters and schedulers are timed, and their memory is measured, beside Scrapy's own."""
    found = run(tmp_path, "crawl")
    assert {r["table"] for r in found["records"]} == {"time", "scheduler", "memory"}
    assert len(found["how_good"]) == 2


@pytest.mark.slow
def test_billion_takes_numbers_and_urls(tmp_path: Path) -> None:
    """Both are added and asked for; of the URLs none comes twice, and they are 60 bytes long."""
    numbers, urls = run(tmp_path, "billion")["records"]
    assert (numbers["what"], urls["what"]) == ("int64", "urls")
    for record in (numbers, urls):
        assert record["finished"]
        assert 0.004 < record["observed_error_rate"] < 0.02
    assert urls["bytes_a_line"] == pytest.approx(60, abs=1)
    assert urls["estimated_count"] == pytest.approx(urls["keys"], rel=0.02)
