"""Many small filters, one a user, packed. What is hot and what touches its memory is native
(`_native.Bank`)."""

from __future__ import annotations

import builtins
import os
import stat
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, NoReturn, overload

import bloomery._native as _native
from bloomery import errors, sizing
from bloomery.filters.hashers import check_hasher, shown_seed
from bloomery.storage import bankfile, files, memory
from bloomery.suggestions import OtherNames, constructor, known_keywords

if TYPE_CHECKING:
    from collections.abc import Iterable

    from typing_extensions import Buffer, Self

    from bloomery.types import Batch, Hasher, K, Key


class FilterBank(_native.Bank, OtherNames):
    """A filter for each of millions of users, who need not be known beforehand.

    >>> bank = FilterBank(error_rate=0.01, keys_per_filter=5000)
    >>> bank.add("ada", "article-1")
    True
    >>> bank.unseen("ada", ["article-1", "article-2"])
    ['article-2']

    `contains(user, key)` is False: definitely not added; True: maybe, wrong for at most
    `error_rate` of the keys that a user never had, however many it has. `keys_per_filter` is the
    size that is cheapest; a user with fewer or more keys takes memory for what it has.

    With a `path` the bank lives in that file. A key is in it for good as soon as `add` has returned
    if the process is killed, and as soon as `flush` has if the power fails. The file is mapped: if
    another process makes it shorter, the signal SIGBUS ends whoever touches what is gone. Without a
    `path`, or by `load`, the bank is in memory, where no other process reaches it.
    """

    __slots__ = ("_path",)
    __hash__ = None  # type: ignore[assignment]  # banks change and compare by what they hold
    _path: str | None

    kind = "bank"

    @known_keywords
    def __new__(
        cls,
        error_rate: float | str = 0.01,
        keys_per_filter: int = 1000,
        *,
        path: str | os.PathLike[str] | None = None,
        hasher: Hasher = "xxh3",
        seed: int = 0,
    ) -> Self:
        """Make an empty bank, in memory or in a new file."""
        try:
            keys, rate = sizing.check_sizes(keys_per_filter, error_rate)
        except errors.InvalidParameter as problem:
            message = str(problem).replace("capacity", "keys_per_filter")
            raise errors.InvalidParameter(message) from None
        seed = check_hasher(hasher, seed)
        extra = _native.bank_pages(keys, rate)
        header = _native.make_header(cls.kind, keys, rate, hasher, seed, extra=extra)
        if path is None:
            return cls._with(header, None, "new", 0)
        with bankfile.creating(path) as temporary:
            bank = cls._with(header, temporary, "new", bankfile.boot())
        return bank._at(path)

    @classmethod
    def _with(
        cls,
        source: Buffer | None,
        path: str | os.PathLike[str] | None,
        mode: str,
        boot: int,
    ) -> Self:
        bank = _native.Bank.__new__(cls, source, path, mode, boot)
        bank._path = None
        return bank

    def _at(self, path: str | os.PathLike[str]) -> Self:
        self._path = os.path.abspath(path)
        return self

    @constructor
    def open(
        cls, path: str | os.PathLike[str], *, mode: Literal["r", "r+"] = "r+", verify: bool = False
    ) -> Self:
        """Open the bank in a file, which stays its memory.

        One process at a time may have it open to be written (`mode="r+"`), or many to be read
        (`"r"`). A bank that was not closed is repaired, which reads all of its records. `verify`
        reads and checks everything. The file is mapped, with what that means if another process
        makes it shorter (SIGBUS); `load` reads it into memory instead.
        """
        if mode not in ("r", "r+"):
            raise errors.InvalidParameter(f"mode is {mode!r}, must be 'r' or 'r+'")
        with builtins.open(path, "rb" if mode == "r" else "r+b") as file:
            bankfile.check_kind(file.read(_native.HEADER_BYTES), path)
        return cls._from_file(path, mode, verify)._at(path)

    @classmethod
    def _from_file(cls, path: str | os.PathLike[str], mode: str, verify: bool | None) -> Self:
        with bankfile.naming(path):
            return cls._with(None, path, mode, bankfile.boot())._checked(bool(verify))

    def _checked(self, everything: bool) -> Self:
        if everything:
            self._verify()
        return self

    @property
    def path(self) -> str | None:
        """The file it lives in; None if it is in memory."""
        return self._path

    def __enter__(self) -> Self:
        """Return the bank, which is closed at the end of the `with` block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the bank; in a child of a fork, whose parent has it, do nothing."""
        if not self.closed:
            self.close()

    # Keys.

    def update(self, users: Key | Batch, keys: Batch) -> None:
        """Add every key, for one user or for one each, and say nothing about which were new."""
        self.add_many(users, keys)

    @overload
    def unseen(self, user: Key, candidates: list[K] | tuple[K, ...]) -> list[K]: ...
    @overload
    def unseen(self, user: Key, candidates: Iterable[K]) -> Any: ...

    def unseen(self, user: Key, candidates: Any) -> Any:
        """Return the candidates that the user has definitely not had, in their order.

        A list, tuple or other iterable gives a list; an array or column gives one of its kind. Of
        those left out, at most `error_rate` of what was never added is left out by mistake.
        """
        if isinstance(candidates, list):
            return self._unseen(user, candidates)
        arrow = hasattr(candidates, "__arrow_c_array__") or hasattr(
            candidates, "__arrow_c_stream__"
        )
        if not arrow and not hasattr(candidates, "dtype"):
            return self._unseen(user, list(candidates))
        mask: Any = self.contains_many(user, candidates)
        unseen = ~mask if hasattr(mask, "dtype") else [not seen for seen in mask]
        if arrow and not hasattr(candidates, "iloc"):  # pandas' filter is another thing
            return candidates.filter(unseen)
        return candidates[unseen]

    def count(self, user: Key) -> int:
        """How many distinct keys the user has; a key taken for another is not counted."""
        facts = self._user(user)
        return 0 if facts is None else int(facts["keys"])

    # What is known.

    @property
    def users(self) -> int:
        """How many users there are."""
        return len(self)

    def info(self, user: Key | None = None) -> dict[str, Any]:
        """All that is known about the bank, or about one user; KeyError if there is none such."""
        if user is not None:
            facts = self._user(user)
            if facts is None:
                raise KeyError(user)
            return {**facts, "bits_per_key": 8 * facts["nbytes"] / max(1, facts["keys"])}
        nbytes, count = self.nbytes, self.estimated_count
        return {
            "kind": self.kind,
            "keys_per_filter": self.keys_per_filter,
            "error_rate": self.error_rate,
            "hasher": self.hasher,
            "seed": shown_seed(self),
            "users": len(self),
            "estimated_count": count,
            "nbytes": nbytes,
            "bits_per_key": 8 * nbytes / max(1, count),
            "path": self.path,
            "read_only": self.read_only,
        }

    def __bool__(self) -> bool:
        """True if there is a user."""
        return len(self) > 0

    def __repr__(self) -> str:
        """Show what it was made with and how much it holds."""
        parameters = f"error_rate={self.error_rate:g}, keys_per_filter={self.keys_per_filter}"
        if self.path is not None:
            parameters += f", path={self.path!r}"
        if self.closed:
            return f"<{type(self).__name__}({parameters}): closed>"
        holds = f"{len(self):,} users, {self.estimated_count:,} keys, {self.nbytes:,} bytes"
        return f"<{type(self).__name__}({parameters}): {holds}>"

    def __eq__(self, other: object) -> bool:
        """True if both were made alike and hold the same for each user."""
        if not isinstance(other, FilterBank):
            return NotImplemented
        return self is other or self._same(other)

    def union(self, *others: object) -> NoReturn:
        """Raise: banks cannot be merged."""
        raise errors.IncompatibleFilters(
            "banks cannot be merged, since what is kept of a key depends on how many its user has:"
            " add the keys of both to one bank"
        )

    intersection = __or__ = __and__ = _check_compatible = union

    # Bytes.

    def to_bytes(self) -> bytes:
        """Return the bank as bytes, checksummed; what `save` would write."""
        memory.check(2 * self.nbytes)  # made while nobody changes the bank, then copied
        return self._image()

    @constructor
    def from_bytes(cls, data: Buffer) -> Self:
        """Make the bank that `to_bytes` gave, in memory; CorruptData if the bytes are not that."""
        view = memoryview(data).cast("B")
        memory.check(len(view))
        return cls._with(view, None, "load", bankfile.boot())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a copy to a file: checksummed, and all of it or nothing. `open` takes that too."""
        if self.path is not None and os.path.exists(path) and os.path.samefile(self.path, path):
            raise errors.InvalidParameter("the bank lives in that file: flush() is what saves it")
        with files.replacing(path) as file:
            write(self, file)

    @constructor
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        mmap: bool = False,
        writable: bool = False,
        verify: bool | None = None,
    ) -> Self:
        """Read a bank into memory; with `mmap` open its file, to be written if `writable`.

        Without `mmap`, the default, nothing that happens to the file later matters; a mapped file
        that another process makes shorter ends this process by the signal SIGBUS.
        """
        if mmap:
            return cls.open(path, mode="r+" if writable else "r", verify=bool(verify))
        if writable:
            raise errors.InvalidParameter(
                "writable=True needs mmap=True: without it, load and save"
            )
        with builtins.open(path, "rb") as file:
            status = os.fstat(file.fileno())
            head = file.read(_native.HEADER_BYTES)
            bankfile.check_kind(head, path)
            if not stat.S_ISREG(status.st_mode):
                return cls.from_bytes(head + file.read())
        memory.check(status.st_size)
        return cls._from_file(path, "load", verify)

    def copy(self) -> Self:
        """Return a bank with the same users and keys, in memory."""
        return type(self).from_bytes(self.to_bytes())

    def __copy__(self) -> Self:
        """Return a copy."""
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return a copy."""
        return self.copy()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as the bytes."""
        return type(self).from_bytes, (self.to_bytes(),)


def write(bank: FilterBank, file: BinaryIO, pace: int = 0) -> None:
    """Write to an empty file that can seek; with a `pace`, wait for the disk every so often."""
    if os.name != "posix":
        file.write(bank.to_bytes())
        return
    file.seek(_native.HEADER_BYTES)
    file.flush()
    head = bank._save(file.fileno(), pace)
    file.seek(0)
    file.write(head)
