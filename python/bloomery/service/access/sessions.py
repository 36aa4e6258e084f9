"""Sessions of people who logged in on a page: a random token in a cookie stands for their login.

They are in memory alone, so a restart ends them all; a node of several has its own. What is kept of
a token is its hash. A session ends by logout, after `session-seconds`, and as soon as the password
or token that it was begun with is no longer theirs.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from bloomery.service.access.authentication import Login
from bloomery.service.config.settings import Settings

_MOST = 10_000  # the oldest ends for a new one


@dataclass(frozen=True, slots=True)
class Session:
    """A login, and when it was."""

    login: Login
    began: float


class Sessions:
    """The sessions of a server, and the tokens that keep other sites from using them (CSRF)."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings, self._clock = settings, clock
        self._secret = secrets.token_bytes(32)
        self._open: OrderedDict[bytes, Session] = OrderedDict()

    def begin(self, login: Login) -> str:
        """Begin a session; return its token, for the cookie."""
        token = secrets.token_urlsafe(32)
        self._open[_digest(token)] = Session(login, self._clock())
        while len(self._open) > _MOST:
            self._open.popitem(last=False)
        return token

    def find(self, token: str) -> Login | None:
        """Return the login that a session stands for; None if it is over, or never was."""
        session = self._open.get(_digest(token))
        if session is None:
            return None
        if self._clock() - session.began >= self._settings.session_seconds or session.login.over():
            self.end(token)
            return None
        return session.login

    def end(self, token: str) -> None:
        """End a session."""
        self._open.pop(_digest(token), None)

    def csrf_token(self, token: str | None) -> str:
        """Return what pages of this session (None: of nobody's) send along with what they ask
        for: another site cannot read it."""
        return hmac.new(self._secret, (token or "").encode(), "sha256").hexdigest()


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
