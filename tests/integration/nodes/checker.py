"""What was acknowledged, and what was answered: whether an answer was wrong.

A "no" for a key that was acknowledged at t is wrong if it was asked for later than t with strong
reads, and later than t and the allowed lag with local ones; whatever happened to nodes and Redis
meanwhile. An error is no answer; a write that was not acknowledged may or may not have been done.
Of those who added one key and were acknowledged, one at most was told that it is new. All times are
of this machine's monotonic clock.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

Place = int | str  # the number of a node, or what stands in front of them


class Write(NamedTuple):
    """A write that was acknowledged."""

    filter: str
    key: str
    node: Place
    asked: float
    acknowledged: float
    new: bool = False


class Answer(NamedTuple):
    """What was said of a key."""

    filter: str
    key: str
    node: Place
    strong: bool
    asked: float
    answered: float
    maybe: bool


class Failure(NamedTuple):
    """What was not answered."""

    what: str
    node: Place
    asked: float
    failed: float
    problem: Exception


class Checker:
    """The record of one run. Threads share it."""

    def __init__(self, lag: float) -> None:
        """`lag`: seconds after which every node that answers from its copy has a key."""
        self.lag = lag
        self.writes: list[Write] = []
        self.answers: list[Answer] = []
        self.failures: list[Failure] = []

    def keys(self, filter: str) -> list[str]:
        """All that were acknowledged."""
        return [write.key for write in self.writes[:] if write.filter == filter]

    def wrong(self) -> list[str]:
        """Every answer that must not have been given."""
        known: dict[tuple[str, str], Write] = {}
        for write in self.writes:
            at = (write.filter, write.key)
            if at not in known or write.acknowledged < known[at].acknowledged:
                known[at] = write
        news = Counter((write.filter, write.key) for write in self.writes if write.new)
        found = [
            f"{key!r} of {filter!r} was new {n} times" for (filter, key), n in news.items() if n > 1
        ]
        for answer in self.answers:
            first = known.get((answer.filter, answer.key))
            if answer.maybe or first is None:
                continue
            late = answer.asked - first.acknowledged
            if late <= (0 if answer.strong else self.lag):
                continue
            kind = "strong" if answer.strong else "local"
            found.append(
                f"{answer.key!r} of {answer.filter!r}: node {first.node} acknowledged it, and node "
                f"{answer.node} said no ({kind}) {late * 1000:.1f} ms later"
            )
        return found

    def require_right(self, *, writes: int = 1, answers: int = 1) -> None:
        """Nothing was wrong, and enough was asked for that to mean something."""
        found = self.wrong()
        assert not found, f"{len(found)} wrong answers of {len(self.answers)}: {found[:5]}"
        assert len(self.writes) >= writes, (len(self.writes), self.failures[:3])
        assert len(self.answers) >= answers, (len(self.answers), self.failures[:3])
