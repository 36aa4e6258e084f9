"""Small corpora on disk, and a model of what a run makes of them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import zstandard


def write(path: Path, documents: Iterable[Any]) -> Path:
    """A file of JSON lines, packed as its name says; a str is the text of a document."""
    path.parent.mkdir(parents=True, exist_ok=True)
    texts = [{"id": n, "text": d} if isinstance(d, str) else d for n, d in enumerate(documents)]
    return write_bytes(path, "".join(json.dumps(text) + "\n" for text in texts).encode())


def write_bytes(path: Path, data: bytes) -> Path:
    """A file of these bytes, packed as its name says."""
    if path.suffix == ".gz":
        data = gzip.compress(data, 1)
    elif path.suffix == ".zst":
        data = zstandard.compress(data)
    path.write_bytes(data)
    return path


def read_bytes(path: Path) -> bytes:
    """The bytes of a file, unpacked."""
    data = path.read_bytes()
    if path.suffix == ".gz":
        return gzip.decompress(data)
    if path.suffix == ".zst":
        return zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True).read()
    return data


def read(path: Path) -> list[Any]:
    """The documents of a file."""
    return [json.loads(line) for line in read_bytes(path).splitlines()]


def texts(path: Path) -> list[str]:
    """The texts of a file's documents."""
    return [document["text"] for document in read(path)]


def outputs(folder: Path) -> dict[str, bytes]:
    """All outputs of a run, by name: what they hold, without what is about the run itself."""
    return {
        str(path.relative_to(folder)): read_bytes(path)
        for path in sorted(folder.rglob("*.jsonl*"))
        if path.is_file()
    }


BLANK = "\n"  # which no paragraph is


def without_seen_paragraphs(documents: Iterable[str], seen: set[str]) -> list[str]:
    """What is left of texts, by an exact set: a model of `by="paragraph"`."""
    left = []
    for document in documents:
        kept, solid, gone = [], 0, 0
        for paragraph in document.split("\n"):
            key = paragraph.strip(" \t\r\n\x0b\x0c")
            gone += bool(key) and key in seen
            if not key or key not in seen:
                kept.append(paragraph)
                solid += bool(key)
            seen.add(key)
        blank = not solid and not gone  # all such documents are equal
        if solid or (blank and BLANK not in seen):
            left.append("\n".join(kept))
        if blank:
            seen.add(BLANK)
    return left
