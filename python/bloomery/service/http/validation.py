"""Say what is wrong with a request, in words that say what would be right.

pydantic finds it. The words have names of fields in them, and nothing else of the request: it may
be a key.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from starlette.datastructures import QueryParams

from bloomery import errors
from bloomery.service.http.models import Changes, Merge
from bloomery.service.parameters import KINDS, advice, like

_LATER = [*Changes.model_fields, *Merge.model_fields]


def differences(problems: Iterable[Any]) -> list[dict[str, str]]:
    """Where a request differs from the document, and what would be right: each place once."""
    right: dict[str, str] = {}
    for problem in problems:
        place, *parts = problem["loc"]
        kind = None
        if parts and parts[0] in KINDS and place == "body":
            kind = parts.pop(0)
        field = str(parts[0])[:60] if parts else ""
        at = "".join(f"[{part}]" for part in parts[1:] if isinstance(part, int))
        where = f"{place}.{field}{at}" if field else place
        right.setdefault(where, _what_is_right(problem, field, kind))
    return [{"where": where, "what": what} for where, what in right.items()]


def _what_is_right(problem: Any, field: str, kind: str | None) -> str:
    if problem["type"] == "extra_forbidden" and kind is None:
        made_with = any(field in model.model_fields for model in KINDS.values())
        return "cannot be changed" if made_with else f"there is no such field{like(field, _LATER)}"
    if problem["type"] == "extra_forbidden" and field in _LATER:
        return "is set by PATCH /filters/{name}"
    return advice(problem, field, kind)


def check_query(query: bytes, known: Sequence[str]) -> None:
    """InvalidRequest for a parameter that there is not: ignored, it would do something else."""
    for name in QueryParams(query) if query else ():
        if name not in known:
            takes = f"there {'is' if len(known) == 1 else 'are'} {', '.join(known)}"
            raise errors.InvalidRequest(
                f"there is no parameter {name[:60]!r} here"
                + (like(name, known) or f": {takes}" if known else "")
            )


def consistency(scope: Any) -> bool | None:
    """Whether a request wants an answer that has all that any node acknowledged before it; None: it
    does not say."""
    wanted = QueryParams(scope["query_string"]).get("consistency")
    if wanted not in (None, "local", "strong"):
        raise errors.InvalidRequest(
            f"consistency is {wanted[:60]!r}, must be local (this node's copy) or strong "
            "(that copy, once it has all that any node acknowledged)"
        )
    return None if wanted is None else wanted == "strong"
