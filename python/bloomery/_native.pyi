"""The native core. `Bloom` is the base of `bloomery.BloomFilter`, `Bank` that of
`bloomery.FilterBank`, `Chain` and `Cuckoo` those of RedisBloom's filters, `SparkBits` that of
Spark's, `Family` that of every other filter; names that begin with an underscore are for these
classes alone."""

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn, SupportsFloat, final, type_check_only

from typing_extensions import Buffer, Self, disjoint_base

from bloomery.types import Batch, Hasher, Key, Layout, Mask, Nulls

__all__ = [
    "CHUNK_BYTES",
    "HASHERS",
    "HEADER_BYTES",
    "LIVE",
    "LOG_FORMAT",
    "MAGIC",
    "Bank",
    "Bloom",
    "Chain",
    "Commands",
    "CorpusChunk",
    "CorpusSplitter",
    "Cuckoo",
    "DuckDBFilter",
    "Family",
    "Histogram",
    "InputBudget",
    "KeyHashes",
    "LineKey",
    "LogChunks",
    "LogWriter",
    "Memory",
    "Outcomes",
    "Pack",
    "ParquetFooter",
    "Pattern",
    "Places",
    "Section",
    "Session",
    "Shelf",
    "Signatures",
    "SparkBits",
    "Time",
    "Waiters",
    "Workers",
    "__version__",
    "bank_pages",
    "build_exact",
    "build_static",
    "canonical",
    "check_arrow_type",
    "check_certificate",
    "checked_arrow",
    "checksum",
    "checksum_of_sections",
    "column_objects",
    "cut_json",
    "fixed_table",
    "growing_table",
    "json_depth",
    "log_segment_path",
    "log_segments",
    "make_header",
    "mask",
    "memory_used",
    "offer_to_duckdb",
    "pack_records",
    "parquet_block",
    "parquet_block_contains",
    "parquet_error_rate",
    "parquet_filter",
    "parquet_filter_header",
    "parquet_hash",
    "parquet_page",
    "parse_header",
    "read_header",
    "read_parquet_filter_header",
    "redisbloom_bytes",
    "rediscuckoo_bytes",
    "rotating_table",
    "set_memory_limit",
    "static_nbytes",
    "touch",
    "unmap_aside",
    "unpack_records",
]
__version__: Final[str]
HEADER_BYTES: Final[int]
CHUNK_BYTES: Final[int]
LIVE: Final[int]
LOG_FORMAT: Final[int]
MAGIC: Final[bytes]
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
    def _add_hashes(self, data: Buffer) -> int:
        """Add keys by their hashes, the user's and the key's; how many were new."""
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
        """True once it is closed, and in a child of a fork, whose parent has the file."""
    def _unseen(self, user: Key, candidates: list[Any]) -> list[Any]: ...
    def _user(self, user: Key) -> dict[str, Any] | None: ...
    def _verify(self) -> None: ...
    def _same(self, other: Bank) -> bool: ...
    def _image(self) -> bytes: ...
    def _save(self, fd: int, pace: int) -> bytes: ...

@type_check_only
class _KeyFilter:
    """What `Bloom` and `Family` have alike; there is no such class when it runs."""

    def add(self, key: Key, /) -> bool:
        """Add the key; True if it is definitely new, False if it may have been there."""
    def contains(self, key: Key, /) -> bool:
        """The same as `key in filter`. False: definitely not there. True: maybe."""
    def update(self, keys: Batch, *, nulls: Nulls = "error", threads: int = 1) -> None:
        """Add every key and say nothing about which were new."""
    def add_lines(
        self, data: Buffer, *, final: bool = False, key: LineKey | None = None
    ) -> tuple[bytes, int, int, int]:
        r"""Add each line of `data`, without its newline.

        Returns the lines that were definitely new, each with a newline; the number of bytes used,
        up to the last newline (all if `final`); the lines seen; and the lines that were new.
        With a `key` a line is known by that part of it; lines without one are kept and not added.
        """
    def contains_lines(
        self,
        data: Buffer,
        *,
        final: bool = False,
        invert: bool = False,
        key: LineKey | None = None,
    ) -> tuple[bytes, int, int, int]:
        """As `add_lines`, but asks: keeps the lines that may be there (`invert`: that are not)."""
    def hash_of(self, key: Key) -> int:
        """The key's 64-bit hash in this filter, the same in every process and on every machine."""
    @property
    def capacity(self) -> int:
        """How many distinct keys it is made for."""
    @property
    def hasher(self) -> Hasher:
        """The hash function."""
    @property
    def seed(self) -> int:
        """The hash function's seed; for siphash its key."""
    def _add_hashes(self, data: bytes) -> int: ...
    def _shares(self, buffer: Buffer, offset: int) -> bool: ...
    def _header(self, checksum: int) -> bytes: ...
    def _panic(self, long: bool, /) -> NoReturn: ...
    def _clear(self) -> None: ...

@disjoint_base
class Bloom(_KeyFilter):
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
    def positions(self, key: Key) -> list[int]:
        """Where the key's bits are: `num_hashes` numbers, of which some may be equal."""
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
    def nbytes(self) -> int:
        """Bytes of memory for the bits."""
    @property
    def read_only(self) -> bool:
        """True if it is mapped from a file without `writable`."""
    def _fill(self) -> tuple[int, float]: ...
    def _padding_is_clear(self) -> bool: ...
    def _or(self, other: Bloom) -> None: ...
    def _and(self, other: Bloom) -> None: ...
    def _is_subset(self, other: Bloom) -> bool: ...
    def _fold_from(self, other: Bloom) -> None: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@type_check_only
