"""What requests about filters hold, and what is told about a filter: exactly, for the document."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from bloomery.filters.rotating import MAX_GENERATIONS
from bloomery.filters.scalable import LEAST_GROWTH, MOST_GROWTH
from bloomery.service.policy.rebuilds import SETTLE
from bloomery.sizing import MAX_CAPACITY, MAX_ERROR_RATE, MIN_ERROR_RATE

__all__ = [
    "KINDS",
    "POLICY",
    "AlertList",
    "Changes",
    "FilterInfo",
    "FilterList",
    "ListedFilter",
    "Merge",
    "NewFilter",
    "Samples",
    "Snapshot",
]

MAX_EXPANSION = 32768
# As `bloomery.names` prints it.
_NAME = r"^([^\\]|\\\\|\\x[0-9a-f]{2})+$"
_WINDOW = r"^[0-9]{1,5}(\.[0-9]{1,3})?(s|m|min|h|d|w)$"

FilterName = Annotated[
    str,
    Field(
        pattern=_NAME,
        min_length=1,
        max_length=1024,
        description=r"Any text; a backslash is `\\`, a byte that is no text `\xNN`.",
    ),
]
Capacity = Annotated[
    int, Field(ge=1, le=MAX_CAPACITY, description="Distinct keys that it is made for.")
]
ErrorRate = Annotated[
    float,
    Field(
        ge=MIN_ERROR_RATE,
        le=MAX_ERROR_RATE,
        description="How often a key that was never added may be a *maybe*.",
    ),
]


class _Strict(BaseModel):
    """Nothing is converted, and nothing is ignored."""

    model_config = ConfigDict(extra="forbid", strict=True)


Share = Annotated[float, Field(gt=0, le=1)]
Seconds = Annotated[float, Field(ge=0, le=1e9)] | Annotated[str, Field(pattern=_WINDOW)]


class _PolicyFields(_Strict):
    """What happens when a filter is full, and from when on somebody is told (docs/policies.md)."""

    on_full: Literal["grow", "rotate", "reject", "alert"] | None = None
    full_at: Share | None = Field(None, description="Share of the capacity at which on_full acts.")
    warn_at: Annotated[float, Field(ge=0, le=1)] | None = Field(
        None, description="Share of the capacity from which on there is an alert; 0: none."
    )
    warn_within: Seconds | None = Field(
        None, description="An alert if it is full so soon at this rate; 0: none."
    )
    grace: Seconds | None = Field(
        None, description="How long a generation stays at least, with `rotate`."
    )


POLICY = set(_PolicyFields.model_fields)


Source = Annotated[
    str,
    Field(pattern=r"^[a-z0-9_-]{1,64}$", description="A source of the server's configuration."),
]


class _New(_PolicyFields):
    name: FilterName
    source: Source | None = Field(None, description="Where keys are looked up (role admin).")


class _Sized(_New):
    capacity: Capacity
    error_rate: ErrorRate = 0.01


class _Hashed(_Sized):
    hasher: Literal["xxh3", "murmur3", "fnv1a", "siphash"] = "xxh3"
    seed: int = Field(0, ge=0, lt=1 << 64, description="Of the hasher; with siphash a secret.")


class AnyKind(_Hashed):
    """Without a kind: what its policy needs (grow: scalable, rotate: rotating, else bloom)."""


class Bloom(_Hashed):
    """A known number of keys: the smallest and fastest."""

    kind: Literal["bloom"]
    layout: Literal["blocked", "classic"] = "blocked"


class Scalable(_Hashed):
    """Grows; `capacity` is what it has room for to begin with."""

    kind: Literal["scalable"]
    growth: float = Field(1.125, ge=LEAST_GROWTH, le=MOST_GROWTH)


class NewCounting(_Hashed):
    """Removal, and duplicates counted."""

    __qualname__ = "Counting"  # its name in the OpenAPI document, with the title
    model_config = ConfigDict(title="Counting")

    kind: Literal["counting"]
    counter_bits: Literal[4, 8] = 4


class Deletable(_Hashed):
    """Removal of most keys, for little memory."""

    kind: Literal["deletable"]
    regions: int | None = Field(None, ge=1)


class Cuckoo(_Hashed):
    """Removal at low error rates."""

    kind: Literal["cuckoo"]
    grow: bool = False


class Rotating(_Hashed):
    """A window: "in the last 7 days"."""

    kind: Literal["rotating"]
    window: (
        Annotated[float, Field(ge=1e-3, le=1e9)] | Annotated[str, Field(pattern=_WINDOW)] | None
    ) = Field("7d", description="Seconds, or `15min`, `12h`, `7d`; null: by number of keys.")
    generations: int = Field(8, ge=1, le=MAX_GENERATIONS)


class Bank(_Hashed):
    """A small filter for each user: a key is `user TAB key`; `capacity` is that of one user."""

    kind: Literal["bank"]


class RedisBloom(_Sized):
    """RedisBloom's own, bit for bit."""

    kind: Literal["redisbloom"]
    expansion: int = Field(2, ge=0, le=MAX_EXPANSION)


