"""Say what is wrong with a request, in words that say what would be right.

pydantic finds it; `Extra inputs are not permitted` helps nobody who wrote `error_rte`. The words
have names of fields in them, and nothing else of the request: it may be a key.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any

from starlette.datastructures import QueryParams

from bloomery import errors
from bloomery.service.http.models import KINDS, Changes, Merge

__all__ = ["check_query", "differences"]

_TIMES = "must be seconds, or text such as '15min', '12h' or '7d'"
_NAMES = r"must be text; a backslash in it is \\, a byte that is no text \xNN"
# Fields that may be a number or a text: pydantic tells what is wrong with either.
_WORDS = {"warn_within": _TIMES, "grace": _TIMES, "window": _TIMES}
_LATER = [*Changes.model_fields, *Merge.model_fields]


def differences(problems: Iterable[Any]) -> list[dict[str, str]]:
    """Where a request differs from the document, and what would be right: each place once."""
    advice: dict[str, str] = {}
    for problem in problems:
        place, *parts = problem["loc"]
        kind = None
        if parts and parts[0] in KINDS and place == "body":
            kind = parts.pop(0)
        field = str(parts[0])[:60] if parts else ""
        at = "".join(f"[{part}]" for part in parts[1:] if isinstance(part, int))
        where = f"{place}.{field}{at}" if field else place
        advice.setdefault(where, _what_is_right(problem, field, kind))
    return [{"where": where, "what": what} for where, what in advice.items()]


def _what_is_right(problem: Any, field: str, kind: str | None) -> str:
    what = problem["type"]
    if what == "extra_forbidden":
        return _unknown(field, kind)
    if what == "union_tag_invalid":
        return f"kind must be one of {', '.join(name for name in KINDS if name)}"
    if what == "missing":
        return "is missing"
    if field in _WORDS:
        return _WORDS[field]
    if what == "string_pattern_mismatch":
        return _NAMES
    message: str = problem["msg"]
    return message.replace("Input should", "must", 1).partition(", unable to")[0]


def _unknown(field: str, kind: str | None) -> str:
    """A field that is not there: it is of another kind, or for later, or nearly another."""
    others = [name for name, model in KINDS.items() if name and field in model.model_fields]
    if kind is None:
        return "cannot be changed" if others else f"there is no such field{_like(field, _LATER)}"
    if others:
        return f"goes with kind {' or '.join(others)}"
    if field in _LATER:
        return "is set by PATCH /filters/{name}"
    return f"there is no such field{_like(field, KINDS[kind].model_fields)}"


def _like(name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name[:60], list(known), 1)
    return f"; did you mean {near[0]}?" if near else ""


def check_query(query: bytes, known: Sequence[str]) -> None:
    """InvalidRequest for a parameter that there is not: ignored, it would do something else."""
    for name in QueryParams(query) if query else ():
        if name not in known:
            takes = f"there {'is' if len(known) == 1 else 'are'} {', '.join(known)}"
            raise errors.InvalidRequest(
                f"there is no parameter {name[:60]!r} here"
                + (_like(name, known) or f": {takes}" if known else "")
            )