class _LayeredFilter:
    """What `Chain` and `Cuckoo` have alike; there is no such class when it runs."""

    def __new__(
        cls,
        head: bytes,
        body: Memory | Buffer | None = None,
        offset: int = 0,
        writable: bool = False,
        most: int = 2**64 - 1,
    ) -> Self: ...
    def contains(self, key: bytes) -> bool:
        """False: definitely not there. True: maybe."""
    def __contains__(self, key: bytes, /) -> bool:
        """False: definitely not there. True: maybe."""
    @property
    def capacity(self) -> int:
        """How many keys the first layer was made for."""
    @property
    def error_rate(self) -> float:
        """The share of absent keys that may be answered with a maybe; of a cuckoo filter, once a
        layer is full, roughly."""
    @property
    def nbytes(self) -> int:
        """Bytes that a file of it has after its header."""
    @property
    def num_layers(self) -> int:
        """How many layers it has; RedisBloom says filters."""
    @property
    def redis_size(self) -> int:
        """Bytes, as BF.INFO or CF.INFO counts them."""
    @property
    def read_only(self) -> bool:
        """True if it is mapped from a file."""
    @staticmethod
    def _planned(dump: bytes) -> int: ...
    def _add_hashes(self, data: bytes) -> int: ...
    def _chunk(self, iterator: int) -> tuple[int, bytes]: ...
    def _check_chunk(self, iterator: int, nbytes: int) -> None: ...
    def _load_chunk(self, iterator: int, data: bytes) -> None: ...
    def _clear(self) -> None: ...
    def _facts(self) -> dict[str, float]: ...
    def _header(self, checksum: int) -> bytes: ...
    def _sections(self) -> list[Section]: ...
    def _changes(self) -> int: ...
    def _snapshot(self) -> tuple[bytes, Memory]: ...
    def _shares(self, buffer: Buffer, offset: int) -> bool: ...

@disjoint_base
class Chain(_LayeredFilter):
    @property
    def estimated_count(self) -> int:
        """Keys that were new when they came."""
    @property
    def expansion(self) -> int | None:
        """How many times larger each layer is than the one before; None if it is not to grow."""
    @property
    def hash_width(self) -> int:
        """Bits of each hash: 32 of filters from before RedisBloom 2."""
    def _hashes_of(self, key: bytes) -> bytes: ...
    def add(self, key: bytes) -> bool:
        """Add the key; True if it is definitely new, False if it may have been there."""
    @staticmethod
    def _plan(error_rate: float, capacity: int, expansion: int, nonscaling: bool) -> bytes: ...
    def _layers(self) -> list[tuple[int, int, int, int, float]]: ...

@disjoint_base
class Cuckoo(_LayeredFilter):
    @property
    def estimated_count(self) -> int:
        """Keys, each as often as it was added."""
    @property
    def expansion(self) -> int:
        """How many times larger each layer is than the one before; 0 if it is not to grow."""
    @staticmethod
    def _hashes_of(key: bytes) -> bytes: ...
    def add(self, key: bytes) -> None:
        """Add the key once more; FilterFull if there is no room."""
    def add_new(self, key: bytes) -> bool:
        """Add the key if it is definitely not there; True if so."""
    def discard(self, key: bytes) -> bool:
        """Take one copy of the key out if it is there; True if it was."""
    def count(self, key: bytes) -> int:
        """How often the key was added: sometimes more, never less."""
    def compact(self) -> None:
        """Move what newer layers hold to older ones where there is room."""
    @property
    def bucket_size(self) -> int:
        """How many fingerprints a bucket has room for."""
    @property
    def max_iterations(self) -> int:
        """How many fingerprints are moved before a layer counts as full."""
    @property
    def num_buckets(self) -> int:
        """Buckets of the first layer."""
    @property
    def num_removed(self) -> int:
        """Keys removed since the last compaction."""
    @staticmethod
    def _plan(capacity: int, bucket_size: int, max_iterations: int, expansion: int) -> bytes: ...
    def _remove_hashes(self, data: bytes) -> int: ...

@disjoint_base
class Family(_KeyFilter):
    def __new__(
        cls,
        header: bytes,
        body: Memory | Buffer | None = None,
        offset: int = 0,
        writable: bool = False,
    ) -> Self: ...
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
    @property
    def _kind(self) -> str: ...
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
    def nbytes(self) -> int:
        """Bytes of memory."""
    @property
    def read_only(self) -> bool:
        """True if it is mapped from a file."""
    @property
    def _extra(self) -> tuple[int, int, int, int, int, int]: ...
    def _remove_one(self, key: Key, /) -> bool:
        """Take one copy of the key out; KeyError if it is definitely not there.

        True: it was taken out. False: it may be there and cannot be.
        """
    def _discard_one(self, key: Key, /) -> bool:
        """Take one copy of the key out if it is there; True if it was."""
    def _positions(self, key: Key) -> list[int]: ...
    def _remove_many(self, keys: Batch, nulls: Nulls = "error") -> Mask: ...
    def _remove_lines(self, data: Buffer, final: bool = False) -> tuple[bytes, int, int, int]: ...
    def _remove_hashes(self, data: bytes) -> int: ...
    def _due(self) -> float: ...
    def _count(self, key: Key) -> int: ...
    def _ask(self, what: str, key: Key) -> float | None: ...
    def _act(self, what: str, value: float = 0.0) -> float | None: ...
    def _merge(self, other: Family, intersection: bool) -> None: ...
    def _time(self) -> float: ...
    def _clock(self) -> Callable[[], SupportsFloat] | None: ...
    def _set_clock(self, clock: Callable[[], SupportsFloat] | None) -> None: ...
    def _facts(self) -> dict[str, float]: ...
    def _sections(self) -> list[Section]: ...
    def _changes(self) -> int: ...
    def _snapshot(self) -> tuple[bytes, Memory]: ...

