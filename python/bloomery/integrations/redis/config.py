"""The configuration of a filter in Redis: JSON, kept beside its bits for whoever opens it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from bloomery import _native, sizing
from bloomery.errors import (
    BloomeryError,
    CorruptData,
    FilterExists,
    IncompatibleFilters,
    InvalidParameter,
    UnknownFilter,
    UnsupportedVersion,
)
from bloomery.filters.hashers import check_hasher
from bloomery.integrations.redis.header import CountingHeader, PlainHeader

if TYPE_CHECKING:
    from bloomery.types import Hasher, Layout

Backend = Literal["bits", "bf"]
LONGEST_STRING = (1 << 29) - 64  # bytes: what Redis takes, with one behind the last line
MAX_GENERATIONS = 64  # each is asked for each key
_VERSION = 1
_LONGEST_WINDOW = 1e12  # seconds
_LONGEST = 10_000  # bytes of a configuration: bloomery writes none that is longer
_FOLLOWING = ("num_bits", "num_hashes", "hasher or seed")


@dataclass(frozen=True)
class Config:
    """A filter's settings. `made`: its strings are there."""

    kind: str  # bloom, counting or rotating
    header: bytes  # as of a saved filter, with capacity, error rate, layout, hasher and seed
    shards: int = 1
    backend: Backend = "bits"
    made: bool = False
    window: float | None = None  # seconds; rotating
    generations: int | None = None
    capacity: int | None = None  # of all generations; the header has that of one
    loading: str | None = None  # the checksum and the id of what is being pushed

    def to_json(self) -> bytes:
        """Return it as Redis stores it."""
        fields = {name: value for name, value in asdict(self).items() if value is not None}
        fields["header"] = self.header.hex()
        return json.dumps({"bloomery": _VERSION, **fields}).encode()

    @classmethod
    def from_json(cls, name: str, data: Any) -> Config:
        """Read what Redis stores; CorruptData if bloomery did not write it."""
        if not isinstance(data, bytes) or len(data) > _LONGEST:
            raise _wrong(name, "it is no short text")
        try:
            fields = json.loads(data)
            version = fields.pop("bloomery")
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise _wrong(name, "it is none of bloomery's") from None
        if version != _VERSION:
            raise UnsupportedVersion(
                f"filter {name!r} in Redis has version {str(version)[:40]!r}, this bloomery knows "
                f"{_VERSION}: use a newer one"
            )
        try:
            fields["header"] = bytes.fromhex(fields["header"])
            config = cls(**fields)
        except (ValueError, TypeError, KeyError):
            raise _wrong(name, "its fields are not those of this version") from None
        if problem := config._problem():
            raise _wrong(name, problem)
        return config

    def _problem(self) -> str:
        """Say why this is no configuration of bloomery's; nothing if it is one."""
        fields: dict[str, Any] = asdict(self)  # whatever JSON had
        window, generations = fields["window"], fields["generations"]
        if type(self.shards) is not int or not 1 <= self.shards <= 1 << 20:
            return "its number of shards cannot be"
        if self.kind not in ("bloom", "counting", "rotating") or self.backend not in ("bits", "bf"):
            return "its kind is not known"
        loading = fields["loading"]
        if loading is not None and (type(loading) is not str or len(loading) > 64):
            return "it does not say what is being loaded"
        if type(fields["made"]) is not bool:
            return "it does not say whether it is made"
        settings = (window, generations, fields["capacity"])
        if self.kind == "rotating" or any(setting is not None for setting in settings):
            if type(window) not in (int, float) or not 0 < window < _LONGEST_WINDOW:
                return "its window cannot be"
            if type(generations) is not int or not 1 <= generations <= MAX_GENERATIONS:
                return "its generations cannot be"
            if type(fields["capacity"]) is not int or fields["capacity"] < 1:
                return "its capacity cannot be"
        try:
            of, _, _ = _native.read_header(self.header, None)
        except BloomeryError as problem:
            return str(problem)
        return (
            "" if of == ("counting" if self.kind == "counting" else "bloom") else "its kinds differ"
        )

    def settled(self) -> Config:
        """Return the same, noting that the strings of the filter exist."""
        return replace(self, made=True)

    def require_same(self, name: str, wanted: Config) -> None:
        """Raise FilterExists, with what differs, unless the wanted filter is identical."""
        ours, theirs = self.fields(), wanted.fields()
        names = dict.fromkeys([*ours, *theirs])
        if (self.kind, self.backend) != (wanted.kind, wanted.backend):
            names = {name: None for name in ours if name in theirs}
        differing = {
            field: _differs(field, ours.get(field), theirs.get(field))
            for field in names
            if ours.get(field) != theirs.get(field)
        }
        # What follows from the rest says nothing more.
        differences = [words for field, words in differing.items() if field not in _FOLLOWING]
        if differing:
            words = ", ".join(differences or differing.values())
            raise FilterExists(
                f"filter {name!r} is there, with {words}: open it as it is, or take another name"
            )

    def require_kind(self, name: str, kind: str) -> None:
        """Raise IncompatibleFilters, with the class to use, unless it is of this kind."""
        if self.kind != kind:
            right = {"bloom": "RedisFilter", "counting": "RedisCountingFilter"}
            raise IncompatibleFilters(
                f"filter {name!r} in Redis is a {self.kind} filter: open it with "
                f"{right.get(self.kind, 'RedisRotatingFilter')}"
            )

    def require_loaded(self, name: str) -> None:
        """Raise UnknownFilter if it is still being pushed to Redis."""
        if self.loading is not None:
            raise UnknownFilter(
                f"filter {name!r} is still being pushed to this Redis: wait until it is whole, or "
                "push it again if that was interrupted; what was begun ends a day later"
            )

    def fields(self) -> dict[str, Any]:
        """Return what a person asked for, field by field; secrets are compared and not shown."""
        fields: dict[str, Any] = {"kind": self.kind, "backend": self.backend}
        if self.kind == "counting":
            fields |= asdict(CountingHeader.of(self.header))
            fields["hasher or seed"] = _Secret(self.header)  # which are all that is left
        else:
            # A server's own filter has a layout and a hash function of its own.
            header = asdict(PlainHeader.of(self.header))
            names = ("capacity", "error_rate") if self.backend == "bf" else header
            fields |= {name: header[name] for name in names}
        if fields.get("hasher") == "siphash":
            fields["seed"] = _Secret(fields["seed"])
        fields |= {"shards": self.shards}
        if self.window is not None:
            fields |= {"window": self.window, "generations": self.generations}
            fields |= {"per_generation": fields["capacity"], "capacity": self.capacity}
            fields["error_rate"] *= (self.generations or 0) + 1  # of the whole
        return fields


