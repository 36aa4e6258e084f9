"""The benchmarks run; what they say about speed is for `make bench`."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

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


@pytest.mark.slow
def test_family_runs_and_judges(tmp_path: Path) -> None:
    """Every step of the family's part runs at the least size, loses no key, and gets its lines."""
    found = run(tmp_path, "family")
    records = found["records"]
    assert {r["table"] for r in records} == {"speed", "static", "weights", "bank"}
    assert not any(r["lost_keys"] for r in records if r.get("ours"))
    assert any(line["what"].startswith("bank") for line in found["how_good"])


@pytest.mark.slow
def test_hashing_runs(tmp_path: Path) -> None:
    """Every hash is timed by length and by k, and inserts at a pace."""
    records = run(tmp_path, "hashing")["records"]
    assert {r["table"] for r in records} == {"length", "k", "paced"}
    assert all(ns > 0 for r in records if r["table"] != "paced" for ns in r["ns"].values())
    assert {r["way"] for r in records if r["table"] == "paced"} >= {"nothing", "xxh3", "siphash"}


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
def test_cluster_runs_and_judges(tmp_path: Path) -> None:
    """Every step of the cluster's part runs at the least size with real processes; filters in Redis
    lose no key, and every write is known to the other nodes."""
    found = run(tmp_path, "cluster")
    records = found["records"]
    assert {r["table"] for r in records} == {"library", "loading", "checks", "costs", "lag"}
    assert not any(r["lost_keys"] for r in records if r["table"] == "library")
    assert not any(r["late"] for r in records if r["table"] == "lag")
    assert len(found["how_good"]) == 6
