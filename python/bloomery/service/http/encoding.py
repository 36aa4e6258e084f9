"""Text and JSON for responses, of any value: no byte that a client sent can make one fail."""

from __future__ import annotations

from typing import Any

from pydantic_core import PydanticSerializationError, to_json


def encode_text(text: str) -> bytes:
    """Return text as UTF-8. A lone surrogate, which UTF-8 cannot hold, becomes `\\udcff`."""
    return text.encode("utf-8", "backslashreplace")


def encode_json(value: Any) -> bytes:
    """Return a value as JSON. What is no number (not known, without end) is null, and a lone
    surrogate, which UTF-8 cannot hold, becomes the characters `\\udcff`."""
    try:
        return to_json(value, inf_nan_mode="null")
    except PydanticSerializationError:
        return to_json(_without_surrogates(value), inf_nan_mode="null")


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return encode_text(value).decode()
    if isinstance(value, dict):
        return {_without_surrogates(k): _without_surrogates(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_surrogates(item) for item in value]
    return value
