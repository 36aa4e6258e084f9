"""A line of the "How good" table."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Line:
    what: str
    must: str
    aim: str
    measured: str
    verdict: str


def word(must: bool, aim: bool | None = None) -> str:
    if not must:
        return "MISSED"
    return "aim met" if aim else "must met"


def missing(what: str, must: str, aim: str = "-") -> Line:
    return Line(what, must, aim, "-", "not measured")