@final
class KeyHashes:
    """The hashes of keys, 8 bytes each, as they come."""

    def __new__(cls, hasher: str, seed: int) -> Self: ...
    def update(self, keys: Batch, nulls: str = "error") -> None: ...
    def add_lines(
        self, data: Buffer, *, final: bool = False, key: LineKey | None = None
    ) -> int: ...
    def distinct(self) -> int:
        """Bring them into order, each once; how many there are."""

    def common(self, other: KeyHashes) -> tuple[int, int | None]:
        """How many keys both have, and the hash of one of them; both were made `distinct`."""

    def row_of(self, hash: int) -> int | None:
        """Which of them, in the order in which they came, has this hash; before `distinct`."""

    def __len__(self) -> int: ...

@final
class LineKey:
    """Where in each line its key is, and how many lines had none."""

    @staticmethod
    def json(path: list[str | int]) -> LineKey:
        """A value inside lines of JSON: names of members and numbers of elements lead to it."""
    @staticmethod
    def csv(column: int, delimiter: bytes) -> LineKey:
        """A column of CSV, from 0."""
    def fresh(self) -> LineKey:
        """The same, with no line seen yet."""
    def split(
        self, data: Buffer, *, final: bool = False
    ) -> tuple[list[bytes], list[bytes | None], int]:
        """The lines of `data`, the key of each (None where it has none), and the bytes used."""
    @property
    def lines(self) -> int:
        """Lines seen so far."""
    @property
    def missing(self) -> int:
        """Those without a key."""
    @property
    def first_missing(self) -> int:
        """The number of the first of those, from 1; 0 if there is none."""

@final
class Memory:
    def __new__(cls, nbytes: int) -> Self: ...
    def touch(self, offset: int, count: int) -> None: ...
    def fill(
        self, file: int, offset: int, start: int, count: int, before: int
    ) -> tuple[int, int]: ...
    def write(self, offset: int, data: Buffer) -> None: ...
    def checksum(self) -> int: ...
    def read(self, offset: int, count: int) -> bytes: ...

@final
class Section:
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class Pack:
    """Saved filters of one hasher, asked for a key all at once."""

    def __new__(cls, memory: Buffer, offsets: Sequence[int], verify: bool) -> Self: ...
    @staticmethod
    def join(packs: Sequence[Pack]) -> Pack:
        """One pack of the filters of all of these."""
    def __len__(self) -> int: ...
    def maybes(self, key: Key) -> list[int]:
        """The numbers of the filters that may hold the key; the others definitely do not."""
    def maybes_many(self, keys: Batch) -> list[list[int]]:
        """The same for each key of a batch."""

@final
class Pattern:
    """A pattern of names, as Redis's KEYS has them."""

    def __new__(cls, pattern: bytes) -> Self: ...
    def matches(self, name: bytes) -> bool:
        """Whether a name matches."""

@final
class Places:
    """Where the cells of keys lie in strings of Redis."""

    def __new__(cls, header: bytes, shard_bytes: int) -> Self: ...
    def hashes(self, keys: Batch) -> tuple[bytes, bool]:
        """The hash of each key of a batch, 8 bytes each, and whether its mask is to be an array."""
    def add(self, hashes: bytes, names: list[bytes]) -> Commands:
        """Commands that add keys by their hashes, to strings of these names, one a shard."""
    def contains(self, hashes: bytes, names: list[bytes]) -> Commands:
        """Commands that ask for keys by their hashes."""
    def remove(self, hashes: bytes, names: list[bytes], script: bytes) -> Commands:
        """Commands that call a script of this SHA-1 for each key.

        KEYS[1] is the string, ARGV the width of a counter and then the offsets of the key's
        counters.
        """
    @property
    def shards(self) -> int:
        """How many strings there are."""
    def shard_bytes(self, shard: int) -> int:
        """How long a shard's string is."""

@final
class Commands:
    """A batch on its way to Redis."""

    @property
    def parts(self) -> list[tuple[int, bytes, int]]:
        """For each shard that is asked: its number, what to send, how many replies it will have."""
    def feed(self, shard: int, replies: list[Any]) -> int:
        """Take a shard's replies, as many as were promised; how long its string is.

        CorruptData if they are not what such commands are answered with.
        """
    @property
    def answers(self) -> bytes:
        """A byte for each key.

        Added: 1 where it is definitely new. Asked: 0 where it is definitely not there, else the
        least of its counters. Removed: what the script said.
        """

def bank_pages(keys_per_filter: int, error_rate: float) -> tuple[int, int]: ...
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
def cut_json(
    text: bytes, member: bytes, nbytes: int
) -> tuple[int, int, int, list[tuple[int, int]]] | None:
    """Where the array that is this member of JSON's outermost object begins and ends, how many
    elements it has, and those in slices of about so many bytes; None if there is none."""

