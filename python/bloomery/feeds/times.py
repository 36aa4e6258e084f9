"""Times of a feed: spans as people write them, and how long ago something was."""

from __future__ import annotations

from bloomery import errors
from bloomery.filters.rotating import parse_window


def seconds(name: str, value: object) -> float:
    """Seconds from a number, a timedelta, or text such as "15min", "12h", "7d"; 0 for 0."""
    if value == 0:
        return 0.0
    try:
        return parse_window(value)
    except errors.InvalidParameter:
        raise errors.InvalidParameter(
            f"{name} is {str(value)[:60]!r}, must be seconds, a timedelta, or text such as "
            "'15min', '12h' or '7d'"
        ) from None


def show_span(span: float) -> str:
    """Seconds for a person: 90 -> 2 minutes."""
    for unit, scale in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if abs(span) >= 1.5 * scale:
            return f"{round(abs(span) / scale)} {unit}"
    return f"{round(abs(span))} seconds"
