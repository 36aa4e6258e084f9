"""The native core. `Bloom` is the base of `bloomery.BloomFilter`, `Bank` that of
`bloomery.FilterBank`, `Family` that of every other filter; names that begin with an underscore are
for these classes alone."""

import os
from collections.abc import Callable, Sequence
from typing import Any, Final, SupportsFloat, final

from typing_extensions import Buffer, Self, disjoint_base

from bloomery.types import Batch, Hasher, Key, Layout, Mask, Nulls

__all__ = [
    "CHUNK_BYTES",
    "HASHERS",
    "HEADER_BYTES",
    "LIVE",
    "Bank",
    "Bloom",
    "Family",
    "Memory",
    "Section",
    "__version__",
    "bank_pages",
    "build_static",
    "checksum",
    "fixed_table",
    "forked",
    "growing_table",
    "lost_frames",
    "make_header",
    "parse_header",
    "read_header",
    "rotating_table",
]
__version__: Final[str]
HEADER_BYTES: Final[int]
CHUNK_BYTES: Final[int]
LIVE: Final[int]
HASHERS: Final[tuple[str, ...]]

@disjoint_base
class Bank:
    def __new__(
        cls,
        source: Buffer | None,
        path: str | os.PathLike[str] | None,
        mode: str,
        boot: int,
    ) -> Self: ...
    def add(self, user: Key, key: Key) -> bool:
        """Add a key of a user; True if it is definitely new, False if it may have been there."""
    def contains(self, user: Key, key: Key) -> bool:
        """False: the user definitely never had the key. True: maybe."""
    def add_many(self, users: Key | Batch, keys: Batch) -> Mask:
        """Add every key, for one user or for one each; a mask that is True where it is new.

        What can be a key is one user, a tuple too; anything else that has rows is one user a row.
        The mask is a list, or a NumPy array if `keys` is an array or a column.
        """
    def contains_many(self, users: Key | Batch, keys: Batch) -> Mask:
        """Ask for every key of one user, or of one each: False is certain, True is maybe."""
    def __contains__(self, user: Key, /) -> bool:
        """True if the user has a key."""
    def __len__(self) -> int:
        """How many users there are."""
    def drop(self, user: Key) -> bool:
        """Forget a user and all of its keys; False if there is no such user."""
    def clear(self) -> None:
        """Forget every user."""
    def flush(self) -> None:
        """Return once everything added is on the disk, where no power cut takes it back."""
    def close(self) -> None:
        """Flush and let go of the file; nothing can be asked any more."""
    def hash_of(self, key: Key) -> int:
        """The 64-bit hash of a key or a user, the same in every process and on every machine."""
    @property
    def keys_per_filter(self) -> int:
        """The number of keys a user for which memory is used best."""
    @property
    def error_rate(self) -> float:
        """The share of absent keys that may be answered with a maybe, for each user."""
    @property
    def hasher(self) -> Hasher:
        """The hash function."""
    @property
    def seed(self) -> int:
        """The hash function's seed; for siphash its key."""
    @property
    def nbytes(self) -> int:
        """Bytes in use, all users and the directory of them."""
    @property
    def estimated_count(self) -> int:
        """How many distinct keys all users have; one taken for another is not counted."""
    @property
    def read_only(self) -> bool:
        """True if it was opened to be read."""
    @property
    def closed(self) -> bool:
        """True once it is closed."""
    def _unseen(self, user: Key, candidates: list[Any]) -> list[Any]: ...
    def _user(self, user: Key) -> dict[str, Any] | None: ...
    def _verify(self) -> None: ...
    def _same(self, other: Bank) -> bool: ...
    def _save(self, write: Callable[[bytes], object]) -> bytes: ...

