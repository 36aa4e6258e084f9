"""Answers of look-ups, ready for JSON and for the Redis protocol.

| value | JSON | Redis protocol |
|---|---|---|
| text | string | its UTF-8 |
| number, true, false | the same | as JSON writes it |
| none | null | null |
| datetime, date, time | string, ISO 8601 | the same |
| Decimal, UUID | string | the same |
| bytes | `{"base64": "AP8="}` | the bytes |
| several columns, lists | object, array | as JSON |
"""

from __future__ import annotations

import base64
import datetime
import json
import math
from collections.abc import Mapping
from typing import Any

from bloomery.guard.answer import Answer


def for_json(answer: Answer) -> dict[str, Any]:
    """The answer as HTTP sends it."""
    return {"found": answer.found, "value": _plain(answer.value), "by": answer.by}


def for_resp(answer: Answer) -> list[Any]:
    """The answer as the Redis protocol sends it: found, value, by whom."""
    value = answer.value
    if not isinstance(value, (bytes, bytearray, memoryview)) and value is not None:
        plain = _plain(value)
        text = plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)
        value = text.encode("utf-8", "replace")
    return [answer.found, value if value is None else bytes(value), answer.by.encode()]


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, Mapping):
        return {str(name): _plain(field) for name, field in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in value]
    return str(value)  # Decimal, UUID, an address, a range: as people write them
