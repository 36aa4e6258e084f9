"""A Parquet file that was opened: its footer, its columns, and the bytes of its filters.

A sidecar is what a file with filters would have in the place of the old one's footer, behind a head
of its own: eight bytes of magic, where the footer of the file begins, the checksum of that footer
and the file's time of change, by which a sidecar of another file is told from this one's: files of
other values may have the same footer.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, NamedTuple, NoReturn

import bloomery._native as _native
from bloomery.errors import BloomeryError, CorruptData, InvalidParameter, InvalidSource
from bloomery.extras import needed
from bloomery.storage import memory

with needed("pyarrow", "bloomery.integrations.parquet"):
    import pyarrow as pa
    import pyarrow.parquet as pq

MAGIC = b"PAR1"
ENCRYPTED = b"PARE"
SIDECAR = struct.Struct("<8sQQq")
SIDECAR_MAGIC = b"BLMPQ\0\0\2"
_WITHOUT_TIME = b"BLMPQ\0\0\1"  # the first version
# Longer than the header of any filter that is known.
_HEADER_BYTES = 256
_BLOCK_BYTES = 32
_COPY_BYTES = 1 << 20
_ATTEMPTS = 100  # to open a file that others keep replacing
_BATCH_BYTES = 64 << 20  # of stored values that are decoded at a time, if pages are no longer
# A header has statistics, of which a value may be long; one that is longer is not looked for.
_PAGE_HEADER_BYTES = 512
_MAX_PAGE_BYTES = (1 << 31) - 1
_PAGE_COPIES = 4  # that pyarrow makes of a page, at most: measured with strings of 1 GiB


class FilterPlace(NamedTuple):
    """Where the bits of a filter are, counted from the start of the file with its sidecar."""

    offset: int
    num_bytes: int


class Page(NamedTuple):
    """A page of a column: where it is in the file, and what its header says."""

    offset: int
    num_bytes: int
    """With its header, compressed."""
    decoded_bytes: int
    values: int | None
    """None for a dictionary."""


class ParquetLayout:
    """A Parquet file, with its sidecar if it has one: opened for as long as the context lasts."""

    def __init__(self, path: str | os.PathLike[str], sidecar: str | os.PathLike[str] | None):
        self.path = Path(path)
        self._sidecar: FileIO | None = None
        self._file, self._source = _opened_twice(self.path)
        try:
            self.mtime_ns = os.fstat(self._file.fileno()).st_mtime_ns
            with damage(self.path):
                self.size, self.footer_start, footer = _read_footer(self._file)
                self.checksum = _native.parquet_hash(footer)
                # As far as filters may reach; the footer begins there.
                self.end = self.footer_start
            if sidecar is not None:
                self._sidecar = open(sidecar, "rb", buffering=0)  # noqa: SIM115
                with damage(Path(sidecar)):
                    footer = self._read_sidecar(self._sidecar)
            with damage(self.path):
                self.footer = _native.ParquetFooter(footer)
                schema = metadata_of(self.footer.excerpt([], physical=False)).schema
                self.columns: list[Any] = [schema.column(i) for i in range(len(schema))]
            self._refuse_what_cannot_be_read()
        except BaseException:
            self.close()
            raise

    def _read_sidecar(self, file: FileIO) -> bytes:
        head = _read(file, SIDECAR.size)
        if head.startswith(_WITHOUT_TIME):
            raise InvalidParameter(
                f"{file.name} was written by an older bloomery and does not tell whether "
                f"{self.path} has changed: make it again with add_bloom(sidecar=...)"
            )
        if len(head) < SIDECAR.size or not head.startswith(SIDECAR_MAGIC):
            raise CorruptData("not a sidecar: pass one that add_bloom(sidecar=...) wrote")
        _, start, checksum, mtime_ns = SIDECAR.unpack(head)
        if (start, checksum, mtime_ns) != (self.footer_start, self.checksum, self.mtime_ns):
            raise InvalidParameter(
                f"{file.name} is the sidecar of another file than {self.path}, or of what it was "
                "before (its time of change counts): make it again with add_bloom(sidecar=...)"
            )
        _, footer_start, footer = _read_footer(file)
        self.end = self.footer_start + footer_start - SIDECAR.size
        return footer

    def _refuse_what_cannot_be_read(self) -> None:
        if self.footer.signed:
            raise InvalidParameter(
                f"{self.path} is encrypted or signed: its filters cannot be read, and a change "
                "would break its signature; write it without encryption first"
            )
        if self.footer.external:
            raise InvalidParameter(
                f"{self.path} has columns in other files: pass a file that holds its own data"
            )

    def close(self) -> None:
        """Close the files."""
        for file in (self._file, self._sidecar, self._source):
            if file is not None:
                file.close()

    def __enter__(self) -> ParquetLayout:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def column(self, path: str) -> int:
        """The place of a column among the leaves of the schema; InvalidParameter if there is none
        of that path, or more than one."""
        places = [i for i, column in enumerate(self.columns) if column.path == path]
        if len(places) > 1:
            raise InvalidParameter(
                f"{self.path} has {len(places)} columns {path!r}: rename all of them but one"
            )
        if not places:
            raise self._unknown(path)
        return places[0]

    def known(self, path: str) -> str:
        """The path of a column, or of a group of them, that the file has; else InvalidParameter."""
        if any(f"{column.path}.".startswith(f"{path}.") for column in self.columns):
            return path
        raise self._unknown(path)

    def _unknown(self, path: str) -> InvalidParameter:
        known = [column.path for column in self.columns]
        within = [name for name in known if name.startswith(f"{path}.")]
        return InvalidParameter(
            f"{self.path} has no column {path!r}: name one of {', '.join((within or known)[:20])}"
        )

    def filters(self, column: int) -> list[FilterPlace | None]:
        """The column's filter in each row group; None where it has none, or one of a kind that is
        not known."""
        with damage(self.path):
            return [self._place(*pair) for pair in self.footer.filters(column)]

    def _place(self, offset: int | None, length: int | None) -> FilterPlace | None:
        if offset is None:
            return None
        if not len(MAGIC) <= offset < self.end:
            raise CorruptData(
                f"damaged footer: a filter is said to begin at {offset}, which is not between "
                f"{len(MAGIC)} and {self.end}"
            )
        header = self.read(offset, min(_HEADER_BYTES, self.end - offset))
        sizes = _native.read_parquet_filter_header(header)
        if sizes is None:
            return None
        num_bytes, header_bytes = sizes
        room = self.end - offset - header_bytes
        if length is not None:
            room = min(room, length - header_bytes)
        if num_bytes <= 0 or num_bytes % _BLOCK_BYTES or num_bytes > room:
            raise CorruptData(
                f"damaged filter header at {offset}: {num_bytes} bytes, must be a multiple of "
                f"{_BLOCK_BYTES} of no more than the {max(0, room)} that are there"
            )
        return FilterPlace(offset + header_bytes, num_bytes)

    def may_hold(self, place: FilterPlace, hashes: list[int]) -> bool:
        """True if the filter may hold one of these: only a block of 32 bytes is read for each."""
        for number in hashes:
            at = place.offset + _native.parquet_block(number, place.num_bytes)
            if _native.parquet_block_contains(self.read(at, _BLOCK_BYTES), number):
                return True
        return False

    def read(self, offset: int, count: int) -> bytes:
        """So many bytes of the file, or of the sidecar if they lie behind the file's data."""
        file = self._at(offset)
        data = _read(file, count)
        return data if len(data) == count else self._shorter(file)

    def read_into(self, offset: int, target: memoryview) -> None:
        """Fill the target with what `read` would return."""
        file = self._at(offset)
        while target:
            count = file.readinto(target)
            if not count:
                self._shorter(file)
            target = target[count:]

    def _at(self, offset: int) -> FileIO:
        """The file that has these bytes, or the sidecar, at their place."""
        file = self._file
        if self._sidecar is not None and offset >= self.footer_start:
            file = self._sidecar
            offset += SIDECAR.size - self.footer_start
        file.seek(offset)
        return file

    def _shorter(self, file: FileIO) -> NoReturn:
        raise CorruptData(f"{file.name} became shorter while it was read: try again")

    def copy_data(self, target: BinaryIO) -> None:
        """Write all that comes before the footer to another file."""
        left = self.footer_start
        self._file.seek(0)
        while left:
            data = self._file.read(min(left, _COPY_BYTES))
            if not data:
                raise CorruptData(f"{self.path} became shorter while it was read: try again")
            target.write(data)
            left -= len(data)

    def reader(self, row_groups: list[int], *, physical: bool = False) -> Any:
        """Some row groups, counted from 0 on, as pyarrow reads them; if `physical`, without logical
        types. It is given a footer of just these: one of 100 takes it half a millisecond."""
        with damage(self.path):
            footer = metadata_of(self.footer.excerpt(row_groups, physical))
            return pq.ParquetFile(self._source, metadata=footer)

    def stored_rows(self, row_group: int, column: int) -> Iterator[Any]:
        """The values of a column in a row group as they are stored, in Arrow arrays: of a column
        within lists its elements, of one within structs a value a row.

        Some megabytes at a time: a file of 4 kB may have a column of 2 GiB, which pyarrow does not
        read in one piece if it is within others.
        """
        opened = self.reader([row_group], physical=True)
        about = opened.metadata.row_group(0)
        size = max(1, about.column(column).total_uncompressed_size)
        self._check_memory(row_group, column, size)
        rows = max(1, min(about.num_rows, about.num_rows * _BATCH_BYTES // size))
        with damage(self.path):
            for batch in opened.reader.iter_batches(
                rows, row_groups=[0], column_indices=[column], use_threads=False
            ):
                yield _leaf(batch.column(0))

    def _check_memory(self, row_group: int, column: int, size: int) -> None:
        """Raise NotEnoughMemory if there is a page that pyarrow cannot decode in what is free."""
        if size < memory.ASK_FROM:
            return
        pages = self.pages(row_group, column)
        if pages is None:
            largest = min(size, _MAX_PAGE_BYTES)
        else:
            largest = max((page.decoded_bytes for page in pages), default=0)
        memory.check(
            _PAGE_COPIES * largest,
            "free some memory, or write the file with smaller pages",
            f"{self.path}: a page of {largest:,} bytes of column {self.columns[column].path!r}",
        )

    def pages(self, row_group: int, column: int) -> list[Page] | None:
        """The pages of a column in a row group; None if they are not all known."""
        place = self.footer.pages(row_group, column)
        if place is None:
            return None
        at, end = place[0], sum(place)
        if not len(MAGIC) <= at <= end <= self.footer_start:
            return None
        pages = []
        while at < end:
            page = _native.parquet_page(self.read(at, min(_PAGE_HEADER_BYTES, end - at)))
            if page is None or page[0] > end - at:
                return None
            pages.append(Page(at, *page))
            at += page[0]
        return pages


def _opened_twice(path: Path) -> tuple[FileIO, Any]:
    """A file for this module and for pyarrow; rows of another by its footer would be wrong answers,
    so both are opened again if the name became another file's in between."""
    for _ in range(_ATTEMPTS):
        # Not buffered: what is read is a few bytes here and there, or long.
        file = open(path, "rb", buffering=0)  # noqa: SIM115 (closed by close)
        try:
            source = pa.OSFile(os.fspath(path))
            if os.path.samestat(os.fstat(file.fileno()), os.fstat(source.fileno())):
                return file, source
            source.close()
        except FileNotFoundError:
            pass
        except BaseException:
            file.close()
            raise
        file.close()
    raise InvalidSource(f"{path} is replaced all the time: try again later")


def _leaf(array: Any) -> Any:
    while pa.types.is_nested(array.type):
        flat = array.flatten()
        # Of a struct as many as it has fields, and only one was read; of a list its elements.
        array = flat[0] if isinstance(flat, list) else flat
    return array


def metadata_of(footer: bytes) -> Any:
    """A footer as pyarrow reads it."""
    whole = b"".join([MAGIC, footer, len(footer).to_bytes(4, "little"), MAGIC])
    return pq.read_metadata(pa.BufferReader(whole))


@contextmanager
def damage(path: Path) -> Iterator[None]:
    """Errors about the bytes say which file they are from, and pyarrow's become a CorruptData; of
    what pyarrow does not support, an InvalidSource."""
    try:
        yield
    except (pa.ArrowMemoryError, pa.ArrowCancelled):
        raise  # which say nothing of the file
    except pa.ArrowNotImplementedError as problem:
        text = (str(problem).splitlines() or [repr(problem)])[0]
        raise InvalidSource(
            f"{path}: pyarrow cannot read it: {text}: write it in another way, or update pyarrow"
        ) from None
    except CorruptData as problem:
        raise CorruptData(f"{path}: {problem}") from None
    except BloomeryError:
        raise
    except (pa.ArrowException, OSError, ValueError) as problem:  # of names that are no text, say
        text = (str(problem).splitlines() or [repr(problem)])[0]
        raise CorruptData(f"{path}: damaged, as pyarrow says: {text}") from None


def _read_footer(file: FileIO) -> tuple[int, int, bytes]:
    """How long a file is, where its footer begins, and the footer."""
    size = file.seek(0, os.SEEK_END)
    shortest = 2 * len(MAGIC) + 4
    file.seek(max(0, size - 8))
    tail = _read(file, 8)
    if tail[4:] == ENCRYPTED:
        raise InvalidParameter(
            f"{file.name} has an encrypted footer: write it without encryption first"
        )
    if size < shortest or tail[4:] != MAGIC:
        raise CorruptData(f"not a Parquet file: it ends with {tail[4:]!r}, expected {MAGIC!r}")
    length = int.from_bytes(tail[:4], "little")
    if length > size - shortest:
        raise CorruptData(
            f"damaged footer: {length} bytes are claimed, at most {size - shortest} are there"
        )
    start = size - 8 - length
    file.seek(start)
    return size, start, _read(file, length)


def _read(file: FileIO, count: int) -> bytes:
    """So many bytes, fewer at the end of the file only: a single read may return less, of more than
    2 GiB and from some file systems."""
    data = file.read(count)
    while len(data) < count and (more := file.read(count - len(data))):
        data += more
    return data
