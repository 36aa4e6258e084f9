"""A filter as bytes and as a file: saved, loaded, mapped, copied, pickled (docs/format.md)."""

from __future__ import annotations

import io
import mmap as memory_map
import os
import stat
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, TypeVar

import bloomery._native as _native
from bloomery import errors
from bloomery.storage import files, memory
from bloomery.storage.files import CHUNK_BYTES, HEADER_BYTES
from bloomery.suggestions import constructor, known_keywords

if TYPE_CHECKING:
    from typing_extensions import Buffer, Self

_READ_BYTES = 64 << 20  # between two looks for a signal
_CHECKSUM = slice(HEADER_BYTES - 8, HEADER_BYTES)
# Where the head of a file says what its keys are: in words or bytes that have no other use.
_KEY_TYPE = {"bloom": slice(64, 72), "exact": slice(83, 84)}
# What the keys of a file are, in the order of the format's numbers, from 1; "str" is bytes too.
KEY_TYPES = ("str", "int", "tuple", "uuid", "datetime")

# The class of each kind, by the name that a header has for it: whatever a file may hold but banks.
# A class enters itself as it is made.
KINDS: dict[str, type[SavedFilter]] = {}


class SavedFilter:
    """A filter whose native half gives its header and its memory.

    Its own `load` and `from_bytes` take any kind; those of a kind take that kind alone.
    """

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]  # filters change and compare by their memory

    kind: ClassVar[str]  # as the header names it

    if TYPE_CHECKING:  # the native half's

        @property
        def nbytes(self) -> int: ...
        @property
        def read_only(self) -> bool: ...
        def _header(self, checksum: int) -> bytes: ...
        def _sections(self) -> list[Any]: ...
        def _changes(self) -> int: ...
        def _snapshot(self) -> tuple[bytes, _native.Memory]: ...
        def info(self) -> dict[str, Any]: ...

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "kind" in vars(cls):
            KINDS.setdefault(cls.kind, cls)

    @classmethod
    def _open(
        cls,
        head: bytes,
        body: _native.Memory | Buffer | None = None,
        offset: int = 0,
        writable: bool = False,
    ) -> Self:
        """Make a filter from its head and, if it was saved, its memory."""
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        """True if both are the same in every byte, so that they give the same answers."""
        if not isinstance(other, SavedFilter):
            return NotImplemented
        if self is other:
            return True
        if self._header(0) != other._header(0):
            return False
        mine, theirs = self._sections(), other._sections()
        return all(memoryview(a) == memoryview(b) for a, b in zip(mine, theirs, strict=True))

    def copy(self) -> Self:
        """Return a filter with the same keys, in memory of its own."""
        memory.check(self.nbytes)
        return self._open(*self._snapshot())

    def __copy__(self) -> Self:
        """Return a copy."""
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return a copy."""
        return self.copy()

    def to_bytes(self) -> bytes:
        """Return the filter as bytes, checksummed; what `save` would write."""
        memory.check(self.nbytes)
        file = io.BytesIO()
        write(self, file)
        return file.getvalue()

    @constructor
    def from_bytes(cls, data: Buffer) -> Self:
        """Make the filter that `to_bytes` gave; CorruptData if the bytes are not that."""
        view = memoryview(data).cast("B")
        head = bytes(view[:HEADER_BYTES])
        right, nbytes, expected = _expect(cls, head, len(view))
        memory.check(len(view))
        files.check_sum(expected, _native.checksum(view[HEADER_BYTES:]))
        body = _native.Memory(nbytes)
        body.write(0, view[HEADER_BYTES:])
        return right._open(head, body)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as the bytes."""
        return type(self).from_bytes, (self.to_bytes(),)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the filter to a file: checksummed, and all of it or nothing.

        Keys that other threads add to a BloomFilter while it is written may or may not be in the
        file; of other kinds that change meanwhile, a copy is made and written instead.
        """
        with files.replacing(path) as file:
            write(self, file)

    @constructor
    @known_keywords
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        mmap: bool = False,
        writable: bool = False,
        verify: bool | None = None,
    ) -> Self:
        """Read a saved filter.

        With `mmap` the file itself is the memory: it opens at once, and processes that map the same
        file share it. It is read-only, unless `writable`, which is for `BloomFilter` alone: then
        every process sees what any of them adds. `verify` compares the checksum, which reads all of
        the file (the default without mmap).

        Without `mmap`, the default, nothing that happens to the file later matters. A mapped file
        that another process makes shorter ends this process by the signal SIGBUS as soon as it
        touches what is gone: no exception can be raised for that.
        """
        if writable and not mmap:
            raise errors.InvalidParameter(
                "writable=True needs mmap=True: without it, load and save"
            )
        with files.naming(path), open(path, "r+b" if writable else "rb") as file:
            head = file.read(HEADER_BYTES)
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return cls._load_stream(file, head)
            total = os.fstat(file.fileno()).st_size
            right, nbytes, expected = _expect(cls, head, total)
            if mmap:
                return right._map(file, head, expected, writable, bool(verify))
            memory.check(total)
            body = _native.Memory(nbytes)
            checksum = _read_body(file, body, nbytes)
            if verify is not False:
                files.check_sum(expected, checksum)
            return right._open(head, body)

    @classmethod
    def _load_stream(cls, file: BinaryIO, head: bytes) -> Self:
        """Read from a pipe or device: no further than the header says, lest it never end."""
        right, nbytes, _ = _expect(cls, head, None)
        memory.check(2 * nbytes)
        return right.from_bytes(head + file.read(nbytes + 1))

    @classmethod
    def _map(cls, file: BinaryIO, head: bytes, expected: int, writable: bool, verify: bool) -> Self:
        if writable and cls.kind != "bloom":
            raise errors.InvalidParameter(
                f"writable is True, must be False for a {cls.__name__}: what it holds moves as "
                "keys come, so two processes that write would lose keys; load it without mmap and "
                "save it"
            )
        access = memory_map.ACCESS_WRITE if writable else memory_map.ACCESS_READ
        mapped = memory_map.mmap(file.fileno(), 0, access=access)
        if verify:
            checksum = 0
            with memoryview(mapped) as view:
                for start in range(HEADER_BYTES, len(view), CHUNK_BYTES):
                    checksum = _native.checksum(view[start : start + CHUNK_BYTES], checksum)
            files.check_sum(expected, checksum)
        filter = cls._open(head, mapped, HEADER_BYTES)
        if writable:
            # From now on the bits change in place and no checksum of them can hold.
            mapped[_CHECKSUM] = _native.LIVE.to_bytes(8, "little")
        return filter


F = TypeVar("F", bound=SavedFilter)


def _read_body(file: BinaryIO, body: _native.Memory, nbytes: int) -> int:
    """Read what is behind the head into memory; return its checksum."""
    checksum = done = 0
    if hasattr(body, "fill"):  # not everywhere: without a copy between, and while others run
        while done < nbytes:
            most = min(_READ_BYTES, nbytes - done)
            place = HEADER_BYTES + done
            count, checksum = body.fill(file.fileno(), place, done, most, checksum)
            done += count
            if count < most:
                break
    else:
        chunk = memoryview(bytearray(CHUNK_BYTES))
        while count := file.readinto(chunk):  # type: ignore[attr-defined]
            checksum = _native.checksum(chunk[:count], checksum)
            body.write(done, chunk[:count])
            done += count
    if done != nbytes:
        raise errors.CorruptData("the file became shorter while it was read")
    return checksum


def expect(head: bytes) -> tuple[type[SavedFilter], int, int]:
    """Return the class that a head asks for, the bytes behind it and their checksum."""
    return _expect(SavedFilter, head, None)


def _expect(cls: type[F], head: bytes, total: int | None) -> tuple[type[F], int, int]:
    """The same, if it is this class, in a file of so many bytes; of SavedFilter, any is right."""
    kind, nbytes, expected = _native.read_header(head, total)
    right: Any = KINDS.get(kind)
    if kind == "signatures":
        raise errors.IncompatibleFilters(
            "this is a signature index, not a filter: load it with "
            "bloomery.signatures.SignatureIndex.load"
        )
    if right is None:
        raise errors.UnsupportedVersion(f"filter kind {kind}, for which there is no class")
    if hasattr(cls, "kind"):
        if cls.kind != kind:
            raise errors.IncompatibleFilters(
                f"this is a {right.__name__}, not a {cls.__name__}: load it with "
                f"{right.__name__}, or with bloomery.open, which takes any kind"
            )
        right = cls
    if expected == _native.LIVE and kind != "bloom":
        raise errors.CorruptData(f"no checksum: a {kind} filter always has one")
    return right, nbytes, expected


def write(filter: SavedFilter, file: BinaryIO, key_type: str | None = None) -> None:
    """Write a filter to an empty file that can seek; what its keys are is kept of few kinds."""
    changes = filter._changes()
    file.seek(HEADER_BYTES)
    checksum = 0
    for chunk in files.chunks(filter._sections()):
        checksum = _native.checksum(chunk, checksum)
        file.write(chunk)
    header = filter._header(checksum)
    if key_type in KEY_TYPES and filter.kind in _KEY_TYPE:
        header = _with_key_type(header, _KEY_TYPE[filter.kind], 1 + KEY_TYPES.index(key_type))
    file.seek(0)
    if filter._changes() == changes:
        file.write(header)
    else:
        # Half of one state and half of the next may be neither: a key that moved is in no half.
        file.truncate()
        write(filter.copy(), file, key_type)


def _with_key_type(header: bytes, place: slice, number: int) -> bytes:
    """The header with the bytes that readers of old do not look at, and its checksum anew."""
    said = number.to_bytes(place.stop - place.start, "little")
    summed = header[: place.start] + said + header[place.stop : 112]
    return summed + _native.checksum(summed).to_bytes(8, "little") + header[_CHECKSUM]


def key_type(head: bytes) -> str | None:
    """Return what all keys of a saved filter are, by its head; None where it does not say.

    Only whoever writes a whole file says it. Keys that were added by way of a mapping can be
    anything, so a live file says nothing.
    """
    kind, _, checksum = _native.read_header(head, None)
    if kind not in _KEY_TYPE or checksum == _native.LIVE:
        return None
    number = int.from_bytes(head[_KEY_TYPE[kind]], "little")
    return KEY_TYPES[number - 1] if 0 < number <= len(KEY_TYPES) else None


def head(filter: SavedFilter) -> bytes:
    """Return the first bytes of what `write` would write now: all but the memory."""
    return filter._header(_native.checksum_of_sections(filter._sections()))


def part(filter: SavedFilter, start: int, most: int) -> bytes:
    """Return up to `most` bytes of the filter's memory as it is saved, from an offset on."""
    parts: list[memoryview] = []  # copied once
    for section in filter._sections():
        view = memoryview(section)
        parts.append(view[start : start + most])
        start, most = max(0, start - len(view)), most - len(parts[-1])
        if not most:
            break
    return b"".join(parts)
