"""`/healthz` and `/readyz`. The server answers them itself, so that it can while it loads the
filters, before FastAPI is imported. `endpoints/health.py` describes them for the OpenAPI document.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl

from bloomery import errors
from bloomery.service.http import problems

_PATHS = frozenset({"/healthz", "/readyz"})
_METHODS = ("GET", "HEAD")
_TRUE, _FALSE = {"1", "on", "t", "true", "y", "yes"}, {"0", "off", "f", "false", "n", "no"}
_OK = "ok\n"


def is_about_health(scope: Any) -> bool:
    """Return whether a request is answered by `respond`."""
    return scope["path"] in _PATHS and scope["method"] in _METHODS


async def respond(
    scope: Any, send: Any, not_ready: Callable[[bool], str], broken: Callable[[], str]
) -> None:
    """Send whether the server is alive, or whether it is ready: `broken` and `not_ready` return why
    it is not."""
    why = broken()
    if scope["path"] == "/readyz":
        try:
            why = not_ready(_includes_writes(scope["query_string"]))
        except errors.InvalidParameter as problem:
            await send_problem(problem, send)
            return
    headers = {"retry-after": problems.RETRY_SECONDS} if why else {}
    body = f"{why}\n" if why else _OK
    await _send(send, 503 if why else 200, headers, "text/plain; charset=utf-8", body.encode())


async def send_problem(problem: errors.BloomeryError, send: Any) -> None:
    """Respond with a problem, without Starlette."""
    status, headers, body = problems.parts(problem)
    await _send(send, status, headers, problems.MEDIA, body)


async def _send(send: Any, status: int, headers: dict[str, str], media: str, body: bytes) -> None:
    headers = {**headers, "content-type": media, "content-length": str(len(body))}
    lines = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": lines})
    await send({"type": "http.response.body", "body": body})


def _includes_writes(query: bytes) -> bool:
    """Return the parameter `writes`: false is for clients that only read."""
    given = dict(parse_qsl(query.decode("latin-1"), keep_blank_values=True)).get("writes", "true")
    if given.lower() not in _TRUE | _FALSE:
        raise errors.InvalidParameter(f"writes is {given[:60]!r}, must be true or false")
    return given.lower() in _TRUE
