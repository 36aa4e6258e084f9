"""How far a build has come, kept beside its output: a kill at any moment leaves all or nothing.

    OUT.part0, OUT.part1   the filter, in turns
    OUT.resume             which of the two counts, and the position that belongs to it
    OUT.lock               held by the one process that builds OUT

The part is written first and the position after it, each in one step, and the part that counted
until then stays until the new position is there. So the filter always holds exactly the rows before
the position: one that held fewer would deny keys, one with more would count keys twice in kinds
that count.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from bloomery.errors import BloomeryError, CorruptData, FolderInUse, InvalidParameter
from bloomery.filters import AnyFilter
from bloomery.filters.files import open as open_filter
from bloomery.storage import files

_VERSION = 1
RESTART = "run with --restart (restart=True) to begin anew"


def unusable(failure: BloomeryError) -> BloomeryError:
    """The same failure, marked as one after which this build cannot go on from its checkpoint."""
    failure.resumable = False  # type: ignore[attr-defined]
    return failure


@dataclass
class Progress:
    """How far it has come."""

    position: Any = None
    rows: int = 0
    nulls: int = 0
    total: int | None = None  # rows in all, as far as is known
    seconds: float = 0.0  # spent by this run and those before it
    key_types: list[str] = field(default_factory=lambda: [""])  # "" if older runs did not say


class Checkpoint:
    """The files beside an output."""

    def __init__(self, out: str | os.PathLike[str], identity: dict[str, Any]) -> None:
        self._out = os.fspath(out)
        self._identity = identity
        self.resume = f"{self._out}.resume"
        self._turn = 0

    def load(self) -> tuple[AnyFilter, Progress] | None:
        """The filter and how far it came, if there is a build to go on with."""
        import json

        try:
            with open(self.resume, encoding="utf-8") as file:
                content = json.load(file)
            if content["version"] != _VERSION:
                raise ValueError(f"version {content['version']}")
            if content.pop("checksum") != _checksum(content):
                raise ValueError("its checksum is not that of its contents")
            kept, part = content["identity"], str(content["part"])
            progress = Progress(**content["progress"])
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as failure:
            raise unusable(
                CorruptData(f"{self.resume} cannot be read ({failure}): {RESTART}")
            ) from None
        asked = json.loads(json.dumps(self._identity))
        if kept != asked:
            names = [name for name in {**kept, **asked} if kept.get(name) != asked.get(name)]
            raise unusable(
                InvalidParameter(
                    f"{self.resume} is of another build: {', '.join(sorted(names))} was different "
                    f"then; say the same as then to go on, or {RESTART}"
                )
            )
        try:
            filter: Any = open_filter(os.path.join(os.path.dirname(self._out), part))
        except FileNotFoundError:
            raise unusable(
                CorruptData(f"{self.resume} names {part}, which is gone: {RESTART}")
            ) from None
        self._turn = 1 - int(part[-1] == "1")
        return filter, progress

    def save(self, filter: AnyFilter, progress: Progress) -> None:
        """Keep both."""
        import json

        part = f"{self._out}.part{self._turn}"
        filter.save(part)
        # A position may be a key: nobody else is to read it.
        with files.replacing(self.resume, 0o600) as file:
            content: dict[str, Any] = {
                "version": _VERSION,
                "identity": self._identity,
                "part": os.path.basename(part),
                "progress": asdict(progress),
            }
            content["checksum"] = _checksum(content)
            file.write(json.dumps(content, indent=1).encode())
        self._turn = 1 - self._turn
        _unlink(f"{self._out}.part{self._turn}")

    def remove(self) -> None:
        """Forget it: the position first, so that none is left without its filter."""
        for name in ("resume", "part0", "part1"):
            _unlink(f"{self._out}.{name}")

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else builds the same file meanwhile."""
        path = f"{self._out}.lock"
        fd = _lock(path, self._out)
        try:
            yield
        finally:
            _unlink(path)
            if fd is not None:
                os.close(fd)


def _checksum(content: dict[str, Any]) -> str:
    """A position that is damaged skips rows: the filter would deny their keys."""
    import json

    text = json.dumps(content, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _lock(path: str, out: str) -> int | None:
    try:
        import fcntl
    except ImportError:  # no such locks on this system
        return None
    while True:
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as problem:  # by the name that was given
            raise OSError(problem.errno, problem.strerror, out) from None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(fd), os.stat(path)):
                return fd
        except BlockingIOError:
            os.close(fd)
            raise FolderInUse(f"another process is building {out}: wait until it ends") from None
        except FileNotFoundError:
            pass  # whoever had it has just ended, and taken it away
        os.close(fd)


def _unlink(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
