"""What a filter in Redis is made like, kept beside its bits: JSON, for whoever opens it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from bloomery import _native
from bloomery.errors import (
    CorruptData,
    FilterExists,
    IncompatibleFilters,
    UnknownFilter,
    UnsupportedVersion,
)

__all__ = ["Backend", "Config"]

Backend = Literal["bits", "bf"]
_VERSION = 1
_LONGEST = 10_000  # bytes of a configuration: what is longer nobody of us wrote


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
        """Return it as it is kept."""
        fields = {name: value for name, value in asdict(self).items() if value is not None}
        fields["header"] = self.header.hex()
        return json.dumps({"bloomery": _VERSION, **fields}).encode()

    @classmethod
    def from_json(cls, name: str, data: Any) -> Config:
        """Read what Redis holds; CorruptData if it is none of ours."""
        wrong = CorruptData(f"the configuration of filter {name!r} in Redis cannot be read")
        if not isinstance(data, bytes) or len(data) > _LONGEST:
            raise wrong
        try:
            fields = json.loads(data)
            version = fields.pop("bloomery")
            fields["header"] = bytes.fromhex(fields["header"])
            found = cls(**fields)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise wrong from None
        if version != _VERSION:
            raise UnsupportedVersion(
                f"filter {name!r} in Redis has version {version!r}, this bloomery knows {_VERSION}"
            )
        numbers = isinstance(found.shards, int) and 1 <= found.shards <= 1 << 20
        if not numbers or found.backend not in ("bits", "bf"):
            raise wrong
        return found

    def settled(self) -> Config:
        """Return it with its strings made."""
        return replace(self, made=True)

    def require_same(self, name: str, wanted: Config) -> None:
        """Raise FilterExists, with what differs, unless another asks for just such a filter."""
        mine, theirs = self.shown(), wanted.shown()
        other = [
            f"{field} {value!r} (not {theirs.get(field)!r})"
            for field, value in mine.items()
            if theirs.get(field) != value
        ]
        if other:
            raise FilterExists(
                f"filter {name!r} is there with {', '.join(other)}: open it as it is, or take "
                "another name"
            )

    def require_kind(self, name: str, kind: str) -> None:
        """Raise IncompatibleFilters if it is of another kind than who opens it takes."""
        if self.kind != kind:
            right = {"bloom": "RedisFilter", "counting": "RedisCountingFilter"}
            raise IncompatibleFilters(
                f"filter {name!r} in Redis is a {self.kind} filter: open it with "
                f"{right.get(self.kind, 'RedisRotatingFilter')}"
            )

    def require_loaded(self, name: str) -> None:
        """Raise UnknownFilter if it is still on its way into Redis."""
        if self.loading is not None:
            raise UnknownFilter(
                f"filter {name!r} is still being pushed to this Redis: wait until it is whole, or "
                "push it again if that was interrupted; what was begun ends a day later"
            )

    def shown(self) -> dict[str, Any]:
        """Return what a person asked for."""
        fields: dict[str, Any] = {"kind": self.kind, "backend": self.backend}
        if self.header and self.kind != "counting":
            names = "capacity error_rate layout num_bits num_hashes lines_per_key hasher seed"
            fields |= dict(
                zip(names.split(), _native.parse_header(self.header, None), strict=False)
            )
        else:
            fields["header"] = self.header
        fields |= {"shards": self.shards}
        if self.window is not None:
            fields |= {"window": self.window, "generations": self.generations}
            fields |= {"per_generation": fields["capacity"], "capacity": self.capacity}
        return fields