@dataclass(frozen=True)
class _Secret:
    """A seed that is a secret key: compared, and never put into a message."""

    value: int | bytes


def _differs(field: str, ours: Any, theirs: Any) -> str:
    if isinstance(ours, _Secret) or isinstance(theirs, _Secret):
        return f"another {field}"
    return f"{field} {_word(ours)} and not {_word(theirs)}"


def _word(value: Any) -> str:
    if type(value) is float:
        return f"{value:g}"
    return f"{value:,}" if type(value) is int else repr(value)


def _wrong(name: str, why: str) -> CorruptData:
    return CorruptData(
        f"the configuration of filter {name!r} in Redis cannot be read: {why}; delete its keys, or "
        "take another name"
    )


def planned(
    capacity: int,
    error_rate: float | str,
    layout: Layout,
    hasher: Hasher,
    seed: int,
    shards: int | Literal["auto"],
) -> Config:
    """Return the configuration of a plain filter of this size."""
    plan = sizing.plan(capacity, error_rate, layout=layout)
    seed = check_hasher(hasher, seed)
    count = shards_for(plan.nbytes, shards)
    header = _native.make_header(
        "bloom",
        plan.capacity,
        plan.error_rate,
        hasher,
        seed,
        layout=1 if plan.layout == "blocked" else 2,
        lines_per_key=plan.lines_per_key,
        num_hashes=plan.num_hashes,
        num_bits=plan.num_bits,
        nbytes=plan.nbytes,
    )
    return Config("bloom", header, count)


def shards_for(nbytes: int, shards: int | Literal["auto"]) -> int:
    """Return how many strings so many bytes are split into."""
    needed = -(-nbytes // LONGEST_STRING)
    count: Any = needed if shards == "auto" else shards
    lines = nbytes // 64
    most = min(lines, 16_384)
    if not isinstance(count, int) or isinstance(count, bool) or not needed <= count <= most:
        raise InvalidParameter(
            f"shards is {shards!r}, must be 'auto' or in the range [{needed}, {most}] for "
            f"{nbytes:,} bytes"
        )
    # Four lines on three shards are two on each, so two shards.
    return -(-lines // -(-lines // count))
