"""Keys in the OpenAPI document: exactly what `keys`, `json_keys` and `streams` take and answer."""

from __future__ import annotations

from typing import Any

from bloomery.service.http.body.bodies import ARROW, JSON, NDJSON

_BASE64 = "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
_HEX = "[0-9a-f]"
_UUID = f"^{_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}}$"
_TIME = (
    "^[12][0-9]{3}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]"
    "([.][0-9]{6})?[+-](0[0-9]|1[0-3]):[0-5][0-9]$"
)
# What the answer to a key is called, for each operation.
ANSWER_FIELDS = {"add": "new", "contains": "maybe", "remove": "removed"}


def _object(fields: dict[str, Any], *needed: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": fields,
        "required": list(needed),
        "additionalProperties": False,
    }


def _text(pattern: str) -> dict[str, Any]:
    return {"type": "string", "pattern": pattern}


def _key(name: str, string: dict[str, Any], what: str) -> dict[str, Any]:
    forms = {"base64": _BASE64, "uuid": _UUID, "datetime": _TIME}
    return {
        "title": name,
        "description": what,
        "anyOf": [
            string,
            {"type": "integer"},
            {"type": "array", "items": {"$ref": f"#/components/schemas/{name}"}},
            *(_object({form: _text(pattern)}, form) for form, pattern in forms.items()),
        ],
    }


SCHEMAS = {
    "Key": _key(
        "Key",
        {"type": "string"},
        "A string is its UTF-8 bytes; an array is a tuple, one key of parts; an object names the "
        "form of what JSON has no value for.",
    ),
    "Base64Key": _key("Base64Key", _text(_BASE64), "The same, each string as base64."),
}


def _body(field: str, key: str, encoding: str) -> dict[str, Any]:
    single: dict[str, Any] = {"$ref": f"#/components/schemas/{key}"}
    keys = single if field == "key" else {"type": "array", "items": single}
    needed = (field,) if encoding == "utf-8" else (field, "encoding")
    return _object({field: keys, "encoding": {"const": encoding}}, *needed)


CONSISTENCY = {
    "name": "consistency",
    "in": "query",
    "required": False,
    "schema": {"enum": ["local", "strong"]},
    "description": "Of a node: its copy (local), or that once it has all (strong).",
}
COLUMN = {
    "name": "column",
    "in": "query",
    "required": False,
    "schema": {"type": "string"},
    "description": "Of an Arrow stream: the column of keys. Without it, the first.",
}


def bodies() -> dict[str, Any]:
    """Keys in JSON: one, or many."""
    shapes = [
        _body(field, key, encoding)
        for key, encoding in (("Key", "utf-8"), ("Base64Key", "base64"))
        for field in ("key", "keys")
    ]
    return {JSON: {"schema": {"anyOf": shapes}}}


def request() -> dict[str, Any]:
    """The body of add, contains and remove."""
    lines = {"type": "string", "description": "a key a line, each as JSON"}
    columns = {"type": "string", "format": "binary", "description": "an Arrow IPC stream"}
    return {
        "required": True,
        "content": {
            **bodies(),
            NDJSON: {"schema": lines},
            ARROW: {"schema": columns},
        },
    }


def response(word: str) -> dict[str, Any]:
    """Their answer: for one key, for each of many, or for a whole stream."""
    yes: dict[str, Any] = {"type": "boolean"}
    count = {"type": "integer", "minimum": 0}
    shapes = [
        _object({word: {"anyOf": [yes, {"type": "array", "items": yes}]}}, word),
        _object({"keys": count, word: count}, "keys", word),
    ]
    return {
        "description": "an answer for the key, or for each of the keys; of a stream how many, or "
        "by `Accept` an answer for each",
        "content": {
            JSON: {"schema": {"anyOf": shapes}},
            NDJSON: {"schema": {"type": "string"}},
            ARROW: {"schema": {"type": "string", "format": "binary"}},
        },
    }
