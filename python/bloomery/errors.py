"""Every error bloomery raises, each with a stable code.

    BloomeryError
    ├── InvalidParameter     (ValueError)   invalid-parameter
    │   └── InvalidConfiguration            invalid-configuration
    ├── UnsupportedKey       (TypeError)    unsupported-key
    ├── InvalidKey           (ValueError)   invalid-key
    │   └── NullKey                         null-key
    ├── ConflictingKeys      (ValueError)   conflicting-keys
    ├── UnsupportedBatch     (TypeError)    unsupported-batch
    ├── IncompatibleFilters  (ValueError)   incompatible-filters
    ├── CorruptData          (ValueError)   corrupt-data
    │   └── UnsupportedVersion              unsupported-version
    ├── ReadOnlyFilter       (TypeError)    read-only-filter
    ├── FilterFull           (RuntimeError) filter-full
    │   └── TooManyCopies                   too-many-copies
    ├── NotEnoughMemory      (MemoryError)  not-enough-memory
    ├── UnknownFilter        (KeyError)     unknown-filter
    ├── FilterExists         (ValueError)   filter-exists
    ├── LogUnavailable       (RuntimeError) log-unavailable
    ├── SnapshotFailed       (RuntimeError) snapshot-failed
    ├── FolderInUse          (RuntimeError) folder-in-use
    ├── RegistryUnavailable  (OSError)      registry-unavailable
    ├── NotLoggedIn          (PermissionError) not-logged-in
    ├── NotAllowed           (PermissionError) not-allowed
    ├── InvalidRequest       (ValueError)   invalid-request
    ├── RequestTooLarge      (ValueError)   request-too-large
    ├── ServerUnavailable    (ConnectionError) server-unavailable
    ├── SourceUnavailable    (ConnectionError) source-unavailable
    ├── InvalidSource        (ValueError)   invalid-source
    ├── CacheUnavailable     (ConnectionError) cache-unavailable
    ├── PoisonedCache        (ValueError)   poisoned-cache
    ├── QueueUnavailable     (OSError)      queue-unavailable
    ├── StoreUnavailable     (ConnectionError) store-unavailable
    ├── StoreRefused         (RuntimeError) store-refused
    ├── FeedRefused          (ValueError)   feed-refused
    ├── FeedUnavailable      (RuntimeError) feed-unavailable
    └── MissingExtra         (ImportError)  missing-extra

Each also derives from the built-in that a caller would reach for (in brackets). The code is what
a program matches on; the message is for a person: what was given, and what would be right.
Files that are missing or cannot be read stay the OSError that Python raises.
"""


class BloomeryError(Exception):
    """The base of every error of ours."""

    code = "error"


class InvalidParameter(BloomeryError, ValueError):
    """A parameter is out of its range; the message shows the value and the range."""

    code = "invalid-parameter"


class InvalidConfiguration(InvalidParameter):
    """A server's configuration is wrong; `problems` has one line for each thing that is."""

    code = "invalid-configuration"

    @property
    def problems(self) -> list[str]:
        """What is wrong, one line each."""
        return [str(argument) for argument in self.args]

    def __str__(self) -> str:
        return "; ".join(self.problems)


class UnsupportedKey(BloomeryError, TypeError):
    """An object of this type cannot be a key; the message says what to turn it into."""

    code = "unsupported-key"


class InvalidKey(BloomeryError, ValueError):
    """The type can be a key but this value has no canonical bytes (a lone surrogate, say)."""

    code = "invalid-key"


class NullKey(InvalidKey):
    """A column holds a null; the message says at which row."""

    code = "null-key"


class ConflictingKeys(BloomeryError, ValueError):
    """A key is among the members and among the non-members of an exact set; the message names one,
    where the keys can be read twice."""

    code = "conflicting-keys"


class UnsupportedBatch(BloomeryError, TypeError):
    """This object cannot be taken as a batch of keys; the message says what can."""

    code = "unsupported-batch"


class IncompatibleFilters(BloomeryError, ValueError):
    """Two filters differ in a parameter that must be equal; the message shows both values."""

    code = "incompatible-filters"


class CorruptData(BloomeryError, ValueError):
    """Bytes are not a saved filter, or not an undamaged one."""

    code = "corrupt-data"


class UnsupportedVersion(CorruptData):
    """Saved by a newer bloomery, with a format or a choice this one does not know."""

    code = "unsupported-version"


class ReadOnlyFilter(BloomeryError, TypeError):
    """The filter cannot be changed: it is mapped read-only, or its kind cannot do that at all."""

    code = "read-only-filter"