@disjoint_base
class Bloom:
    def __new__(
        cls,
        capacity: int,
        error_rate: float,
        layout: Layout,
        num_bits: int,
        num_hashes: int,
        lines_per_key: int,
        hasher: Hasher,
        seed: int,
        memory: Memory | Buffer | None = None,
        offset: int = 0,
    ) -> Self: ...
    def add(self, key: Key, /) -> bool:
        """Add the key; True if it is definitely new, False if it may have been there."""
    def __contains__(self, key: Key, /) -> bool:
        """False: definitely not added. True: maybe."""
    def add_many(self, keys: Batch, *, nulls: Nulls = "error", threads: int = 1) -> Mask:
        """Add every key; a mask that is True where a key is definitely new.

        A list or iterable gives a list of bool, a NumPy array or Arrow column a NumPy array. A key
        that stands twice in the batch is new once. `nulls="skip"` leaves nulls out (their row is
        False). Columns are taken without the interpreter lock; `threads` splits them.
        """
    def contains_many(self, keys: Batch, *, nulls: Nulls = "error", threads: int = 1) -> Mask:
        """Ask for every key: False is certain, True is maybe. The mask is as for `add_many`."""
    def update(self, keys: Batch, *, nulls: Nulls = "error", threads: int = 1) -> None:
        """Add every key and say nothing about which were new."""
    def add_lines(self, data: Buffer, *, final: bool = False) -> tuple[bytes, int, int, int]:
        r"""Add each line of `data`, without its newline.

        Returns the lines that were definitely new, each with a newline; the number of bytes used,
        up to the last newline (all if `final`); the lines seen; and the lines that were new.
        """
    def contains_lines(
        self, data: Buffer, *, final: bool = False, invert: bool = False
    ) -> tuple[bytes, int, int, int]:
        """As `add_lines`, but asks: keeps the lines that may be there (`invert`: that are not)."""
    def hash_of(self, key: Key) -> int:
        """The key's 64-bit hash in this filter, the same in every process and on every machine."""
    @property
    def capacity(self) -> int:
        """How many distinct keys it is made for."""
    @property
    def error_rate(self) -> float:
        """The share of absent keys that may be answered with a maybe, at full capacity."""
    @property
    def layout(self) -> Layout:
        """`blocked` or `classic`."""
    @property
    def num_bits(self) -> int:
        """The number of bits, m."""
    @property
    def num_hashes(self) -> int:
        """The number of bits a key sets, k."""
    @property
    def lines_per_key(self) -> int:
        """How many lines of 64 bytes a key touches; 0 in the classic layout."""
    @property
    def hasher(self) -> Hasher:
        """The hash function."""
    @property
    def seed(self) -> int:
        """The hash function's seed; for siphash its key."""
    @property
    def nbytes(self) -> int:
        """Bytes of memory for the bits."""
    @property
    def read_only(self) -> bool:
        """True if it is mapped from a file without `writable`."""
    def _add_hashes(self, data: bytes) -> int: ...
    def _shares(self, buffer: Buffer, offset: int) -> bool: ...
    def _header(self, checksum: int) -> bytes: ...
    def _fill(self) -> tuple[int, float]: ...
    def _write(self, offset: int, data: Buffer) -> None: ...
    def _padding_is_clear(self) -> bool: ...
    def _clear(self) -> None: ...
    def _or(self, other: Bloom) -> None: ...
    def _and(self, other: Bloom) -> None: ...
    def _is_subset(self, other: Bloom) -> bool: ...
    def _fold_from(self, other: Bloom) -> None: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@disjoint_base