def json_depth(text: bytes) -> int:
    """How deep the arrays and objects of a text of JSON are nested."""

def touch(section: Section | Bloom) -> None:
    """Ask the kernel for all of a filter's memory, while others run."""

def unmap_aside() -> None:
    """Let memory of large filters be given back by threads from now on."""

def mask(answers: bytes, array: bool) -> Mask:
    """Answers, a byte for each key, as a list of bool or a NumPy array."""

def read_header(head: bytes, total: int | None) -> tuple[str, int, int]: ...
def parse_header(
    head: bytes, total: int | None
) -> tuple[int, float, Layout, int, int, int, Hasher, int, int]: ...
def check_certificate(chain: bytes, key: bytes) -> None:
    """Raise InvalidParameter unless workers can use a chain and its key (PEM)."""

def checksum(data: Buffer, before: int = 0) -> int: ...
def checksum_of_sections(sections: list[Any]) -> int: ...
def pack_records(records: list[tuple[int, int, bytes]]) -> bytes:
    """Records of a log (a filter's number, the operation, its bytes) as one entry's payload."""

def unpack_records(data: bytes) -> list[tuple[int, int, bytes]]:
    """The records of a payload; CorruptData if it ends within one."""

def log_segment_path(folder: str | os.PathLike[str], number: int) -> Path: ...
def log_segments(folder: str | os.PathLike[str]) -> list[int]: ...
def build_static(
    keys: Batch, error_rate: float, hasher: Hasher, seed: int, nulls: Nulls
) -> tuple[bytes, Memory]: ...
def build_exact(
    members: KeyHashes,
    non_members: KeyHashes,
    width: int,
    inverted: bool,
    error_rate: float,
) -> tuple[bytes, Memory]:
    """The head and the memory of an exact set of these keys, which it uses up."""

def static_nbytes(count: int, width: int) -> int:
    """How many bytes a static filter of so many distinct keys takes, by bits of a fingerprint."""

def redisbloom_bytes(error_rate: float, capacity: int) -> int:
    """How many bytes the first layer of a `Chain` takes."""

def rediscuckoo_bytes(capacity: int, bucket_size: int) -> int:
    """How many bytes the first layer of a `Cuckoo` takes."""

def growing_table(capacity: int, error_rate: float) -> tuple[int, int, int, int]: ...
def fixed_table(capacity: int, error_rate: float) -> tuple[int, int, int, int]: ...
def rotating_table(
    capacity: int, error_rate: float, generations: int
) -> tuple[int, int, int, int]: ...
def canonical(key: Key) -> bytes:
    """The key's domain and canonical bytes: equal exactly if filters take two keys for one."""

def memory_used() -> int:
    """Bytes that all filters of this process have now; mapped files are not among them."""

def set_memory_limit(nbytes: int | None = None) -> None:
    """Set the most bytes that all filters may have from now on; None: no limit."""

@disjoint_base
class SparkBits:
    """Spark's own Bloom filter: its bits, and how a key finds its own."""

    def __new__(
        cls,
        version: int,
        num_hashes: int,
        seed: int,
        num_words: int,
        body: bytes | None = None,
    ) -> Self: ...
    def add(self, key: Key) -> bool:
        """Add the key; True if it is definitely new, False if it may have been there."""
    def contains(self, key: Key) -> bool:
        """False: definitely not there. True: maybe."""
    def __contains__(self, key: Key, /) -> bool:
        """False: definitely not there. True: maybe."""
    def add_many(self, keys: Batch, *, nulls: Nulls = "error") -> Mask:
        """Add every key of a batch or column; True where it is definitely new."""
    def contains_many(self, keys: Batch, *, nulls: Nulls = "error") -> Mask:
        """False where a key of a batch or column is definitely not there, True: maybe."""
    @property
    def version(self) -> int:
        """Of Spark's format: 1, or 2 since Spark 4.1."""
    @property
    def num_bits(self) -> int:
        """The number of bits, m."""
    @property
    def num_hashes(self) -> int:
        """How many bits a key has, k."""
    @property
    def seed(self) -> int:
        """What the first hash begins with."""
    def _merge(self, other: SparkBits) -> bool: ...
    def _words(self) -> bytes: ...
    def _bits_set(self) -> int: ...

@final
class Outcomes:
    """The outcomes of a batch, with which sessions answer their writes."""

    def __new__(cls, results: list[Any]) -> Self:
        """Take a result for each record: as `Shelf.apply` appends it, an error reply in bytes, or
        None if another command changed the name first. Anything else: a thread still applies the
        record."""

@final
class Time:
    """A time that Python sets and native code reads; a clock of rotating filters."""

    def __new__(cls) -> Self: ...
    def __call__(self) -> float: ...
    @property
    def seconds(self) -> float:
        """Seconds since 1970."""
    @seconds.setter
    def seconds(self, value: float, /) -> None: ...

