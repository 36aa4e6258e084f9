"""What went wrong, as RFC 9457 says it: one table from the codes of `bloomery.errors` to statuses.

{"type": "urn:bloomery:unknown-filter", "title": "Unknown filter", "status": 404,
 "detail": "there is no filter named 'seen': make it first", "code": "unknown-filter"}
"""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from bloomery import errors

if TYPE_CHECKING:
    from starlette.responses import Response

MEDIA = "application/problem+json"
RETRY_SECONDS = "2"

STATUSES = {
    "invalid-request": 400,
    "not-logged-in": 401,
    "not-allowed": 403,
    "unknown-filter": 404,
    "filter-exists": 409,
    "filter-full": 409,
    "too-many-copies": 409,
    "incompatible-filters": 409,
    "read-only-filter": 409,
    "request-too-large": 413,
    "corrupt-data": 422,
    "invalid-configuration": 422,
    "invalid-key": 422,
    "invalid-parameter": 422,
    "null-key": 422,
    "unsupported-batch": 422,
    "unsupported-key": 422,
    "unsupported-version": 422,
    "missing-extra": 501,
    "invalid-source": 502,
    "poisoned-cache": 502,
    "cache-unavailable": 503,
    "queue-unavailable": 503,
    "source-unavailable": 503,
    "log-unavailable": 503,
    "registry-unavailable": 503,
    "server-unavailable": 503,
    "snapshot-failed": 503,
    "store-unavailable": 503,
    "not-enough-memory": 507,
    "store-refused": 507,
    "error": 500,  # what nobody expected; the server has told its operator more
}


# What any request may be answered with.
ANY = ("invalid-request", "not-logged-in", "not-allowed", "server-unavailable")


class Refused(errors.InvalidRequest):
    """A request that HTTP has a status of its own for: no such path, too slow, not this method."""

    def __init__(self, detail: str, status: int, allow: str = "") -> None:
        super().__init__(detail)
        self.status = status
        self.allow = allow


class NoSession(errors.NotLoggedIn):
    """A page asks, and there is no session: it shows its own form, and no dialog of the browser."""


def document(code: str, detail: str, status: int | None = None, **more: Any) -> tuple[int, bytes]:
    """The status and the body of a problem."""
    number = status or STATUSES.get(code, 500)
    body = {
        "type": f"urn:bloomery:{code}",
        "title": code.replace("-", " ").capitalize(),
        "status": number,
        "detail": detail,
        "code": code,
        **more,
    }
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    # What UTF-8 cannot have, a lone surrogate, JSON has as an escape.
    return number, text.encode("utf-8", "backslashreplace")


def response(problem: errors.BloomeryError, **more: Any) -> Response:
    """Return the response that describes a problem."""
    # Imported here: the server refuses requests before it has Starlette.
    from starlette.responses import Response

    number, headers, body = parts(problem, **more)
    return Response(body, number, headers, MEDIA)


def parts(problem: errors.BloomeryError, **more: Any) -> tuple[int, dict[str, str], bytes]:
    """Return the status, the headers and the body of a response that describes a problem."""
    status = problem.status if isinstance(problem, Refused) else None
    number, body = document(problem.code, str(problem), status, **more)
    return number, _headers(number, problem), body


def _headers(status: int, problem: errors.BloomeryError) -> dict[str, str]:
    if isinstance(problem, NoSession):
        return {"WWW-Authenticate": 'Bearer realm="bloomery"'}  # no browser asks by itself for it
    if status == 401:
        return {"WWW-Authenticate": 'Bearer realm="bloomery", Basic realm="bloomery"'}
    if status == 503:
        return {"Retry-After": RETRY_SECONDS}
    if isinstance(problem, Refused) and problem.allow:
        return {"Allow": problem.allow}
    return {}


def phrase(status: int) -> str:
    """Return the reason phrase of a status: 404 is Not Found."""
    return HTTPStatus(status).phrase


def describe(*codes: str, statuses: tuple[int, ...] = ()) -> dict[int | str, dict[str, Any]]:
    """The problems that a route may answer with, for the OpenAPI document."""
    by_status: dict[int, list[str]] = {status: ["invalid-request"] for status in statuses}
    for code in codes:
        by_status.setdefault(STATUSES[code], []).append(code)
    return {
        status: {
            "description": f"{phrase(status)}: {', '.join(named)}",
            "content": {MEDIA: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
        for status, named in sorted(by_status.items())
    }
