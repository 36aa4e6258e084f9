"""Look-ups: exact answers, of filters that are bound to a source."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import Request, Response
from pydantic import BaseModel, ConfigDict, Field

from bloomery.service.http import problems
from bloomery.service.http.body import bodies, key_schemas
from bloomery.service.http.endpoints.keys import keys_in
from bloomery.service.http.route import (
    ApiResponse,
    Name,
    apply_to_filters,
    commands_of,
    context_of,
    does,
    routes,
)
from bloomery.service.lookup import answers

router = routes()


class LookupAnswer(BaseModel):
    """What is known of a key."""

    __qualname__ = "Found"  # its name in the OpenAPI document, with the title
    model_config = ConfigDict(title="Found")

    found: bool
    value: Any = Field(description="null where the key is not there, or nobody could be asked")
    by: Literal["filter", "cache", "source", "stale", "unconfirmed"] = Field(
        description="who says so: stale and unconfirmed are not certain, the source being down"
    )


class LookupAnswers(BaseModel):
    """The same for each of many keys, in order."""

    __qualname__ = "FoundMany"
    model_config = ConfigDict(title="FoundMany")

    answers: list[LookupAnswer]


@router.post(
    "/filters/{name}/lookup",
    response_model=LookupAnswer | LookupAnswers,
    openapi_extra={
        **does("lookup"),
        "requestBody": {"required": True, "content": key_schemas.bodies()},
    },
    responses=problems.describe(
        *("invalid-request", "not-logged-in", "not-allowed", "unknown-filter"),
        *("request-too-large", "server-unavailable", "invalid-parameter"),
        *("invalid-key", "unsupported-key", "null-key"),
        *("source-unavailable", "invalid-source", "poisoned-cache", "queue-unavailable"),
        statuses=(408, 415),
    ),
)
async def lookup(
    request: Request, name: Name, consistency: Literal["local", "strong"] | None = None
) -> Response:
    """Look keys up: exact answers, and who gave them."""
    bodies.require_json(request.scope)
    body = await bodies.read(context_of(request), request.scope, request.receive)
    keys, single = await keys_in(body)
    strong = None if consistency is None else consistency == "strong"
    looked_up = await commands_of(request).lookup(name, keys, strong)
    rows = [answers.for_json(answer) for answer in looked_up]
    return ApiResponse(rows[0] if single else {"answers": rows})


@router.post(
    "/filters/{name}/forget",
    status_code=204,
    response_class=Response,
    openapi_extra={
        **does("forget"),
        "requestBody": {"required": True, "content": key_schemas.bodies()},
    },
    responses=problems.describe(
        *("invalid-request", "not-logged-in", "not-allowed", "unknown-filter"),
        *("request-too-large", "server-unavailable", "invalid-parameter", "store-unavailable"),
        *("invalid-key", "unsupported-key", "null-key"),
        statuses=(408, 415),
    ),
)
async def forget(request: Request, name: Name) -> Response:
    """Let keys be looked up anew: what caches hold of them is out of date, on all nodes."""
    bodies.require_json(request.scope)
    body = await bodies.read(context_of(request), request.scope, request.receive)
    keys, _ = await keys_in(body)
    await apply_to_filters(request, lambda commands: commands.forget(name, keys), name)
    return Response(status_code=204)