@final
class Shelf:
    """The named filters of a server, and what is to be logged of their writes."""

    def __new__(cls) -> Self: ...
    def put(
        self,
        name: bytes,
        filter: Any,
        id: int,
        *,
        family: str = "bf",
        items: int = 0,
        limit: int | None = None,
        full: str = "full",
        threshold: int | None = None,
        loading: bool = False,
        followed: bool = False,
    ) -> None:
        """Give a name to a filter, or to another in place of the one that had it."""
    def __len__(self) -> int:
        """How many names there are."""
    def drop(self, name: bytes) -> bool:
        """Take a name away; False if there was none."""
    def contains(self, name: bytes, keys: Batch) -> bytes:
        """A byte for each key: 0 is definitely not there, 1 maybe."""
    def count(self, name: bytes, key: Any) -> int:
        """How often the key was added, at most."""
    def figures(self, name: bytes) -> tuple[int, int, int, int] | None:
        """Items, adds, checks and maybes of a filter since it was put; None if there is none."""
    def sample(
        self, name: bytes, probes: int, seed: int
    ) -> tuple[int, int, int, int, float, float, float, int, int | None] | None:
        """How a filter is now, at a cost that does not grow with it; None if there is none.

        Items, adds, checks, maybes, fill ratio, estimated error rate, estimated count, bytes, and
        how many of so many random keys, which nobody added, may be there; they count as no checks.
        """
    def take_reached(self) -> list[int]:
        """Numbers of the filters that have reached their threshold, each once."""
    def set_locked(self, name: bytes, locked: bool) -> None:
        """While true, commands about this name go to Python, and wait there: a thread or a
        transaction works on its filter."""
    def set_busy(self, name: bytes, busy: bool) -> None:
        """While true, a thread applies a record to this name: `apply` leaves its records to
        Python."""
    def needs_room(self, name: bytes, keys: int) -> bool:
        """Would adding so many keys have a filter grow for long?"""
    def has_memory(self, name: bytes, keys: int) -> bool:
        """Return whether there is memory for this many more keys in a filter."""
    def note(self, id: int, op: int, data: bytes) -> int:
        """Note a record for the log; return its index in the batch."""
    def note_keys(self, name: bytes, keys: Batch, op: int) -> tuple[int, tuple[int, int] | None]:
        """Note keys for the log, to be added or removed when the log has them.

        Returns how many there are, the index of the record, and of the first key in it. The record
        is None if all keys are present and need none (`exclusive`). KeyError if the name is
        unknown.
        """
    def take_log(self) -> tuple[list[tuple[int, int, bytes]], Waiters]:
        """Take the records of this batch, with the clients that wait for it, and start the next."""
    @property
    def pending(self) -> bool:
        """Whether the next batch has records."""
    def begin_batch(self) -> bool:
        """Take the role of the sequencer. False: a worker has it, and wakes Python when it is
        free."""
    def end_batch(self) -> None:
        """Release the role of the sequencer."""
    @property
    def sequencing(self) -> bool:
        """Whether a batch is on its way."""
    @property
    def inline(self) -> bool:
        """Whether workers may write and apply short batches."""
    @inline.setter
    def inline(self, value: bool, /) -> None: ...
    def set_clock(self, now: float, rate: float) -> None:
        """Set the time of records that workers write: the seconds now, and how many pass per
        second."""
    @property
    def last_at(self) -> float:
        """The time of the last batch that a worker wrote."""
    @property
    def batch_latency(self) -> Histogram:
        """The latency of batches, from when they are taken until they are applied."""
    def apply(
        self, records: list[tuple[int, int, bytes]], results: list[Any], seconds: float
    ) -> bool | None:
        """Apply records of keys, from the first without a result on, and append the results.

        A result is the answers (1 where the key was new, or was removed; 3 where it was refused)
        with the first refusal, its code and message; or None if another command changed the name
        first. Returns True if all records are applied, False if the time is over, and None if the
        next record is for Python.
        """
    def apply_one(
        self, id: int, op: int, data: bytes
    ) -> tuple[bytes, tuple[str, str] | None] | None:
        """Apply one record of keys, however long it takes; from any thread, if the name is locked.

        Returns a result as `apply` appends it. NotEnoughMemory if the filter cannot grow: the keys
        before that are applied.
        """
    def unchanged(self, id: int, op: int, data: bytes) -> bytes | None:
        """Return the answers that `apply_one` would give if it would change nothing; else None."""
    @property
    def exclusive(self) -> bool:
        """While true, no other process writes the log: adding a key that is present needs no
        record."""
    @exclusive.setter
    def exclusive(self, value: bool, /) -> None: ...
    @property
    def filter_limit(self) -> int | None:
        """Bytes that one filter may grow to; None: no limit."""
    @filter_limit.setter
    def filter_limit(self, value: int | None, /) -> None: ...
    @property
    def memory_limit(self) -> int | None:
        """Bytes that all filters together may use; None: no limit."""
    @memory_limit.setter
    def memory_limit(self, value: int | None, /) -> None: ...
    @property
    def refusing(self) -> bool:
        """While true, the native path takes no writes: they go to Python, which says why."""
    @refusing.setter
    def refusing(self, value: bool, /) -> None: ...
    @property
    def bypassed(self) -> bool:
        """While true, the native path does nothing: Python sees every command."""
    @bypassed.setter
    def bypassed(self, value: bool, /) -> None: ...
    def set_due(self, at: float | None) -> None:
        """Let Python handle every command from a time of `time.monotonic` on: a filter expires or
        rotates. None: never."""
    def set_stale(self, at: float | None) -> None:
        """Do the same when the copy of a node is too old."""
    def hashes(self, name: bytes, keys: Batch) -> bytes:
        """The hash of each key, 8 bytes each, as this filter has them."""
    @property
    def most_layers(self) -> int:
        """Layers that a cuckoo filter of RedisBloom's may have, before it takes no more keys."""
    @most_layers.setter
    def most_layers(self, value: int, /) -> None: ...
    @property
    def commands(self) -> int:
        """Commands that were answered without Python."""
    @property
    def hits_and_misses(self) -> tuple[int, int]:
        """Reads that were answered without Python: of filters that exist, and of filters that do
        not."""
    @property
    def latency(self) -> Histogram:
        """Of commands, from the arrival of a chunk until its replies are taken."""

