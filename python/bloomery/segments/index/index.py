"""Which parts of a folder of files may hold a value: an index of filters, asked and verified."""

from __future__ import annotations

import contextlib
import mmap
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bloomery._native as _native
from bloomery import extras
from bloomery.errors import CorruptData, InvalidParameter, InvalidSource
from bloomery.segments.filters import check_fp_chance
from bloomery.segments.index import indexing
from bloomery.segments.index.arrow_keys import key_of
from bloomery.segments.index.catalogue import NO_FILTER, ColumnParts, FileEntry, IndexCatalogue
from bloomery.segments.index.finding import ChosenParts, Columns, Finder, Question
from bloomery.segments.index.indexing import IndexChanges, Indexer, Progress
from bloomery.segments.index.pack_file import REBUILD, filter_sum, map_pack
from bloomery.storage.locking import lock_folder

if TYPE_CHECKING:
    from typing_extensions import Self

_PACK_FILTERS = 16_384  # that are opened at a time
_PACKS = 16  # that stay open: a quarter of a million filters, some 40 MB
_ATTEMPTS = 10  # to read a folder whose files others keep moving
_KNOWN = 10_000  # files that are kept in memory; more are looked up


@dataclass(frozen=True)
class Candidate:
    """A part of a file that may have rows that are looked for; all others definitely have none."""

    path: str  # below the folder
    part: int | None  # the number of a row group, or of a run of rows; None: all of the file
    why: str  # "maybe": the filters say so; "new" or "changed": the file, since it was indexed


@dataclass(frozen=True)
class Verification:
    """What `SegmentIndex.verify` found."""

    filters: int  # that are whole
    damaged: tuple[str, ...]
    stale: tuple[str, ...]  # files that were changed, or came, or are gone

    @property
    def ok(self) -> bool:
        """Whether nothing is damaged; files that changed are read all the same."""
        return not self.damaged


@dataclass(frozen=True)
class _Stale:
    """What has changed since the files were indexed."""

    ids: frozenset[int]
    paths: tuple[tuple[str, str], ...]  # and why
    at: float


