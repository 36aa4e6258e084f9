"""The nodes that share a log, as each tells of itself; and an operator's decision about a node."""

from __future__ import annotations

from fastapi import Request, Response
from pydantic import BaseModel, Field

from bloomery import errors
from bloomery.service.http import problems
from bloomery.service.http.route import ApiResponse, context_of, does, routes

router = routes()


class NodeInfo(BaseModel):
    """A node."""

    id: str = Field(description="new for each start")
    here: bool = Field(description="is it the one that was asked?")
    holds_lease: bool = Field(description="does it decide for all: rotations, snapshots?")
    resp: str = Field("", description="where it speaks the Redis protocol")
    http: str = Field("", description="where it speaks HTTP")
    version: str = Field("", description="of bloomery")
    operations: int = Field(description="which operations it knows: all use those of the lowest")
    older: bool = Field(description="does it know fewer than another?")
    position: str = Field("", description="the last entry of the log that it has applied")
    lag_seconds: float | None = Field(None, description="since it last knew that it had all")
    requests_a_second: float = Field(0.0, description="commands of the Redis protocol")
    since: float = Field(description="when it came: Unix time, by Redis's clock")
    heard_seconds_ago: float = Field(description="since the log has an entry of it")


class NodeList(BaseModel):
    """All nodes that were heard of within a minute; none on a server alone."""

    nodes: list[NodeInfo]


@router.get(
    "/nodes",
    response_model=NodeList,
    openapi_extra=does("look"),
    responses=problems.describe(*problems.ANY),
)
async def nodes(request: Request) -> Response:
    """Which nodes there are, how far each is, and who decides."""
    node = context_of(request).node
    return ApiResponse({"nodes": [] if node is None else node.members()})


class Recovery(BaseModel):
    """Which of two logs to keep."""

    keep: bool = Field(description="true: this node's; false: the one in Redis")


class Decided(BaseModel):
    """A decision that the node carries out."""

    reason: str = Field(description="why an operator had to decide")


@router.post(
    "/nodes/recover",
    status_code=202,
    response_model=Decided,
    openapi_extra=does("server"),
    responses=problems.describe(
        *problems.ANY,
        *("invalid-parameter", "store-unavailable", "request-too-large"),
        statuses=(408, 409, 415),
    ),
)
async def recover(request: Request, body: Recovery) -> Response:
    """Keep the copy of this node, which replaces the log in Redis, or discard it and follow that
    log. Only a node that has the alert `store-differs` and waits for an operator takes it."""
    node = context_of(request).node
    if node is None:
        raise problems.Refused("this server is not a node: it has no store to recover", 409)
    try:
        return ApiResponse({"reason": node.recover(body.keep)}, 202)
    except errors.InvalidRequest as problem:
        raise problems.Refused(str(problem), 409) from None
