"""The bodies of requests about filters but for new ones (`service/parameters.py`), and what is told
about a filter: exactly, for the document."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from bloomery.service.parameters import ErrorRate, FilterName, PolicyFields, Source, StrictModel
from bloomery.service.policy.rebuilds import SETTLE


class Changes(PolicyFields):
    """What is to change about a filter; what is left out stays. A policy's null: the default."""

    name: FilterName | None = Field(None, description="Its new name.")
    source: Source | None = Field(
        None, description="The source that keys are looked up in; null: none."
    )
    expires_at: float | None = Field(
        None, ge=0, le=1e12, description="Unix time from which on it is no more; null: never."
    )


class Merge(StrictModel):
    """Whose keys are to be added."""

    sources: list[FilterName] = Field(min_length=1, max_length=1000)


class NewRebuild(StrictModel):
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


class Problem(BaseModel):
    """What went wrong: a program goes by `code`, a person by `detail`."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(description="`urn:bloomery:` and the code")
    title: str = Field(description="the code in words")
    status: int = Field(description="the status of the response, again")
    detail: str = Field(description="what was given, and what would be right")
    code: str = Field(description="a code of `bloomery.errors`")