class RedisCuckoo(_New):
    """RedisBloom's cuckoo filter, bit for bit."""

    kind: Literal["rediscuckoo"]
    capacity: Capacity
    bucket_size: int = Field(2, ge=1, le=255)
    max_iterations: int = Field(20, ge=1, le=65535)
    expansion: int = Field(1, ge=0, le=MAX_EXPANSION)


def _kind(value: Any) -> str:
    kind = value.get("kind", "") if isinstance(value, dict) else getattr(value, "kind", "")
    return kind if isinstance(kind, str) else "?"


NewFilter = Annotated[
    Annotated[AnyKind, Tag("")]
    | Annotated[Bloom, Tag("bloom")]
    | Annotated[Scalable, Tag("scalable")]
    | Annotated[NewCounting, Tag("counting")]
    | Annotated[Deletable, Tag("deletable")]
    | Annotated[Cuckoo, Tag("cuckoo")]
    | Annotated[Rotating, Tag("rotating")]
    | Annotated[Bank, Tag("bank")]
    | Annotated[RedisBloom, Tag("redisbloom")]
    | Annotated[RedisCuckoo, Tag("rediscuckoo")],
    Discriminator(_kind),
]
# Each by its kind; "": none is named.
KINDS: dict[str, type[BaseModel]] = {
    tag.tag: model for model, tag in map(get_args, get_args(get_args(NewFilter)[0]))
}


class Changes(_PolicyFields):
    """What is to change about a filter; what is left out stays. A policy's null: the default."""

    name: FilterName | None = Field(None, description="Its new name.")
    source: Source | None = Field(
        None, description="The source that keys are looked up in; null: none."
    )
    expires_at: float | None = Field(
        None, ge=0, le=1e12, description="Unix time from which on it is no more; null: never."
    )


class Merge(_Strict):
    """Whose keys are to be added."""

    sources: list[FilterName] = Field(min_length=1, max_length=1000)


class NewRebuild(_Strict):
    """How a filter is to be built anew."""

    capacity: int | None = Field(
        None,
        ge=1,
        lt=1 << 63,
        description="else that of before, or half as many more than the source has",
    )
    error_rate: ErrorRate | None = Field(None, description="else that of before")
    settle: float = Field(
        SETTLE,
        ge=0,
        le=3600,
        description="seconds within which who adds a key writes it to the source",
    )


class ListedFilter(BaseModel):
    """A filter in a list."""

    __qualname__ = "FilterRow"  # its name in the OpenAPI document, with the title
    model_config = ConfigDict(title="FilterRow")

    name: str
    kind: str | None = Field(description="null while it is being loaded")
    items: int = Field(description="keys that were new when they were added")
    nbytes: int
    created_at: float = Field(description="Unix time")
    expires_at: float | None


class FilterList(BaseModel):
    """Some of the filters."""

    filters: list[ListedFilter]
    cursor: int | None = Field(description="for the next ones; null: that was all")


class FilterInfo(ListedFilter):
    """All that is known about a filter; each kind has more of its own."""

    model_config = ConfigDict(extra="allow", title="FilterInfo")

    adds: int = Field(description="keys added since the server started")
    checks: int = Field(description="keys asked for since the server started")
    maybes: int = Field(description="of these, answered *maybe*")
    policy: dict[str, Any] = Field(description="what happens when it is full")
    sample: dict[str, Any] | None = Field(description="the last one; null before it")
    source: str | None = Field(description="that it is bound to; null: none")
    lookups: dict[str, Any] | None = Field(
        description="how look-ups were answered; null before the first"
    )
    rebuild: dict[str, Any] | None = Field(
        description="how far the last rebuild is, or how it ended; null: there was none"
    )


class Samples(BaseModel):
    """Samples of a filter, oldest first."""

    samples: list[dict[str, Any]]


class AlertList(BaseModel):
    """What is wrong now, the oldest first."""

    alerts: list[dict[str, Any]]


class Snapshot(BaseModel):
    """A snapshot that was made."""

    generation: int
    seconds: float