@final
class Histogram:
    """A histogram of times."""

    def __new__(cls) -> Self: ...
    def observe(self, seconds: float) -> None:
        """Count something that took so many seconds."""
    def read(self) -> tuple[list[float], list[int], float]:
        """Return the upper end of each bucket but the last, in seconds; how many there are in each
        bucket; and the sum of all, in seconds."""

@final
class LogWriter:
    """A server's write-ahead log, open for writing. LogUnavailable if that fails."""

    def __new__(
        cls,
        folder: str | os.PathLike[str],
        segment: int,
        seq: int,
        fsync: str,
        segment_bytes: int,
        control: tuple[str | os.PathLike[str], tuple[int, int]] | None = None,
    ) -> Self: ...
    @property
    def seq(self) -> int:
        """The number of the last row."""
    @property
    def segment(self) -> int:
        """The number of the segment that is written to."""
    @property
    def oldest_unsynced(self) -> float | None:
        """The `now` of the oldest write that may not be on the disk."""
    @property
    def flushing(self) -> bool:
        """Whether a flush is running."""
    def write(self, rows: list[tuple[float, int, int, bytes]], now: float) -> int:
        """Write rows (time, filter, operation, data), all or none; return the last one's number."""
    def cut(self) -> int:
        """Start the next segment and return its number."""
    def flush(self) -> int:
        """Bring all rows to the disk and return the number of the last one."""
    def retry(self) -> None:
        """Make the log fit for writing again after an error, or raise LogUnavailable."""
    def close(self) -> int:
        """Flush and close the files, also after an error."""

@final
class LogChunks:
    """Reads a server's write-ahead log. `LogReader` describes the properties."""

    def __new__(
        cls,
        folder: str | os.PathLike[str],
        first: int,
        seq: int | None,
        end: int | None,
        salvage: bool,
    ) -> Self: ...
    def read(self) -> list[tuple[int, float, int, int, bytes]]:
        """The next rows (number, time, filter, operation, data); none at the end."""
    def apply(self, shelf: Shelf) -> list[tuple[int, float, int, int, bytes]] | None:
        """Apply rows of keys to the filters on a shelf, until Python must apply one: return that
        row, and others after it. Some time passes at most, so there may be none. None: the log has
        ended."""
    @property
    def latest(self) -> float:
        """The latest time of a row that `apply` has applied."""
    @property
    def segments(self) -> list[int]: ...
    @property
    def last(self) -> int: ...
    @property
    def rows(self) -> int: ...
    @property
    def problems(self) -> list[str]: ...
    @property
    def broken(self) -> int | None: ...
    @property
    def intact(self) -> int: ...
    @property
    def tail(self) -> str | None: ...

@final
class Session:
    """One client of the Redis protocol."""

    def __new__(
        cls,
        shelf: Shelf,
        id: int,
        max_arguments: int,
        max_argument_bytes: int,
        max_request_bytes: int,
    ) -> Self: ...
    def feed(self, data: bytes) -> list[list[bytes]] | str | bool | None:
        """Process what the client sent, without a worker.

        None: everything is processed, or the rest waits for the answers to writes. A list: commands
        (their words) for Python, which calls `reply` for each and feeds again. A str: a protocol
        error; nothing that follows can be read. True: more follows after other clients were served.
        False: as True, but a filter is locked for a while.
        """
    def reply(self, data: bytes) -> None:
        """Append a reply, after the answers to writes that wait for the log."""
    def take(self) -> bytes:
        """All replies, to be sent."""
    def answer(self, outcomes: Outcomes, again: list[bytes] = ...) -> list[list[bytes]] | None:
        """Reply to the writes that waited for the log.

        If another command changed the name of one first, nothing is answered, and the commands
        (their words) that must run again are returned; the next call passes their replies as
        `again`, in order. Returns None if a thread still applies a record; nothing is answered
        then.
        """
    def fail(self, error: bytes) -> None:
        """Reply with an error to the writes that waited for the log."""
    @property
    def pending(self) -> int:
        """Bytes of replies that the client has not accepted yet."""
    @property
    def id(self) -> int:
        """The number of the client."""
    @property
    def left(self) -> bool:
        """Whether the client has closed its side of the connection, or the connection is closed."""
    @property
    def writing(self) -> bool:
        """Whether writes wait for the log."""
    @property
    def waiting(self) -> int:
        """Bytes that came and are not yet done."""
    @property
    def idle(self) -> float:
        """Seconds since data last arrived."""
    @property
    def unauthenticated(self) -> bool:
        """While true, the client may send only short requests: it must log in first."""
    @unauthenticated.setter
    def unauthenticated(self, value: bool, /) -> None: ...
    @property
    def queued_bytes(self) -> int:
        """Bytes of commands that wait for EXEC. They count as input."""
    @queued_bytes.setter
    def queued_bytes(self, value: int, /) -> None: ...
    @property
    def protocol(self) -> int:
        """2 or 3."""
    @protocol.setter
    def protocol(self, value: int, /) -> None: ...
    @property
    def restricted(self) -> bool:
        """While true, native code serves permitted names only; Python sees other commands."""
    @restricted.setter
    def restricted(self, value: bool, /) -> None: ...
    def permit(self, name: bytes, write: bool) -> None:
        """Let the client ask the filter of this name, or also write to it."""
    @property
    def watched(self) -> bool:
        """Does Python see every command (a transaction, a client that has yet to log in)?"""
    @watched.setter
    def watched(self, value: bool, /) -> None: ...