class Family:
    def __new__(
        cls,
        header: bytes,
        body: Memory | Buffer | None = None,
        offset: int = 0,
        writable: bool = False,
    ) -> Self: ...
    def add(self, key: Key, /) -> bool:
        """Add the key; True if it is definitely new, False if it may have been there."""
    def __contains__(self, key: Key, /) -> bool:
        """False: definitely not there. True: maybe."""
    def add_many(self, keys: Batch, *, nulls: Nulls = "error", threads: int = 1) -> Mask:
        """Add every key; a mask that is True where a key is definitely new.

        A list or iterable gives a list of bool, a NumPy array or Arrow column a NumPy array.
        `nulls="skip"` leaves nulls out (their row is False). One thread adds, whatever `threads`
        says: it is there so that all filters are called alike.
        """
    def contains_many(self, keys: Batch, *, nulls: Nulls = "error", threads: int = 1) -> Mask:
        """Ask for every key: False is certain, True is maybe. `threads` splits a column."""
    def update(self, keys: Batch, *, nulls: Nulls = "error", threads: int = 1) -> None:
        """Add every key and say nothing about which were new."""
    def add_lines(self, data: Buffer, *, final: bool = False) -> tuple[bytes, int, int, int]:
        r"""Add each line of `data`, without its newline.

        Returns the lines that were definitely new, each with a newline; the number of bytes used,
        up to the last newline (all if `final`); the lines seen; and the lines that were new.
        """
    def contains_lines(
        self, data: Buffer, *, final: bool = False, invert: bool = False
    ) -> tuple[bytes, int, int, int]:
        """As `add_lines`, but asks: keeps the lines that may be there (`invert`: that are not)."""
    def hash_of(self, key: Key) -> int:
        """The key's 64-bit hash in this filter, the same in every process and on every machine."""
    @property
    def _kind(self) -> str: ...
    @property
    def capacity(self) -> int:
        """How many distinct keys it is made for."""
    @property
    def error_rate(self) -> float:
        """The share of absent keys that may be answered with a maybe."""
    @property
    def num_bits(self) -> int:
        """The number of bits, m; 0 where that has no meaning."""
    @property
    def num_hashes(self) -> int:
        """The number of places a key takes, k; 0 where that has no meaning."""
    @property
    def lines_per_key(self) -> int:
        """How many lines of 64 bytes a key touches; 0 where that has no meaning."""
    @property
    def hasher(self) -> Hasher:
        """The hash function."""
    @property
    def seed(self) -> int:
        """The hash function's seed; for siphash its key."""
    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
    @property
    def read_only(self) -> bool:
        """True if it is mapped from a file."""
    @property
    def _layout(self) -> int: ...
    @property
    def _extra(self) -> tuple[int, int, int, int, int, int]: ...
    def _remove_one(self, key: Key, /) -> bool:
        """Take one copy of the key out; KeyError if it is definitely not there.

        True: it was taken out. False: it may be there and cannot be.
        """
    def _discard_one(self, key: Key, /) -> bool:
        """Take one copy of the key out if it is there; True if it was."""
    def _remove_many(self, keys: Batch, nulls: Nulls = "error") -> Mask: ...
    def _remove_lines(self, data: Buffer, final: bool = False) -> tuple[bytes, int, int, int]: ...
    def _add_hashes(self, data: bytes) -> int: ...
    def _remove_hashes(self, data: bytes) -> int: ...
    def _shares(self, buffer: Buffer, offset: int) -> bool: ...
    def _due(self) -> float: ...
    def _count(self, key: Key) -> int: ...
    def _ask(self, what: str, key: Key) -> float | None: ...
    def _act(self, what: str, value: float = 0.0) -> float | None: ...
    def _merge(self, other: Family, intersection: bool) -> None: ...
    def _clear(self) -> None: ...
    def _time(self) -> float: ...
    def _clock(self) -> Callable[[], SupportsFloat] | None: ...
    def _set_clock(self, clock: Callable[[], SupportsFloat] | None) -> None: ...
    def _facts(self) -> dict[str, float]: ...
    def _header(self, checksum: int) -> bytes: ...
    def _sections(self) -> list[Section]: ...
    def _changes(self) -> int: ...
    def _snapshot(self) -> tuple[bytes, Memory]: ...

@final
class Memory:
    def __new__(cls, nbytes: int) -> Self: ...
    def write(self, offset: int, data: Buffer) -> None: ...
    def read(self, offset: int, count: int) -> bytes: ...

@final
class Section:
    def __buffer__(self, flags: int, /) -> memoryview: ...

def bank_pages(keys_per_filter: int, error_rate: float) -> tuple[int, int]: ...
def forked() -> None: ...
def make_header(
    kind: str,
    capacity: int,
    error_rate: float,
    hasher: Hasher,
    seed: int,
    *,
    layout: int = 0,
    lines_per_key: int = 0,
    num_hashes: int = 0,
    num_bits: int = 0,
    nbytes: int = 0,
    extra: Sequence[int] = (),
) -> bytes: ...
def read_header(head: bytes, total: int | None) -> tuple[str, int, int]: ...
def parse_header(
    head: bytes, total: int | None
) -> tuple[int, float, Layout, int, int, int, Hasher, int, int]: ...
def checksum(data: Buffer, before: int = 0) -> int: ...
def lost_frames(data: Buffer) -> int: ...
def build_static(
    keys: Batch, error_rate: float, hasher: Hasher, seed: int, nulls: Nulls
) -> tuple[bytes, Memory]: ...
def growing_table(capacity: int, error_rate: float) -> tuple[int, int, int, int]: ...
def fixed_table(capacity: int, error_rate: float) -> tuple[int, int, int, int]: ...
def rotating_table(
    capacity: int, error_rate: float, generations: int
) -> tuple[int, int, int, int]: ...
