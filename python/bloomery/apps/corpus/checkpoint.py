"""How far a run over a corpus has come, kept beside its output.

    OUT/.bloomery/filter-N.bloom   the filter
    OUT/.bloomery/state.json       which of them counts, and the files whose keys it has
    OUT/.bloomery/lock             held by the one process that writes to OUT

The filter is written first and the list after it, each in one step, and the filter that counted
until then stays until the new list is there. So the filter that counts has the keys of the files on
its list, and of no other. A run that is over has a list and no filter.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from bloomery.apps.corpus.report import FileCounts
from bloomery.errors import CorruptData, InvalidParameter
from bloomery.filters import BloomFilter
from bloomery.storage.files import replacing
from bloomery.storage.locking import lock_folder

FOLDER = ".bloomery"
_VERSION = 1
RESTART = "say --restart (restart=True) to begin anew"


@dataclass
class CorpusState:
    """How far it has come."""

    base: str = ""
    sizes: dict[str, int] = field(default_factory=dict)  # of the finished files, by name
    counts: dict[str, FileCounts] = field(default_factory=dict)
    keys: float = 0  # in the filter
    seconds: float = 0.0
    first_bad_line: str | None = None
    kept_filter: str | None = None  # the head of the filter that was there before the first run
    complete: bool = False
    figures: dict[str, Any] = field(default_factory=dict)  # of the filter, when it is over


class CorpusCheckpoint:
    """The folder beside an output."""

    def __init__(self, out: Path, identity: dict[str, Any]) -> None:
        self.folder = out / FOLDER
        self._identity = json.loads(json.dumps(identity))
        self._state = self.folder / "state.json"
        self._number = 0

    def lock(self) -> IO[str]:
        """Keep all others out, until what is returned is closed."""
        return lock_folder(self.folder, "run of `bloomery corpus`")

    def load(self) -> tuple[BloomFilter | None, CorpusState] | None:
        """Return the filter, if the run is not over, and how far it came; None if there is none."""
        try:
            content = json.loads(self._state.read_text("utf-8"))
            if content["version"] != _VERSION:
                raise ValueError(f"version {content['version']}")
            if content.pop("checksum") != _checksum(content):
                raise ValueError("its checksum is not that of its contents")
            identity, number, kept = content["identity"], content["filter"], content["state"]
            counts = {name: FileCounts(**fields) for name, fields in kept.pop("counts").items()}
            state = CorpusState(counts=counts, **kept)
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as failure:
            raise CorruptData(f"{self._state} cannot be read ({failure}): {RESTART}") from None
        if identity != self._identity:
            names = {*identity, *self._identity}
            other = sorted(n for n in names if identity.get(n) != self._identity.get(n))
            raise InvalidParameter(
                f"{self.folder.parent} is of another run: {', '.join(other)} was different then; "
                f"say the same as then to go on, take another folder, or {RESTART}"
            )
        if number is None:
            return None if not state.complete else (None, state)
        self._number = int(number)
        path = self._filter()
        try:
            return BloomFilter.load(path), state
        except FileNotFoundError:
            raise CorruptData(f"{path} is gone: {RESTART}") from None

    def save(self, filter: BloomFilter | None, state: CorpusState) -> None:
        """Keep both; without a filter the run is over."""
        self._number += 1
        if filter is not None:
            filter.save(self._filter())
        content: dict[str, Any] = {
            "version": _VERSION,
            "identity": self._identity,
            "filter": None if filter is None else self._number,
            "state": asdict(state),
        }
        content["checksum"] = _checksum(content)
        with replacing(self._state) as file:
            file.write(json.dumps(content).encode())
        # The filter before, and whatever a kill has left of one.
        kept = {self._state.name, "lock", self._filter().name if filter is not None else ""}
        for path in self.folder.iterdir():
            if path.name not in kept:
                path.unlink()

    def clear(self) -> None:
        """Forget all: the list first, so that none is left without its filter."""
        with contextlib.suppress(FileNotFoundError):
            self._state.unlink()
        for path in self.folder.glob("filter-*.bloom"):
            path.unlink()

    def _filter(self) -> Path:
        return self.folder / f"filter-{self._number}.bloom"


def _checksum(content: dict[str, Any]) -> str:
    """A list that is damaged would pass over files, or do them twice."""
    text = json.dumps(content, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