@final
class InputBudget:
    """Bytes of input that all connections may have together."""

    def __new__(cls, limit: int) -> Self: ...
    def charge(self, before: int, after: int) -> bool:
        """Charge `after` bytes instead of `before`; False, without an effect, if the limit is
        exceeded."""
    @property
    def limit(self) -> int:
        """Bytes that all connections may use together."""
    @limit.setter
    def limit(self, value: int, /) -> None: ...
    @property
    def used(self) -> int:
        """Bytes that are charged."""
    @property
    def refused(self) -> int:
        """Requests that exceeded the limit."""

@final
class Waiters:
    """The clients that wait for a batch."""

    def __len__(self) -> int: ...

@final
class Workers:
    """Threads that own the connections of the Redis protocol."""

    def __new__(
        cls,
        shelf: Shelf,
        threads: int,
        wake: int,
        budget: InputBudget,
        limits: tuple[float, float, float, float, int],
        certificate: tuple[bytes, bytes] | None = None,
        log: tuple[LogWriter, float] | None = None,
    ) -> Self:
        """Start this many threads.

        `wake` is a detached socket: a byte is sent when there are events, the first since
        `take_events`. `limits` are seconds (idle, slow client, request, handshake) and bytes of
        replies. `certificate` is the chain and the key in PEM. `log` is what workers write short
        batches to, with the monotonic time of now.
        """
    def open(self, socket: int, session: Session, close: bool) -> None:
        """Give a detached socket with its session to a worker. `close`: after the replies that the
        session has."""
    def resume(self, session: Session, close: bool) -> None:
        """Continue a client after the replies to all its commands. `close`: after these."""
    def flush(self, session: Session) -> None:
        """Send the replies of a client so far."""
    def abort(self, session: Session) -> None:
        """Close a connection at once."""
    def answer(self, batch: int, outcomes: Outcomes, waiters: Waiters) -> None:
        """Answer the clients of a batch that was applied. Clients whose record a thread still
        applies wait for `answer_rest`."""
    def answer_rest(self, batch: int, outcomes: Outcomes) -> None:
        """Answer the clients that were left."""
    def answer_again(self, session: Session, outcomes: Outcomes, replies: list[bytes]) -> None:
        """Answer a client whose commands in conflict have run again, with these replies."""
    def fail(self, error: bytes, waiters: Waiters) -> None:
        """Answer the clients of a batch that was refused."""
    def take_events(
        self,
    ) -> tuple[
        tuple[list[tuple[int, int, bytes]], Waiters, list[Any], float, Any] | None,
        list[tuple[str, int, list[list[bytes]] | None, Outcomes | None]],
    ]:
        """Return the batch that a worker has handed over, if there is one, and all events.

        The batch: its records, the clients that wait for it, the results of the records that are
        applied, their time, and the error that stopped it or None. LogUnavailable: nothing was
        written. Another error: the next record could not be applied. An event: a kind, the client's
        number, and for "commands" and "conflicts" the commands, for the latter also the outcomes.
        """
    def configure(self, limits: tuple[float, float, float, float, int]) -> None:
        """Change the limits of all connections."""
    def replace_certificate(self, chain: bytes, key: bytes) -> None:
        """Use another certificate for new connections."""
    def drain(self) -> None:
        """Read nothing more from any connection."""
    def close_all(self) -> None:
        """Close all connections after the replies so far."""
    def stop(self) -> None:
        """Close all connections at once; return when the threads have ended."""

