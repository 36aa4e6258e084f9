"""Keys in the OpenAPI document: exactly what `keys` takes."""

from __future__ import annotations

from typing import Any

__all__ = ["SCHEMAS", "request", "response"]

_BASE64 = "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"


def _key(name: str, string: dict[str, Any], what: str) -> dict[str, Any]:
    return {
        "title": name,
        "description": what,
        "anyOf": [
            {"type": "string", **string},
            {"type": "integer"},
            {"type": "array", "items": {"$ref": f"#/components/schemas/{name}"}},
        ],
    }


SCHEMAS = {
    "Key": _key("Key", {}, "A string is its UTF-8 bytes; an array is a tuple: one key of parts."),
    "Base64Key": _key("Base64Key", {"pattern": _BASE64}, "The same, each string as base64."),
}


def _object(field: str, key: str, encoding: str) -> dict[str, Any]:
    ref: dict[str, Any] = {"$ref": f"#/components/schemas/{key}"}
    fields: dict[str, Any] = {field: ref if field == "key" else {"type": "array", "items": ref}}
    fields["encoding"] = {"const": encoding}
    needed = [field] if encoding == "utf-8" else [field, "encoding"]
    return {
        "type": "object",
        "properties": fields,
        "required": needed,
        "additionalProperties": False,
    }


def request() -> dict[str, Any]:
    """The body of add, contains and remove."""
    shapes = [
        _object(field, key, encoding)
        for key, encoding in (("Key", "utf-8"), ("Base64Key", "base64"))
        for field in ("key", "keys")
    ]
    return {"required": True, "content": {"application/json": {"schema": {"anyOf": shapes}}}}


def response(word: str) -> dict[str, Any]:
    """Their answer: for one key, or for each of many."""
    yes: dict[str, Any] = {"type": "boolean"}
    schema = {
        "type": "object",
        "properties": {word: {"anyOf": [yes, {"type": "array", "items": yes}]}},
        "required": [word],
        "additionalProperties": False,
    }
    return {
        "description": "an answer for the key, or one for each of the keys",
        "content": {"application/json": {"schema": schema}},
    }
