"""Which kind of filter suits: a few questions, an answer, and why."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Remove = Literal["no", "most", "all", "count"]
Wrong = Literal["little", "lookup", "dear"]
# What a wrong maybe costs, and the error rate that suits.
_RATES: dict[Wrong, tuple[float, str]] = {
    "little": (0.01, "a wrong maybe costs little: one in a hundred is plenty"),
    "lookup": (0.001, "a wrong maybe costs a look-up: one in a thousand of them is needless"),
    "dear": (
        1e-6,
        "a wrong maybe is dear: one in a million; if none at all may be wrong, put an exact answer "
        "behind the filter (docs/guard.md)",
    ),
}


@dataclass(frozen=True, slots=True)
class Choice:
    """A kind of filter, its options and an error rate, and the reasons."""

    kind: str
    error_rate: float
    options: dict[str, Any] = field(default_factory=dict)
    why: list[str] = field(default_factory=list)
    beware: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "kind": self.kind,
            "error_rate": self.error_rate,
            "options": self.options,
            "why": self.why,
            "beware": self.beware,
        }


def choose(
    *,
    grow: bool = False,
    remove: Remove = "no",
    forget: bool = False,
    known: bool = False,
    users: bool = False,
    wrong: Wrong = "little",
) -> Choice:
    """The kind that suits: `grow`: nobody knows how many keys will come; `remove`: no keys, most of
    them when asked, all, or one copy at a time (count); `forget`: old ones by themselves; `known`:
    all keys are there before; `users`: a filter for each of many users; `wrong`: what a wrong maybe
    costs."""
    rate, cost = _RATES[wrong]
    kind, options, why = _kind(grow, remove, forget, known, users)
    beware = []
    if remove != "no" and kind in ("rotating", "bank", "static"):
        beware.append(f"keys cannot be removed from a filter of kind {kind} one by one")
    if forget and kind == "bank":
        beware.append("a bank forgets a user, and not by time")
    if grow and kind == "deletable":
        beware.append("it does not grow: make it for the most keys that may come")
    if grow and kind == "counting":
        beware.append("it does not grow: make it for the most keys that may come")
    return Choice(kind, rate, options, [why, cost], beware)


def _kind(
    grow: bool, remove: str, forget: bool, known: bool, users: bool
) -> tuple[str, dict[str, Any], str]:
    if users:
        return "bank", {}, "a small filter for each user, all in one memory"
    if forget:
        return "rotating", {}, "it forgets keys by itself when their window is over, and grows"
    if remove == "count":
        return "counting", {}, "counters: each copy of a key can be taken out again"
    if remove == "all":
        if grow:
            return "cuckoo", {"grow": True}, "fingerprints can be removed, and it grows"
        return "cuckoo", {}, "fingerprints can be removed, in little memory"
    if remove == "most" and not grow:
        return "deletable", {}, "most keys can be removed, for some bits more than a plain filter"
    if remove == "most":
        return "cuckoo", {"grow": True}, "fingerprints can be removed, and it grows"
    if known and not grow:
        return "static", {}, "all keys are known: the smallest, and nothing can be added"
    if grow:
        return "scalable", {}, "it grows with what comes, and keeps its error rate"
    return "bloom", {}, "a known number of keys: the fastest, and small"