class FilterFull(BloomeryError, RuntimeError):
    """No room for another key, and the filter is not to grow; the key was not added."""

    code = "filter-full"


class TooManyCopies(FilterFull):
    """This key is in a cuckoo filter as often as a key can be; there may be room for others."""

    code = "too-many-copies"


class NotEnoughMemory(BloomeryError, MemoryError):
    """The filter, or a page of a Parquet file, would not fit into the memory that is free."""

    code = "not-enough-memory"


class LogUnavailable(BloomeryError, RuntimeError):
    """A server's log cannot be written; nothing of the write that failed is in it."""

    code = "log-unavailable"


class SnapshotFailed(BloomeryError, RuntimeError):
    """A server's snapshot was not made; the one before stays, and the log has everything."""

    code = "snapshot-failed"


class FolderInUse(BloomeryError, RuntimeError):
    """Another server has this data folder; the message has its process number."""

    code = "folder-in-use"


class UnknownFilter(BloomeryError, KeyError):
    """The server has no filter of that name."""

    code = "unknown-filter"

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""  # a KeyError would show its repr


class FilterExists(BloomeryError, ValueError):
    """The server has a filter of that name already."""

    code = "filter-exists"


class RegistryUnavailable(BloomeryError, OSError):
    """The registry's database is away or refuses; the server goes on, and the tables are late."""

    code = "registry-unavailable"


class NotLoggedIn(BloomeryError, PermissionError):
    """The server has users, and this is none: name, password or token is wrong or missing."""

    code = "not-logged-in"


class NotAllowed(BloomeryError, PermissionError):
    """The user's role or name patterns do not cover this; the message says what would."""

    code = "not-allowed"


class InvalidRequest(BloomeryError, ValueError):
    """A request of HTTP that cannot be read, or for what is not there; the message says why."""

    code = "invalid-request"


class RequestTooLarge(BloomeryError, ValueError):
    """A request is longer than the server takes; the message has the limit and what to do."""

    code = "request-too-large"


class ServerUnavailable(BloomeryError, ConnectionError):
    """A server cannot be reached, is not ready, or did not answer in time."""

    code = "server-unavailable"


class SourceUnavailable(BloomeryError, ConnectionError):
    """A source of truth cannot be reached or did not answer in time; nothing is known of the key
    but what the filter says."""

    code = "source-unavailable"


class InvalidSource(BloomeryError, ValueError):
    """A source of truth answered what is no answer, or refuses what it is asked: it is wrong, not
    away."""

    code = "invalid-source"


class CacheUnavailable(BloomeryError, ConnectionError):
    """A cache cannot be reached; a guard goes on without it."""

    code = "cache-unavailable"


class PoisonedCache(BloomeryError, ValueError):
    """A cache holds an entry that bloomery did not write; it was deleted: ask the source."""

    code = "poisoned-cache"


class QueueUnavailable(BloomeryError, OSError):
    """What was to wait for the source could not be written down; it was not taken."""

    code = "queue-unavailable"


class StoreUnavailable(BloomeryError, ConnectionError):
    """The Redis that holds a filter's bits cannot be reached, or does not answer in time."""

    code = "store-unavailable"


class StoreRefused(BloomeryError, RuntimeError):
    """That Redis does not do what it was asked: it is full, read-only, or wants a password."""

    code = "store-refused"


class FeedRefused(BloomeryError, ValueError):
    """A feed is not what its publisher signed, or no longer; the copy that was there stays.

    `reason` is a word for programs: `signature`, `malformed`, `other-feed`, `expired`,
    `rolled-back`, `forked` (two manifests of one version), `too-large` or `damaged`.
    """

    code = "feed-refused"

    def __init__(self, message: str, reason: str = "malformed") -> None:
        super().__init__(message)
        self.reason = reason


class FeedUnavailable(BloomeryError, RuntimeError):
    """There is no copy of the feed yet, so nothing can be said of any key."""

    code = "feed-unavailable"


class MissingExtra(BloomeryError, ImportError):
    """An optional dependency is needed; the message says what to install."""

    code = "missing-extra"


def of_code(code: str, message: str) -> BloomeryError:
    """The error of this code, as a server told it; the base for a code of a newer server."""
    left: list[type[BloomeryError]] = [BloomeryError]
    while left:
        kind = left.pop()
        if kind.code == code:
            return kind(message)
        left += kind.__subclasses__()
    return BloomeryError(message)
