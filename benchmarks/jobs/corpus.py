"""`corpus`: `bloomery corpus dedup` beside Dolma's deduper, and `--near` beside datasketch's index.

Both deduplicators read the same JSONL.gz files with two processes or threads, at the same error
rate and for as many keys, and write what they find as attributes, which is what Dolma does. Dolma
has an environment of its own (`make bench-corpus` makes it; BLOOMERY_DOLMA names another `dolma`).
Near-duplicates are measured in processes of their own (`python -m benchmarks.jobs.corpus WHAT N`).
"""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.metadata import version
from itertools import accumulate
from pathlib import Path
from typing import Any

from benchmarks.lines import Line, missing, word
from benchmarks.report import Column, table
from benchmarks.settings import Record, Settings
from benchmarks.timing import progress

ROUNDS = 3
FILES = 8
ERROR_RATE = 1e-4
AGAIN = 0.25  # of the paragraphs
NEAR = 0.3  # of the documents
BANDS, ROWS, WORDS = 9, 13, 5  # what both choose for a threshold of 0.8 and 128 places
DOLMA = Path(sys.executable).parent.parent / "dolma" / "bin" / "dolma"
OURS, THEIRS, INDEX = "bloomery", "dolma", "datasketch"


def run(settings: Settings) -> list[Record]:
    return [*_paragraphs(settings), *_near(settings)]


# ---- paragraphs and n-grams beside Dolma