@final
class Signatures:
    """Bit-sliced signatures of a table's rows: a bitmap over rows for each bit."""

    def __new__(cls, length: int, bits: list[int]) -> Self: ...
    @staticmethod
    def open(
        header: bytes, bits: list[int], body: Memory | Buffer, offset: int, skip: int
    ) -> Signatures:
        """Those that were saved; the first `skip` bytes of the body are the caller's."""
    def append(self, rows: int, columns: list[Any]) -> None:
        """Append so many rows: of each column an Arrow array of as many."""
    def truncate(self, rows: int) -> None:
        """Forget all rows from this one on."""
    def candidates(self, asked: list[tuple[int, Any]], rows: int) -> bytes | None:
        """The numbers of those among the first `rows` rows that may hold all of these keys, 8 bytes
        each: (column, an Arrow array of one key) for each. None if one of them is null."""
    def sections(self) -> list[Section]:
        """The bitmaps, as they are saved."""
    @property
    def rows(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    def set_bits(self) -> int:
        """How many bits are set, of all rows together."""

@final
class ParquetFooter:
    """What a Parquet file's footer says about the filters of its columns."""

    def __new__(cls, bytes: bytes) -> Self: ...
    @property
    def rows(self) -> list[int]:
        """The number of rows of each row group."""
    @property
    def signed(self) -> bool:
        """Is it encrypted, or signed so that a change would be noticed?"""
    @property
    def external(self) -> bool:
        """Do some of its columns lie in other files?"""
    def filters(self, column: int) -> list[tuple[int | None, int | None]]:
        """For each row group, where the column's filter begins and its length, as far as said."""
    def with_filters(self, places: list[tuple[int, int, int, int]]) -> bytes:
        """The footer with filters at these places: row group and column, offset and length."""
    def excerpt(self, row_groups: list[int], physical: bool) -> bytes:
        """The footer of these row groups alone; if `physical`, without logical types: whoever reads
        by it gets values as they are stored."""
    def pages(self, row_group: int, column: int) -> tuple[int, int] | None:
        """Where the pages of a column in a row group begin, and how many bytes they have; None if
        that is not said."""
    def cut(self, row_group: int, columns: list[tuple[int, int, int, int, int]]) -> bytes:
        """The footer of a row group with some pages of its columns, which stand in another file:
        for each column its number, where they begin, how many values they have, how many bytes the
        dictionary has, and how many all of it."""

def parquet_filter_header(num_bytes: int) -> bytes:
    """The header of a Parquet filter of so many bytes."""

def read_parquet_filter_header(bytes: bytes) -> tuple[int, int] | None:
    """How many bytes the filter has that begins with this header, and how many the header; None if
    it is of a kind that is not known."""

def parquet_filter(arrays: Iterable[object], error_rate: float) -> tuple[bytes, int]:
    """A filter of a column's values (binary, or of a fixed width), which come as Arrow arrays one
    after another, and how many are distinct; nulls are left out."""

def parquet_hash(value: bytes) -> int:
    """The hash of a stored value."""

def parquet_page(bytes: bytes) -> tuple[int, int, int | None] | None:
    """How many bytes the page has that begins with this header, how many without compression, and
    how many values, which is None of a dictionary; None if the header is not whole, or of another
    kind."""

def parquet_block(hash: int, num_bytes: int) -> int:
    """Where in a filter of so many bytes the block of a hash begins."""

def parquet_block_contains(block: bytes, hash: int) -> bool:
    """May the block of 32 bytes hold the hash?"""

def parquet_error_rate(bits: bytes) -> float:
    """How often a filter is wrong about values that are not in it, by its bits."""

@final
class CorpusChunk:
    """Some lines of a corpus, split; made by `CorpusSplitter.split`."""

    @property
    def used(self) -> int:
        """Bytes of the lines."""
    @property
    def lines(self) -> int:
        """Lines, blank ones among them."""
    @property
    def faults(self) -> list[tuple[int, str]]:
        """Lines that are no documents, by number from 0, and why."""
    def probe(self, filter: Bloom, *, add: bool = True) -> int:
        """Ask the filter for every unit, in order, and add those that stay, unless it is not to
        `add`; return how many keys were new. Threads that share a filter do this one after another,
        or two equal units may both stay."""
    def keys(self) -> bytes:
        """All keys, 8 little-endian bytes each."""
    def release(self) -> None:
        """Let go of the buffer; what was counted stays."""
    def counts(self) -> tuple[int, int, int, int, int, int, int, int]:
        """Documents, documents gone, documents cut, units, units gone, characters, characters
        gone, keys."""
    def kept(self) -> bytes:
        """The lines that stay, without what goes of them."""
    def found(self, first_line: int, found_only: bool) -> bytes:
        """What was found: a line for each document, or for those alone with something that goes."""

@final
class CorpusSplitter:
    """How a corpus is split into units and keys."""

    def __new__(
        cls,
        field: str,
        *,
        paragraphs: bool = False,
        words: int = 0,
        share: float = 1.0,
        bands: int = 0,
        rows: int = 0,
    ) -> Self: ...
    def split(
        self, filter: Bloom, data: Buffer, *, final: bool = False, skip_bad: bool = False
    ) -> CorpusChunk:
        """Split the whole lines of `data`, all of it if `final`; leave it alone until the chunk
        is released."""
    def texts(
        self, filter: Bloom, texts: Sequence[str], *, add: bool = True
    ) -> tuple[list[list[tuple[int, int, float]]], int]:
        """For each text the spans of it that go, and how many keys were new."""
    def signature(self, filter: Bloom, text: str) -> list[int]:
        """The MinHash signature of a text, by the filter's hash function; empty without words."""
    def sample(self, data: bytes, final: bool) -> tuple[int, int, int, int]:
        """How many documents, keys and distinct keys the lines have, and how many bytes."""

@final
class DuckDBFilter:
    """A filter's number, by which native functions of DuckDB ask it, until this is dropped."""

    @property
    def number(self) -> int: ...
    @staticmethod
    def of(filter: object) -> DuckDBFilter | None:
        """None if only Python can ask the filter."""

def offer_to_duckdb(path: str) -> bool:
    """Give native functions to the databases that the DuckDB in this module opens from now on.

    False if it cannot be.
    """

def check_arrow_type(kind: object) -> None:
    """Raise UnsupportedBatch unless the rows of a column of this Arrow type or field are keys."""

def checked_arrow(keys: object) -> Any:
    """The capsule or capsules of a column that speaks Arrow, once its rows are known to be keys;
    None if it does not."""

def column_objects(keys: object) -> list[Any] | None:
    """The keys of a column of Python objects as a list; None if the batch is anything else."""
