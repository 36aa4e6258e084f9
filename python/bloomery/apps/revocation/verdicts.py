"""Verdicts on tokens: what the feed and the exact check behind it say, and what is counted."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Generator
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from bloomery.errors import BloomeryError, FeedUnavailable, InvalidParameter

WhenStale: TypeAlias = Literal["refuse", "answer"]


class RevokedIds(Protocol):
    """What knows the revoked ids: a `bloomery.feeds.Subscriber`, or a filter. One that can be out
    of date says so by a property `stale`."""

    def __contains__(self, key: Any) -> bool: ...


class Refusal(NamedTuple):
    """Why a request goes no further: the status of the response, and its words."""

    status: int
    description: str

    @property
    def line(self) -> str:
        """The status with its name, as WSGI has it."""
        return {401: "401 Unauthorized", 503: "503 Service Unavailable"}[self.status]

    @property
    def headers(self) -> list[tuple[str, str]]:
        """The headers of the response."""
        about = {
            401: (
                "WWW-Authenticate",
                f'Bearer error="invalid_token", error_description="{self.description}"',
            ),
            503: ("Retry-After", "30"),
        }[self.status]
        length = str(len(self.body))
        plain = ("Content-Type", "text/plain; charset=utf-8")
        return [about, plain, ("Content-Length", length), ("Cache-Control", "no-store")]

    @property
    def body(self) -> bytes:
        """The body of the response."""
        return f"{self.description}\n".encode()


class TokenVerdict(enum.Enum):
    """What the feed says of a token's id."""

    VALID = "valid"  # definitely not on it
    MAYBE = "maybe"
    UNKNOWN = "unknown"  # the feed is stale, or there is none


REVOKED = Refusal(401, "the token was revoked")
UNCONFIRMED = Refusal(503, "whether the token was revoked cannot be told at the moment")


class Verdicts:
    """What a middleware decides, written once for WSGI and ASGI; and how often."""

    def __init__(self, feed: RevokedIds, confirm: Any, when_stale: WhenStale) -> None:
        if when_stale not in ("refuse", "answer"):
            raise InvalidParameter(f"when_stale is {when_stale!r}, must be 'refuse' or 'answer'")
        self._feed, self._open = feed, when_stale == "answer"
        self.confirm = None if confirm is None else check_function(confirm)
        self.counts: Counter[str] = Counter()

    def judge(self, token_id: Callable[[], Any]) -> Generator[Any, Any, Refusal | None]:
        """Judge the token whose id `token_id` gives: None lets it pass. A flow (`bloomery.flow`)
        that yields an id that the exact check is to be asked about."""
        try:
            ident = token_id()
        except ValueError as problem:
            return self._malformed(problem)
        if ident is None:
            self.counts["without_token"] += 1
            return None
        verdict = self._by_feed(ident)
        if verdict is TokenVerdict.VALID or self.confirm is None:
            return self._without_confirmation(verdict)
        try:
            answer = yield ident
        except (BloomeryError, OSError):  # it is away: nobody gets in on a maybe
            return self._end(UNCONFIRMED)
        return self._by_confirmation(answer, verdict)

    def _by_feed(self, token_id: Any) -> TokenVerdict:
        """What the feed says. A *no* of a stale one counts only if that is wanted."""
        try:
            if token_id in self._feed:
                return TokenVerdict.MAYBE
            stale = bool(getattr(self._feed, "stale", False))
        except FeedUnavailable:
            stale = True
        return TokenVerdict.UNKNOWN if stale and not self._open else TokenVerdict.VALID

    def _without_confirmation(self, verdict: TokenVerdict) -> Refusal | None:
        """The end of it, where there is no exact check."""
        return self._end(
            {TokenVerdict.MAYBE: REVOKED, TokenVerdict.UNKNOWN: UNCONFIRMED}.get(verdict)
        )

    def _by_confirmation(self, answer: Any, verdict: TokenVerdict) -> Refusal | None:
        """The end of it, with the answer of the exact check: True, or what is true, is revoked. A
        guard's answer that its source did not confirm is none."""
        if not getattr(answer, "confirmed", True):
            return self._end(UNCONFIRMED)
        if not answer and verdict is TokenVerdict.MAYBE:
            self.counts["wrong_maybes"] += 1
        return self._end(REVOKED if answer else None)

    def _malformed(self, problem: Exception) -> Refusal:
        """A token whose id cannot be told is refused."""
        self.counts["malformed"] += 1
        # Into a quoted string of a header; the words may be those of a function of others.
        text = "".join(
            c if c.isascii() and c.isprintable() and c not in '"\\' else "?"
            for c in str(problem)[:200]
        )
        return Refusal(401, text or "the token is malformed")

    def _end(self, refusal: Refusal | None) -> Refusal | None:
        """Count how it ended."""
        names = {None: "passed", 401: "revoked", 503: "unconfirmed"}
        self.counts[names[refusal and refusal.status]] += 1
        return refusal

    def info(self) -> dict[str, Any]:
        """How often requests ended how, and what the feed says of itself."""
        names = ("passed", "revoked", "unconfirmed", "malformed", "without_token", "wrong_maybes")
        about = getattr(self._feed, "info", None)
        feed = about() if callable(about) else {}
        return {**{name: self.counts[name] for name in names}, "feed": feed}


def check_function(confirm: Any) -> Callable[[Any], Any]:
    """The exact check as a function of an id: a function as it is, of a guard or a filter its
    `contains`, of a set `in`."""
    for candidate in (getattr(confirm, "contains", None), confirm):
        if callable(candidate):
            function: Callable[[Any], Any] = candidate
            return function
    if hasattr(confirm, "__contains__"):
        contains: Callable[[Any], Any] = confirm.__contains__
        return contains
    raise InvalidParameter(
        f"confirm is {type(confirm).__name__}, must be a function of an id, a guard, or a container"
    )
