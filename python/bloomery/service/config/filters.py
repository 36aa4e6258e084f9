"""The filters of a configuration file: made when the server starts, if they are missing.

[filters.seen]
capacity = 1_000_000
error_rate = 0.01
policy = "reject"
source = "urls"
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from bloomery.errors import InvalidParameter
from bloomery.service.config.credentials import FieldError
from bloomery.service.domain import policy


def read(
    name: str, given: object, sources: Collection[str]
) -> tuple[dict[str, Any], list[FieldError]]:
    """The parameters of a section, as HTTP takes them too; or all that is wrong with it. `policy`
    is another word for `on_full`, and `sources` are those that there are."""
    from bloomery.service import parameters  # 0.1 s, which a start without sections saves

    if not isinstance(given, dict):
        return {}, [FieldError("", f"must be a section: [filters.{name}]")]
    plain = {word.lower().replace("-", "_"): value for word, value in given.items()}
    written = {"on_full": "policy"} if "policy" in plain else {}
    if "name" in plain:
        return {}, [FieldError("name", f"name is that of the section: [filters.{name}]")]
    if written and "on_full" in plain:
        return {}, [FieldError("policy", "policy is there twice: it is another word for on_full")]
    if written:
        plain["on_full"] = plain.pop("policy")
    parsed, wrong = parameters.parse({**plain, "name": name})
    if not wrong and parsed.get("source") not in (None, *sources):
        there = ", ".join(sources) or "none"
        wrong["source"] = f"must be one of the sections [sources.…]: {there}"
    parsed.pop("name", None)
    if not wrong:
        try:
            policy.chosen(parsed.get("kind"), parsed)
        except InvalidParameter as problem:
            return {}, [FieldError("", str(problem))]
    return parsed, [_error(field, what, plain, written) for field, what in wrong.items()]


def _error(field: str, what: str, plain: dict[str, Any], written: dict[str, str]) -> FieldError:
    if not field and what.startswith("kind "):
        field, what = "kind", what.removeprefix("kind ")
    word = written.get(field, field)
    if field not in plain:  # it is missing: the line is that of the section
        return FieldError("", f"{word} {what}".strip())
    if what.startswith("must") and field != "seed":  # which may be a secret
        word = f"{word} is {str(plain[field])[:60]!r},"
    elif what.startswith("there"):
        word += ":"
    return FieldError(written.get(field, field).replace("_", "-"), f"{word} {what}")
