"""Authentication: from names, passwords and tokens to users, for both protocols.

    token ──> SHA-256, at once ──────────────────────────────────────────────> Login, or
    password ──> seen lately? ──> rate limit (`throttle`) ──> argon2, in a thread ──> NotLoggedIn

Whatever is wrong, the error is the same and takes as long. What a flood of logins can use is
bounded: two threads, a short queue, and tables of fixed size.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import os
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn, Protocol

from bloomery import errors
from bloomery.service.access import throttle, users
from bloomery.service.access.permissions import User
from bloomery.service.access.users import Account, Users
from bloomery.service.observe.logs import Say

REFUSAL = "wrong name, password or token; after failed logins, wait a little before the next"
_UNNAMED = "default"  # what clients of Redis send where only a password, or a token, is given
_THREADS = 2
_REMEMBERED = 300.0
_MOST_REMEMBERED = 10_000


@dataclass(frozen=True, slots=True)
class Login:
    """A user who is logged in, and the password or token that proved it."""

    user: User
    proof: str  # what is stored of the password or token: another one, and this is over
    expires: float | None = None

    def over(self) -> bool:
        """Whether the token that it came by has expired."""
        return self.expires is not None and time.time() >= self.expires


class UserSource(Protocol):
    """Where the users are: a file of a server alone, or the Redis of nodes."""

    place: str

    def load(self) -> Users:
        """Read the users."""

    def stamp(self) -> object:
        """What is another once the users were changed; None if there are none."""


class Access:
    """The users of a server, as of a second ago at most."""

    def __init__(
        self,
        source: UserSource,
        say: Say,
        note: Callable[[str | None, str, str, str, str], None],
        *,
        remembered: float = _REMEMBERED,
    ) -> None:
        """`note` writes to the audit log, as `Audit.note` does; for `remembered` seconds a password
        that was right is not hashed again."""
        self._remembered = remembered
        self._source, self._say, self._audit = source, say, note
        self._throttle = throttle.LoginThrottle()
        self._threads = ThreadPoolExecutor(_THREADS, "bloomery-login", _be_modest)
        self._secret = secrets.token_bytes(32)
        self._verified: OrderedDict[bytes, tuple[str, float]] = OrderedDict()
        # From where each user came: there, failures that others have elsewhere hold nobody up.
        self._places: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._running: dict[bytes, asyncio.Task[str | None]] = {}
        self._nobody = ""  # a hash that is nobody's: an unknown name takes as long as a wrong word
        self._warned_of: object = None
        self.required = False
        self._unknown = False  # could nobody tell who the users are?
        try:
            self._stamp = source.stamp()
            self._take(source.load())
        except errors.StoreUnavailable:  # until that is known, nobody may do anything
            self._take(Users())
            self._stamp, self._unknown, self.required = None, True, True
        path = Path(source.place)
        if self.required and path.is_file() and path.stat().st_mode & 0o077:
            say(f"{path}: others can read it: chmod 600 {path}", level="warning")

    # Logging in.

    async def log_in(self, name: str | None, word: str, address: str, *, protocol: str) -> Login:
        """Log in by a token (of any user, or of the named one) or by a name and a password."""
        login = self.known_token(name, word)
        if login is not None:
            return login
        where = f"address {throttle.network(address)}"
        if name is None or users.split_token(word) is not None:
            await self._refuse(where, None, address, protocol)
        proof = await self._by_password(name, word, where, address, protocol)
        account = self._users.get(name)
        if account is None or proof is None or account.disabled or account.password != proof:
            raise errors.NotLoggedIn(REFUSAL)
        return Login(self._known[name], proof)

    def current(self, login: Login) -> Login | None:
        """Return a login with the user's permissions of now; None if it no longer holds."""
        account = self._users.get(login.user.name)
        if account is None or account.disabled:
            return None
        now = time.time()
        proofs = {account.password, *(t.digest for t in account.tokens if not t.expired(now))}
        return replace(login, user=self._known[account.name]) if login.proof in proofs else None

    def known_token(self, name: str | None, word: str) -> Login | None:
        """Log in by a token, of any user or of the named one, without waiting; else None."""
        split = users.split_token(word)
        if split is None:
            return None
        account, token = self._tokens.get(split[0], (None, None))
        digest = users.digest_of(split[1])
        if account is None or token is None or not hmac.compare_digest(digest, token.digest):
            return None
        if account.disabled or token.expired(time.time()):
            return None
        if name not in (None, _UNNAMED, account.name):
            return None
        return Login(self._known[account.name], token.digest, token.expires)

    async def _by_password(
        self, name: str, password: str, where: str, address: str, protocol: str
    ) -> str | None:
        """Return the stored hash that the password matches; None if it matches none."""
        if self._throttle.blocked(where):  # what is remembered could else be guessed at any speed
            raise errors.NotLoggedIn(REFUSAL)
        memo_key = self._memo_key(name, password, where)
        hashed, until = self._verified.get(memo_key, ("", 0.0))
        account = self._users.get(name)
        if account is not None and account.password == hashed and time.monotonic() < until:
            return hashed
        running = self._running.get(memo_key)
        if running is None:  # many connections of one client at once are one try
            running = asyncio.ensure_future(
                self._try(name, password, memo_key, where, address, protocol)
            )
            self._running[memo_key] = running
            running.add_done_callback(lambda _: self._running.pop(memo_key, None))
        return await asyncio.shield(running)

    async def _try(
        self, name: str, password: str, memo_key: bytes, where: str, address: str, protocol: str
    ) -> str | None:
        whose = f"user {name[:64]}"
        known = name if name in self._users else None
        try:
            async with contextlib.AsyncExitStack() as turns:
                await turns.enter_async_context(self._throttle.turn(where, throttle.ADDRESS))
                if (name, where) not in self._places:
                    await turns.enter_async_context(
                        self._throttle.turn(whose, throttle.USER, where)
                    )
                await turns.enter_async_context(self._throttle.turn("all", throttle.HASHING, where))
                account = self._users.get(name)
                right = await self._verify(account, password)
                if account is None or account.disabled or not right:
                    self._throttle.failed(where, throttle.ADDRESS)
                    self._throttle.failed(whose, throttle.USER)
                    self._note(known, address, protocol, "refused")
                    return None
        except throttle.TooManyLogins:
            self._note(known, address, protocol, "refused")
            return None
        assert account.password is not None
        self._verified[memo_key] = (account.password, time.monotonic() + self._remembered)
        self._places[name, where] = None
        self._places.move_to_end((name, where))
        for remembered in (self._verified, self._places):
            while len(remembered) > _MOST_REMEMBERED:
                remembered.popitem(last=False)
        self._note(known, address, protocol, "done")
        return account.password

    async def _verify(self, account: Account | None, password: str) -> bool:
        stored = None if account is None else account.password
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._compare, stored, password)

    def _compare(self, stored: str | None, password: str) -> bool:
        """Compare a password with its hash, in a thread; as slow if the user has none."""
        import argon2

        raw = password.encode("utf-8", "surrogateescape")
        if len(raw) > users.MAX_PASSWORD_BYTES:
            raw, stored = b"", None
        if not self._nobody:
            self._nobody = users.hash_password(secrets.token_hex(16))
        try:
            users.hasher().verify(stored or self._nobody, raw)
        except (argon2.exceptions.VerificationError, argon2.exceptions.InvalidHashError):
            return False
        return stored is not None

    async def _refuse(self, where: str, name: str | None, address: str, protocol: str) -> NoReturn:
        with contextlib.suppress(throttle.TooManyLogins):
            async with self._throttle.turn(where, throttle.ADDRESS):
                self._throttle.failed(where, throttle.ADDRESS)
        self._note(name, address, protocol, "refused")
        raise errors.NotLoggedIn(REFUSAL)

    def _memo_key(self, name: str, password: str, where: str) -> bytes:
        """Return the key that a right password is remembered by: a keyed hash."""
        text = "\0".join((name, where, password)).encode("utf-8", "surrogateescape")
        return hashlib.blake2b(text, key=self._secret).digest()

    def _note(self, name: str | None, address: str, protocol: str, outcome: str) -> None:
        self._audit(name, address, protocol, "login", outcome)

    # Where they are.

    async def refresh(self) -> bool:
        """Read the users again if they were changed; return whether they were."""
        stamp = await asyncio.to_thread(self._source.stamp)
        if stamp == self._stamp and not self._unknown:
            return False
        try:
            if stamp is None and not self._unknown:
                raise errors.CorruptData(f"{self._source.place}: it is gone")
            loaded = await asyncio.to_thread(self._source.load)
        except (errors.CorruptData, errors.StoreUnavailable, OSError) as problem:
            if self._warned_of != stamp:
                self._say(f"the users stay as they were: {problem}", level="warning")
                self._warned_of = stamp
            return False
        self._stamp = stamp
        if self._unknown:
            self._unknown = self.required = False
        self._take(loaded)
        self._say(f"the users were read again: there are {len(loaded)}")
        return True

    def _take(self, loaded: Users) -> None:
        # Once there were users, a server is never open to all again before it is started anew.
        self.required = self.required or bool(loaded)
        self._users = loaded
        self._known = {account.name: account.user for account in loaded.values()}
        self._tokens = {token.id: (a, token) for a in loaded.values() for token in a.tokens}

    def accounts(self) -> list[Account]:
        """Return the accounts of all users."""
        return [*self._users.values()]

    def close(self) -> None:
        """Take no more logins."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _be_modest() -> None:
    """Let the loop have the processor first, where the system has priorities for threads."""
    with contextlib.suppress(OSError, AttributeError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)