class Corpus:
    """Text of made-up words, by how often they come; paragraphs are short, some of them long."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        letters = "etaoinshrdlucmfwypvbgkjqxz"
        weights = range(26, 0, -1)
        count = 20_000
        self._words = [
            "".join(self.rng.choices(letters, weights, k=self.rng.randint(2, 9)))
            for _ in range(count)
        ]
        self._often = list(accumulate(1 / (rank + 1) ** 0.8 for rank in range(count)))
        self._before: list[str] = []

    def words(self, count: int) -> list[str]:
        return self.rng.choices(self._words, cum_weights=self._often, k=count)

    def paragraph(self) -> str:
        if self._before and self.rng.random() < AGAIN:
            return self.rng.choice(self._before)
        short = self.rng.random() < 0.92
        text = " ".join(self.words(self.rng.randint(1, 7) if short else self.rng.randint(20, 50)))
        if self.rng.random() < 0.1:
            self._before.append(text)
        return text

    def text(self) -> str:
        return "\n".join(self.paragraph() for _ in range(self.rng.randint(5, 60)))


def write_corpus(folder: Path, size: int) -> Record:
    """Files of about so many characters of text in all; what they hold."""
    made, counts = Corpus(20261117), {"characters": 0, "paragraphs": 0, "documents": 0, "ngrams": 0}
    folder.mkdir(parents=True)
    for number in range(FILES):
        path = folder / f"{number:02}.jsonl.gz"
        with gzip.open(path, "wt", compresslevel=6, encoding="utf-8") as file:
            while counts["characters"] < size * (number + 1) // FILES:
                text = made.text()
                document = {"id": str(counts["documents"]), "source": "made", "text": text}
                file.write(json.dumps(document) + "\n")
                counts["characters"] += len(text)
                counts["documents"] += 1
                for paragraph in text.split("\n"):
                    counts["paragraphs"] += 1
                    counts["ngrams"] += max(1, paragraph.count(" ") + 2 - 13)
    return counts


def _dolma() -> str | None:
    named = os.environ.get("BLOOMERY_DOLMA", str(DOLMA))
    return shutil.which(named)


def _dolma_version(command: str) -> str:
    python = Path(os.path.realpath(command)).with_name("python")
    program = "import importlib.metadata as m; print(m.version('dolma'))"
    done = subprocess.run([python, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _commands(by: str, folder: Path, keys: int, dolma: str | None) -> dict[str, list[str]]:
    """The two command lines for the same work."""
    script = Path(sys.executable).with_name("bloomery")
    start = [str(script)] if script.exists() else [sys.executable, "-m", "bloomery"]
    rate, words = str(ERROR_RATE), "ngram" if by == "13-grams" else "paragraph"
    commands = {
        OURS: [
            *[*start, "corpus", "dedup", f"{folder}/documents", "--out", f"{folder}/ours"],
            *["--annotate", "--by", words, "--capacity", str(keys), "--error-rate", rate],
            *["--threads", "2", "--quiet"],
        ]
    }
    if dolma is not None:
        commands[THEIRS] = [
            *[dolma, "dedupe", "--documents", f"{folder}/documents/*.gz", "--processes", "2"],
            *["--dedupe.name", "found", "--dedupe.paragraphs.attribute_name", "found"],
            *["--dedupe.skip_empty", "--bloom_filter.file", f"{folder}/dolma.bin"],
            *["--no-bloom_filter.read_only", "--bloom_filter.estimated_doc_count", str(keys)],
            *["--bloom_filter.desired_false_positive_rate", rate],
        ]
        if by == "13-grams":
            ngram = "--dedupe.paragraphs.by_ngram"
            commands[THEIRS] += [f"{ngram}.ngram_length", "13", f"{ngram}.overlap_threshold", "0.8"]
    return commands


def _paragraphs(settings: Settings) -> list[Record]:
    dolma = _dolma()
    records: list[Record] = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        size = settings.corpus_characters
        progress.step(f"corpus: writing {size:,} characters")
        counts = write_corpus(folder / "documents", size)
        empty = folder / "empty"
        write_corpus(empty / "documents", 1)
        for by in ("paragraphs", "13-grams"):
            keys = counts["paragraphs" if by == "paragraphs" else "ngrams"]
            commands = _commands(by, folder, keys, dolma)
            idle = _commands(by, empty, 1000, dolma)
            best: dict[str, Record] = {}
            for number in range(ROUNDS):
                for name in commands:
                    progress.step(f"corpus: {by}, round {number + 1}/{ROUNDS}: {name}")
                    start = _timed(idle[name], empty)
                    result = _timed(commands[name], folder)
                    result["start"] = start["seconds"]
                    old = best.setdefault(name, result)
                    old["start"] = result["start"] = min(old["start"], result["start"])
                    if result["seconds"] < old["seconds"]:
                        best[name] = result
            for name, result in best.items():
                what = version("bloomery") if name == OURS else _dolma_version(str(dolma))
                records.append(
                    {"table": "dolma", "by": by, "command": name, "version": what}
                    | {"error_rate": ERROR_RATE, "keys": keys, **counts, **result}
                )
    return records


def _timed(command: list[str], folder: Path) -> Record:
    """One run of a command, and how many spans it has found."""
    for old in (folder / "ours", folder / "attributes", folder / "dolma.bin"):
        shutil.rmtree(old, ignore_errors=True)
        old.unlink(missing_ok=True)
    started = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    seconds = time.perf_counter() - started
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} failed: {done.stderr[-2000:]}")
    found = 0
    for path in (*folder.glob("ours/*.gz"), *folder.glob("attributes/*/*.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as file:
            found += sum(len(*json.loads(line)["attributes"].values()) for line in file)
    return {"seconds": seconds, "found": found}


# ---- near-duplicates beside datasketch


def documents(count: int) -> Iterator[str]:
    """Texts of 200 words; of some an earlier one with a few other words."""
    made = Corpus(5)
    before: list[list[str]] = []
    for _ in range(count):
        if before and made.rng.random() < NEAR:
            words = list(made.rng.choice(before))
            for _ in range(made.rng.randint(1, 12)):
                words[made.rng.randrange(len(words))] = "".join(made.words(2))
        else:
            words = made.words(200)
            if len(before) < 2000:
                before.append(words)
        yield " ".join(words)


def _near(settings: Settings) -> list[Record]:
    found: dict[str, Record] = {}
    for number in range(ROUNDS):
        for what in (OURS, INDEX):
            progress.step(f"corpus: near-duplicates, round {number + 1}/{ROUNDS}: {what}")
            done = subprocess.run(
                [
                    sys.executable,
                    "-m",
                    "benchmarks.jobs.corpus",
                    what,
                    str(settings.corpus_documents),
                ],
                check=True,
                stdout=subprocess.PIPE,
                text=True,
            )
            result = json.loads(done.stdout)
            if what not in found or result["seconds"] < found[what]["seconds"]:
                found[what] = result
    progress.step("corpus: near-duplicates, the same signatures in both")
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.jobs.corpus", "same", str(settings.corpus_documents)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    same = json.loads(done.stdout)
    return [
        {"table": "near", "what": what, "version": version(what)}
        | {"documents": settings.corpus_documents, **result, **same}
        for what, result in found.items()
    ]


def _deduplicator(count: int) -> Any:
    from bloomery.apps.corpus import TextDeduplicator

    options: dict[str, Any] = {"by": "near", "bands": BANDS, "rows": ROWS, "words": WORDS}
    return TextDeduplicator(count, error_rate=ERROR_RATE, **options)


def measure_ours(count: int) -> Record:
    """A thread, texts by the thousand."""
    texts = list(documents(count))
    _deduplicator(1000).spans(texts[:1000])  # all is imported, and the code is warm
    before = _resident()
    started = time.perf_counter()
    seen = _deduplicator(count)
    flagged = 0
    for low in range(0, count, 1000):
        flagged += sum(1 for spans in seen.spans(texts[low : low + 1000]) if spans)
    seconds = time.perf_counter() - started
    grown = max(_resident() - before, seen.filter.nbytes)
    return {"seconds": seconds, "bytes": grown, "kept_bytes": seen.filter.nbytes, "found": flagged}


def measure_index(count: int) -> Record:
    """A thread; texts are made shingles outside of the clock."""
    from datasketch import MinHash, MinHashLSH

    texts = list(documents(count))
    before = _resident()
    index = MinHashLSH(num_perm=BANDS * ROWS, params=(BANDS, ROWS))
    seconds = 0.0
    flagged = 0
    for number, text in enumerate(texts):
        words = text.split()
        shingles = [
            " ".join(words[at : at + WORDS]).encode() for at in range(len(words) - WORDS + 1)
        ]
        started = time.perf_counter()
        sketch = MinHash(num_perm=BANDS * ROWS)
        sketch.update_batch(shingles)
        if index.query(sketch):
            flagged += 1
        else:
            index.insert(number, sketch)
        seconds += time.perf_counter() - started
    grown = _resident() - before
    return {"seconds": seconds, "bytes": grown, "kept_bytes": grown, "found": flagged}


def same_signatures(count: int) -> Record:
    """Which documents an index finds by our signatures, and which our filter does."""
    import numpy as np
    from datasketch import MinHash, MinHashLSH

    seen = _deduplicator(count)
    index = MinHashLSH(num_perm=BANDS * ROWS, params=(BANDS, ROWS))
    both = missed = surplus = 0
    for number, text in enumerate(documents(count)):
        values = np.array(seen.signature(text), dtype=np.uint64)
        sketch = MinHash(num_perm=BANDS * ROWS, hashvalues=values, scheme="legacy")
        expected = bool(index.query(sketch))
        found = bool(seen.spans([text])[0])
        both += expected and found
        missed += expected and not found
        surplus += found and not expected
        if not found:
            index.insert(number, sketch)
    return {"same": both, "missed": missed, "surplus": surplus, "error_rate": ERROR_RATE}


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


# ---- what it comes to


def _speedups(records: list[Record]) -> dict[str, tuple[float, float]]:
    """By comparison: how many times as fast, with the start of both programs and without."""
    found = {}
    for by in ("paragraphs", "13-grams"):
        one = {r["command"]: r for r in records if r.get("by") == by}
        if THEIRS in one:
            ours, theirs = one[OURS], one[THEIRS]
            work = [max(1e-3, r["seconds"] - r["start"]) for r in (ours, theirs)]
            found[by] = theirs["seconds"] / ours["seconds"], work[1] / work[0]
    return found


def judge(records: list[Record]) -> list[Line]:
    what, must = "corpus dedup, two cores", ">= 3x Dolma's deduper"
    speedups = _speedups(records)
    lines = [missing(what, must)]
    if speedups:
        measured = "; ".join(
            f"{by} {whole:.1f}x, without the start of both {work:.1f}x"
            for by, (whole, work) in speedups.items()
        )
        least = min(min(both) for both in speedups.values())
        lines = [Line(what, must, "-", measured, word(least >= 3))]
    near = {r["what"]: r for r in records if r["table"] == "near"}
    must = "the same but for the error rate; <= 1/10 of datasketch's memory; >= 10x faster"
    if near:
        ours, theirs = near[OURS], near[INDEX]
        faster = theirs["seconds"] / ours["seconds"]
        smaller = theirs["bytes"] / ours["bytes"]
        expected = ours["documents"] * ERROR_RATE
        same = ours["missed"] == 0 and ours["surplus"] <= expected + 6 * expected**0.5 + 3
        measured = (
            f"{ours['same']:,} found by both, {ours['missed']} missed, {ours['surplus']} more; "
            f"1/{smaller:.0f} of the memory; {faster:.0f}x"
        )
        good = same and smaller >= 10 and faster >= 10
        lines.append(Line("corpus dedup --near", must, "-", measured, word(good)))
    else:
        lines.append(missing("corpus dedup --near", must))
    return lines


def render(records: list[Record]) -> str:
    rows = [
        [
            f"{r['command']} {r['version']}",
            r["by"],
            f"{r['seconds']:.2f} s",
            f"{r['start']:.2f} s",
            f"{r['characters'] / r['seconds'] / 1e6:.0f} MB",
            f"{r['found']:,}",
        ]
        for r in records
        if r["table"] == "dolma"
    ]
    first = next(r for r in records if r["table"] == "dolma")
    text = table(
        f"{first['characters'] / 1e6:.0f} MB of text in {first['paragraphs']:,} paragraphs, "
        f"{FILES} JSONL.gz files, error rate {ERROR_RATE:g}, two threads or processes, best of "
        f"{ROUNDS}; {'' if len(rows) > 2 else 'no dolma was found; '}start: of the program alone",
        [
            Column("command", left=True),
            Column("by", left=True),
            *(Column(name) for name in ("time", "start", "text/s", "found")),
        ],
        rows,
    )
    near = [r for r in records if r["table"] == "near"]
    return f"{text}\n\n" + table(
        f"near-duplicates: {near[0]['documents']:,} documents of 200 words, {BANDS} bands of {ROWS}"
        f"; with the same signatures: {near[0]['same']:,} found by both, {near[0]['missed']} by "
        f"datasketch alone, {near[0]['surplus']} by bloomery alone",
        [Column("index", left=True), Column("time"), Column("memory"), Column("found")],
        [
            [
                f"{r['what']} {r['version']}",
                f"{r['seconds']:.2f} s",
                f"{r['bytes'] / 1e6:.1f} MB",
                f"{r['found']:,}",
            ]
            for r in near
        ],
    )


if __name__ == "__main__":
    work = {OURS: measure_ours, INDEX: measure_index, "same": same_signatures}[sys.argv[1]]
    print(json.dumps(work(int(sys.argv[2]))))
