"""The page of the API: the OpenAPI document as text, with examples that run on this server."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from fastapi import Request, Response

from bloomery.service.access.permissions import OPERATIONS, User
from bloomery.service.http.body.bodies import JSON
from bloomery.service.http.pages import frame

# A filter that the examples are about, and what they send, by the operation's name. In the order of
# the page each works on what those before it made.
NAME = "example"
EXAMPLES: dict[str, Any] = {
    "create": {"name": NAME, "kind": "counting", "capacity": 10_000, "error_rate": 0.01},
    "add": {"keys": ["alice", "bob", 42, ["user", 7]]},
    "contains": {"keys": ["alice", "carol"]},
    "remove": {"key": "bob"},
    "lookup": {"key": "alice"},
    "forget": {"key": "alice"},
    "change": {"warn_at": 0.7},
    "merge": {"sources": [NAME]},
    "rebuild": {},
    "recover": {"keep": True},
}
# How the page is ordered: a title, and the names of operations.
GROUPS = (
    ("Filters", ("create", "listed", "info", "samples", "change")),
    ("Keys", ("add", "contains", "lookup", "forget", "remove")),
    (
        "Whole filters",
        ("merge", "rotate", "rebuild", "export", "put", "clear", "drop"),
    ),
)
_METHODS = ("get", "head", "post", "put", "patch", "delete")


@frame.page("/docs")
async def show_api(request: Request, user: User | None) -> Response:
    """All operations of the API."""
    return await asyncio.to_thread(_page, request, user)


def _page(request: Request, user: User | None) -> Response:
    """In a thread: the document takes a tenth of a second the first time, the page 10 ms each."""
    origin = f"{request.scope['scheme']}://{request.headers.get('host', 'localhost')}"
    return frame.render(
        request,
        "docs.html",
        user,
        groups=grouped(request.app.openapi()),
        example=NAME,
        origin=origin,
    )


def grouped(document: dict[str, Any]) -> list[tuple[str, list[dict[str, Any]]]]:
    """The operations of the document in the order of the page; whatever has no place there comes
    last, as the server's own."""
    named = {
        operation["operationId"]: _row(method, path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if method in _METHODS
    }
    groups = [
        (title, [named.pop(name) for name in names if name in named]) for title, names in GROUPS
    ]
    return [*groups, ("The server", list(named.values()))]


def _row(method: str, path: str, operation: dict[str, Any]) -> dict[str, Any]:
    """An operation, as the template shows it."""
    name = operation["operationId"]
    wanted = OPERATIONS.get(operation.get("x-operation", ""))
    content = operation.get("requestBody", {}).get("content", {})
    return {
        "id": name,
        "method": method.upper(),
        "path": path,
        "what": operation.get("description", operation.get("summary", "")),
        "role": None if wanted is None else wanted.role.name.lower(),
        "parameters": [_parameter(parameter) for parameter in operation.get("parameters", [])],
        "bodies": list(content),
        "fields": _fields(content.get(JSON, {}).get("schema", {})),
        "example": json.dumps(EXAMPLES[name]) if name in EXAMPLES else "",
        "runs": not content or JSON in content,
        "answers": [
            (status, response.get("description", ""))
            for status, response in operation["responses"].items()
        ],
    }


def _parameter(parameter: dict[str, Any]) -> dict[str, Any]:
    schema = parameter["schema"]
    return {
        "name": parameter["name"],
        "where": parameter["in"],
        "required": parameter["required"],
        "what": parameter.get("description", schema.get("description", "")),
        "default": "" if schema.get("default") is None else schema["default"],
    }


def _fields(schema: dict[str, Any]) -> str:
    """The name of the body's schema in the document, if it has one."""
    return str(schema.get("$ref", "")).rpartition("/")[2]