class SegmentIndex:
    """A filter for each row group of each file in a folder, so that most of them are not read.

    >>> index = SegmentIndex.build("data", ["user_id"], fp_chance=0.01)
    >>> index.find({"user_id": 42}).num_rows
    1
    >>> index.close()

    Parquet, CSV and JSONL, the latter two compressed with gzip or zstd as well. A file that came or
    changed since it was indexed is always read, until `update` indexes it: every question looks at
    the sizes and times of all files, or at most every `max_age` seconds.
    """

    def __init__(self, path: str | os.PathLike[str], *, max_age: float = 0.0) -> None:
        """Open the index of a folder, or the one that is in this folder."""
        with extras.needed("pyarrow", "an index of files"):
            import pyarrow  # noqa: F401
        folder = Path(os.path.abspath(path))  # the same one after a change of directory
        if not (folder / "catalogue.sqlite").exists():
            folder = folder / indexing.NAME
        self.path, self.max_age = folder, max_age
        self._catalogue = IndexCatalogue(folder)
        self._verified: set[tuple[int, int, int]] = set()
        self._counts = dict.fromkeys(("finds", "parts_skipped", "parts_read", "parts_in_vain"), 0)
        self._finder = Finder()
        self._generation = -1
        self._lock = threading.RLock()
        try:
            with self._catalogue.snapshot():
                self._load()
        except BaseException:
            self._catalogue.close()
            raise

    @classmethod
    def build(
        cls,
        root: str | os.PathLike[str],
        columns: Sequence[str],
        *,
        fp_chance: float | str = 0.01,
        path: str | os.PathLike[str] | None = None,
        rebuild: bool = False,
        on_file: Progress | None = None,
    ) -> Self:
        """Index some columns of all files below a folder, or bring such an index up to date.

        The index is in the folder itself, under `.bloomery-index`, or at `path`. `on_file` is told
        how many files are done, of how many, and which is next.
        """
        with extras.needed("pyarrow", "an index of files"):
            import pyarrow  # noqa: F401
        chance = check_fp_chance(fp_chance)
        if isinstance(columns, str) or not columns or len(set(columns)) != len(columns):
            raise InvalidParameter(f"columns is {columns!r}, must be a list of different names")
        if not os.path.isdir(root):
            raise NotADirectoryError(20, "no folder, and an index is of a folder", os.fspath(root))
        root = os.path.abspath(root)
        folder = Path(os.path.abspath(os.path.join(root, indexing.NAME) if path is None else path))
        with lock_folder(folder, "writer of the index"):
            if rebuild or not (folder / "catalogue.sqlite").exists():
                catalogue = indexing.create(folder, root, columns, chance)
            else:
                catalogue = IndexCatalogue(folder, write=True)
            try:
                known = catalogue.meta("columns")
                if known != list(columns):
                    raise InvalidParameter(
                        f"{folder} is an index of {', '.join(known)}, not of {', '.join(columns)}: "
                        "rebuild=True makes it anew, another path leaves it as it is"
                    )
                indexed = indexing.root_of(folder, catalogue)
                if os.path.realpath(indexed) != os.path.realpath(root):
                    raise InvalidParameter(
                        f"{folder} is an index of the folder {indexed}, not of {root}: "
                        "rebuild=True makes it anew, another path leaves it as it is"
                    )
                with catalogue.transaction():
                    catalogue.set_meta(fp_chance=chance)
                Indexer(catalogue, root, columns, chance).run(on_file)
            finally:
                catalogue.close()
        return cls(folder)

    def update(self, on_file: Progress | None = None) -> IndexChanges:
        """Index files that came or changed, and forget those that are gone."""
        with lock_folder(self.path, "writer of the index"):
            catalogue = IndexCatalogue(self.path, write=True)
            try:
                chance = catalogue.meta("fp_chance")
                return Indexer(catalogue, self.root, self.columns, chance).run(on_file)
            finally:
                catalogue.close()

    def _load(self) -> None:
        """Read what the catalogue has, if it has changed; within a snapshot of it."""
        generation = self._catalogue.meta("generation")
        if generation == self._generation:
            return
        self.columns: list[str] = self._catalogue.meta("columns")
        self.root = indexing.root_of(self.path, self._catalogue)
        self._map = map_pack(
            self.path / self._catalogue.meta("pack"), self._catalogue.meta("pack_bytes")
        )
        self._types = self._catalogue.types()
        self._known: dict[str, FileEntry] = {}
        if self._catalogue.totals()["files"] <= _KNOWN:
            self._known = {file.path: file for file in self._catalogue.files()}
        self._parts: dict[int, dict[int, ColumnParts]] = {}
        self._packs: OrderedDict[tuple[int, int, int], _native.Pack] = OrderedDict()
        self._verified.clear()
        self._stale: _Stale | None = None
        self._generation = generation

    # Asking.

    def candidates(self, conditions: Mapping[str, object]) -> list[Candidate]:
        """Return the parts that may have rows with all of these values; others have none."""
        with self._lock:
            question = Question(conditions)
            chosen, stale = self._choose(question)
            if not stale.paths:
                question.check()
        candidates = [
            Candidate(path, number, "maybe")
            for path, parts in chosen.items()
            for number in sorted(parts.numbers)
        ]
        return candidates + [Candidate(path, None, why) for path, why in stale.paths]

    def _choose(self, question: Question) -> tuple[dict[str, ChosenParts], _Stale]:
        """The parts whose filters say maybe, by file, and files that are not what was indexed."""
        with self._catalogue.snapshot():
            self._load()
            stale = self._look()
            maybes = {
                (file, part) for file, part in self._maybes(question) if file not in stale.ids
            }
            chosen: dict[str, ChosenParts] = {}
            for number, part in sorted(maybes):
                file = self._catalogue.file_by_id(number)
                parts = chosen.setdefault(
                    file.path, ChosenParts(file.size, file.mtime_ns, bool(file.text), set())
                )
                parts.numbers.add(part)
            self._counts["finds"] += 1
            self._counts["parts_skipped"] += self._total(stale) - len(maybes)
        return chosen, stale

    def _total(self, stale: _Stale) -> int:
        total = self._catalogue.totals()["parts"]
        return total - sum(self._catalogue.file_by_id(number).parts for number in stale.ids)

    def _maybes(self, question: Question) -> set[tuple[int, int]]:
        """The parts whose filters say maybe for each of the values, by file and number."""
        if not question.conditions:
            raise InvalidParameter("no condition was given: say which column has which value")
        common: set[tuple[int, int]] | None = None
        for name in question.conditions:
            if name not in self.columns:
                raise InvalidParameter(
                    f"{name!r} is not indexed, {', '.join(self.columns)} are: build an index of it"
                )
            maybes = self._column_maybes(name, question)
            common = maybes if common is None else common & maybes
        return common or set()

    def _column_maybes(self, name: str, question: Question) -> set[tuple[int, int]]:
        column = self.columns.index(name)
        if column not in self._parts:
            self._parts[column] = self._catalogue.column_parts(column)
        parts_of_files = set()
        for number, parts in self._parts[column].items():
            scalar = question.scalar(name, self._types[number])
            if scalar is None:
                continue
            key = key_of(scalar)
            for start in range(0, len(parts.places), _PACK_FILTERS):
                pack = self._pack(column, number, start)
                (maybes,) = pack.maybes_many(key)
                parts_of_files |= {(parts.files[start + n], parts.parts[start + n]) for n in maybes}
        return parts_of_files

    def _pack(self, column: int, kind: int, start: int) -> _native.Pack:
        """Some filters, opened; read for their checksums when that is done for the first time."""
        which = (column, kind, start)
        pack = self._packs.pop(which, None)
        if pack is None:
            parts, batch = self._parts[column][kind], slice(start, start + _PACK_FILTERS)
            pack = self._open_pack(
                parts.places[batch], parts.bits[batch], verify=which not in self._verified
            )
            self._verified.add(which)
            if len(self._packs) >= _PACKS:
                self._packs.popitem(last=False)
        self._packs[which] = pack
        return pack

    def _open_pack(
        self, places: Sequence[int], bits: Sequence[int], *, verify: bool
    ) -> _native.Pack:
        data = self._map or mmap.mmap(-1, 64)
        try:
            pack = _native.Pack(data, places, verify)
        except CorruptData as problem:
            raise CorruptData(f"{self.path}: {problem}: {REBUILD}") from None
        for place, expected in zip(places, bits, strict=True):
            if filter_sum(data, place) != expected:
                raise CorruptData(f"{self.path}: the filter at byte {place} is another: {REBUILD}")
        return pack

    def _look(self) -> _Stale:
        """Which files came or changed since they were indexed."""
        if self._stale is not None and time.monotonic() - self._stale.at < self.max_age:
            return self._stale
        for _ in range(_ATTEMPTS):
            if (stale := self._listed()) is not None:
                self._stale = stale
                return stale
        raise self._unsettled()

    def _listed(self) -> _Stale | None:
        """Compare all files with the index; None if one was renamed or removed in the meantime.

        The listing may lack the new name of a file that was renamed.
        """
        ids, paths = set(), []
        began = time.monotonic()
        for path, status in indexing.walk(self.root):
            if status is None:
                return None
            file = self._known.get(path) or self._catalogue.file(path)
            if file is None:
                paths.append((path, "new"))
            elif not indexing.is_current(file, status):
                ids.add(file.id)
                paths.append((path, "changed"))
        return _Stale(frozenset(ids), tuple(sorted(paths)), began)

    def _unsettled(self) -> InvalidSource:
        return InvalidSource(
            f"{self.root}: files kept disappearing while they were read: ask again later"
        )

    def find(self, conditions: Mapping[str, object], columns: Sequence[str] | None = None) -> Any:
        """Return the rows that have all of these values, as an Arrow table; none is a maybe.

        A value is taken as one of the column's type, file by file: 42 and "42" find the same rows
        of a column of numbers. `columns` are those of the table, all by default.
        """
        with self._lock:
            return self._find(conditions, columns)

    def _find(self, conditions: Mapping[str, object], columns: Columns) -> Any:
        question = Question(conditions)
        gone: set[str] | None = None
        for _ in range(_ATTEMPTS):
            chosen, stale = self._choose(question)
            by_file: dict[str, ChosenParts | None] = {**chosen, **dict.fromkeys(dict(stale.paths))}
            found, missing = [], set()
            for path, parts in by_file.items():
                try:
                    whole = os.path.join(self.root, path)
                    found.append(self._finder.rows(whole, parts, question, columns))
                except FileNotFoundError:
                    missing.add(path)
            # One that is gone may be there under another name: it is looked for once more.
            if not missing or missing == gone:
                break
            gone, self._stale = missing, None
        else:
            raise self._unsettled()
        question.check()
        self._counts["parts_read"] += sum(file.read for file in found)
        self._counts["parts_in_vain"] += sum(file.read - file.matched for file in found)
        tables = [table for file in found for table in file.tables]
        return self._finder.joined(tables, columns, lambda: self._first_schema())

    def _first_schema(self) -> Any:
        for file in self._catalogue.files():
            with contextlib.suppress(FileNotFoundError):
                return self._finder.schema(os.path.join(self.root, file.path), bool(file.text))
        return None

    # What is known.

    def stats(self) -> dict[str, Any]:
        """What the index covers, what it takes, and what it has spared so far."""
        with self._lock, self._catalogue.snapshot():
            return self._stats()

    def _stats(self) -> dict[str, Any]:
        self._load()
        totals = self._catalogue.totals()
        names = ("catalogue.sqlite", str(self._catalogue.meta("pack")))
        nbytes = sum(path.stat().st_size for name in names if (path := self.path / name).exists())
        used = self._catalogue.columns_with_values()
        return {
            "root": self.root,
            "columns": self.columns,
            "columns_without_values": [
                name for number, name in enumerate(self.columns) if number not in used
            ],
            "fp_chance": self._catalogue.meta("fp_chance"),
            **totals,
            "index_bytes": nbytes,
            "bytes_per_key": nbytes / totals["keys"] if totals["keys"] else None,
            **self._counts,
        }

    def verify(self, on_file: Progress | None = None) -> Verification:
        """Read the whole index and the ends of every file, and say what is wrong with them.

        A damaged catalogue is CorruptData, as it is for whoever asks. Nobody can update the index
        meanwhile.
        """
        with self._lock, self._catalogue.snapshot():
            return self._verify(on_file)

    def _verify(self, on_file: Progress | None) -> Verification:
        self._load()
        damaged, stale, whole = [], [path for path, _ in self._look().paths], 0
        for column in range(len(self.columns)):
            self._catalogue.column_parts(column)
        for entry in self._catalogue.filters():
            if entry.place == NO_FILTER:
                continue
            try:
                self._open_pack([entry.place], [entry.bits], verify=True)
                whole += 1
            except CorruptData as problem:
                path = self._catalogue.file_by_id(entry.file).path
                name = self.columns[entry.column]
                damaged.append(f"{path}, part {entry.part}, {name}: {problem}")
        total = self._catalogue.totals()["files"]
        for done, file in enumerate(self._catalogue.files()):
            if on_file is not None:
                on_file(done, total, file.path)
            try:
                ends = indexing.ends_sum(os.path.join(self.root, file.path))
            except FileNotFoundError:
                ends = -1
            if ends != file.ends and file.path not in stale:
                stale.append(file.path)
        return Verification(whole, tuple(damaged), tuple(stale))

    def close(self) -> None:
        """Let go of the files."""
        self._packs.clear()
        self._catalogue.close()

    def __enter__(self) -> Self:
        """Return the index, which is closed at the end of the `with` block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the index."""
        self.close()

    def __repr__(self) -> str:
        """Show which folder it is of, and which columns."""
        return f"<SegmentIndex({self.root!r}): {', '.join(self.columns)}>"
