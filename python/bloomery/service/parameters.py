"""The parameters of a new filter, of each kind, and what each may be: the same over HTTP, in the
configuration, and for whatever else makes filters out of a mapping."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, TypeAdapter, ValidationError

from bloomery.filters.rotating import MAX_GENERATIONS
from bloomery.filters.scalable import LEAST_GROWTH, MOST_GROWTH
from bloomery.sizing import MAX_CAPACITY, MAX_ERROR_RATE, MIN_ERROR_RATE
from bloomery.suggestions import KEYWORDS

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


class StrictModel(BaseModel):
    """A model that converts no value and ignores no field."""

    model_config = ConfigDict(extra="forbid", strict=True)


Share = Annotated[float, Field(gt=0, le=1)]
Seconds = Annotated[float, Field(ge=0, le=1e9)] | Annotated[str, Field(pattern=_WINDOW)]


class PolicyFields(StrictModel):
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


Source = Annotated[
    str,
    Field(pattern=r"^[a-z0-9_-]{1,64}$", description="A source of the server's configuration."),
]


class _New(PolicyFields):
    name: FilterName
    source: Source | None = Field(None, description="Where keys are looked up (role admin).")


class _Sized(_New):
    capacity: Capacity
    error_rate: ErrorRate = 0.01


class _Hashed(_Sized):
    hasher: Literal["xxh3", "murmur3", "fnv1a", "siphash"] = "xxh3"
    seed: int = Field(0, ge=0, lt=1 << 64, description="Of the hasher; with siphash a secret.")


class AnyKind(_Hashed):
    """Without a kind: what its policy needs (rotate: rotating, reject or alert: bloom), else
    scalable, which grows. On a node it is bloom."""


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


_ADAPTER: TypeAdapter[Any] = TypeAdapter(NewFilter)
_TIMES = "must be seconds, or text such as '15min', '12h' or '7d'"
_NAMES = r"must be text; a backslash in it is \\, a byte that is no text \xNN"
# Fields that may be a number or a text: pydantic tells what is wrong with either.
_WORDS = {"warn_within": _TIMES, "grace": _TIMES, "window": _TIMES}


def parse(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the parameters of a new filter, its name among them, as `Commands.create` takes them;
    and what is wrong with them, by field ("": all of it)."""
    try:
        return _ADAPTER.validate_python(dict(given)).model_dump(exclude_unset=True), {}
    except ValidationError as problem:
        wrong: dict[str, str] = {}
        for error in problem.errors():
            kind, *rest = error["loc"] or ("",)
            field = str(rest[0]) if rest else ""
            wrong.setdefault(field, advice(error, field, str(kind)))
        return {}, wrong


def advice(problem: Any, field: str, kind: str | None) -> str:
    """What would be right in place of what pydantic found: `Extra inputs are not permitted` helps
    nobody who wrote `error_rte`. Of the values there is nothing in it. `kind`: of a new filter."""
    what = problem["type"]
    if what == "extra_forbidden":
        others = [name for name, model in KINDS.items() if name and field in model.model_fields]
        if others:
            return f"goes with kind {' or '.join(others)}"
        return f"there is no such field{like(field, KINDS[kind or ''].model_fields)}"
    if what == "union_tag_invalid":
        return f"kind must be one of {', '.join(name for name in KINDS if name)}"
    if what == "missing":
        return "is missing"
    if field in _WORDS:
        return _WORDS[field]
    if what == "string_pattern_mismatch":
        return _NAMES
    message: str = problem["msg"]
    return message.replace("Input should", "must", 1).partition(", unable to")[0]


def like(name: str, known: Collection[str]) -> str:
    """Return "; did you mean …?" for a name that is nearly one of those, or is what another library
    calls it, else nothing."""
    meant = [word for word in KEYWORDS.get(name, ()) if word in known]
    near = meant or get_close_matches(name[:60], list(known), 1)
    return f"; did you mean {near[0]}?" if near else ""
