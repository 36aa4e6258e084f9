"""The nodes that share a log, as each tells of itself."""

from __future__ import annotations

from fastapi import Request, Response
from pydantic import BaseModel, Field

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
