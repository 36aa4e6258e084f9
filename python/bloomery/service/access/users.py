"""The users of a server: `users.json` in its data folder, which `bloomery user` changes and the
server reads again within a second.

A password is kept as its argon2id hash, a token as the SHA-256 of its secret, which has 256 random
bits: from the file nobody can log in. The file is the owner's alone and replaced whole; those who
change it wait for each other.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import secrets
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bloomery import errors
from bloomery.service.access.permissions import Role, User
from bloomery.service.domain.operations import name_of
from bloomery.storage import files

ROLES = {role.name.lower(): role for role in Role if role is not Role.NOBODY}
MIN_PASSWORD_BYTES = 8
MAX_PASSWORD_BYTES = 1024
_VERSION = 1
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}")
_TOKEN = re.compile(r"bloomery_([0-9a-f]{16})_([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class Token:
    """A way to log in without a password, of which there may be several."""

    id: str
    label: str
    created: float
    expires: float | None
    digest: str  # SHA-256 of its secret, in hexadecimal

    def expired(self, now: float) -> bool:
        """Whether the token has expired."""
        return self.expires is not None and now >= self.expires


@dataclass(frozen=True, slots=True)
class Account:
    """A user as `users.json` has one."""

    name: str
    role: Role
    patterns: tuple[str, ...] = ("*",)
    password: str | None = None  # its argon2id hash
    tokens: tuple[Token, ...] = ()
    disabled: bool = False

    @property
    def user(self) -> User:
        """The user's name, role and patterns, which permissions are decided by."""
        return User(self.name, self.role, tuple(name_of(pattern) for pattern in self.patterns))


class Users(dict[str, Account]):
    """All users of a server, by name."""

    def __init__(self) -> None:
        super().__init__()
        # Of users that nodes share: when each name was last changed, removed ones too (Unix ms).
        self.changed: dict[str, int] = {}

    def find(self, name: str) -> Account:
        """Return the user of a name; InvalidParameter if there is none."""
        if name not in self:
            known = ", ".join(sorted(self)[:20]) or "none"
            raise errors.InvalidParameter(f"there is no user named {name[:64]!r}; there is {known}")
        return self[name]

    def add(self, account: Account) -> None:
        """Add a new user."""
        if not _NAME.fullmatch(account.name):
            raise errors.InvalidParameter(
                f"the name is {account.name[:80]!r}, must be up to 64 letters, digits and _ . @ -"
            )
        if account.name in self:
            raise errors.InvalidParameter(
                f"there is a user named {account.name!r} already: `bloomery user allow` changes "
                "what they may do, `bloomery user password` their password"
            )
        self[account.name] = account

    def change(self, name: str, **fields: Any) -> Account:
        """Change some fields of a user."""
        self[name] = replace(self.find(name), **fields)
        return self[name]

    def add_token(self, name: str, label: str = "", expires: float | None = None) -> str:
        """Give a user a new token; return its text, which is kept nowhere."""
        number, secret = secrets.token_hex(8), secrets.token_hex(32)
        token = Token(number, label, time.time(), expires, digest_of(secret))
        self.change(name, tokens=(*self.find(name).tokens, token))
        return f"bloomery_{number}_{secret}"

    def revoke(self, token_id: str) -> Account:
        """Remove a token; return whose it was."""
        for account in self.values():
            kept = tuple(token for token in account.tokens if token.id != token_id)
            if kept != account.tokens:
                return self.change(account.name, tokens=kept)
        raise errors.InvalidParameter(
            f"there is no token {token_id[:64]!r}: `bloomery user list` shows them"
        )

    def has_admin(self) -> bool:
        """Whether there is an admin who may use all filters."""
        return any(
            account.role is Role.ADMIN and not account.disabled and account.user.everything
            for account in self.values()
        )


def users_file(data: str | os.PathLike[str]) -> Path:
    """Return the path of `users.json`."""
    return Path(data, "users.json")


def _lock_file(data: str | os.PathLike[str]) -> Path:
    """Return the path of the lock of those who change users; not empty once there were any."""
    return Path(data, "users.lock")


def digest_of(secret: str) -> str:
    """Return the hash of a token's secret, as it is stored."""
    return hashlib.sha256(secret.encode()).hexdigest()


def split_token(text: str) -> tuple[str, str] | None:
    """Return the id and the secret of a token; None if the text is no token."""
    match = _TOKEN.fullmatch(text)
    return None if match is None else (match[1], match[2])


def hasher() -> Any:
    """What hashes and verifies passwords: argon2id with 19 MiB and two passes (OWASP's choice for
    servers), so that two logins at once take 38 MiB and about 25 ms."""
    from argon2 import PasswordHasher

    return PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)


def hash_password(password: str) -> str:
    """Return the hash of a password, as it is stored."""
    nbytes = len(password.encode("utf-8", "surrogateescape"))
    if not MIN_PASSWORD_BYTES <= nbytes <= MAX_PASSWORD_BYTES:
        raise errors.InvalidParameter(
            f"a password of {nbytes} bytes, must have {MIN_PASSWORD_BYTES} to "
            f"{MAX_PASSWORD_BYTES:,}"
        )
    hashed: str = hasher().hash(password.encode("utf-8", "surrogateescape"))
    return hashed


def load(data: str | os.PathLike[str]) -> Users:
    """Read the users; CorruptData if the file is damaged, or gone although there were users: a
    server is never open to all because somebody removed it."""
    path = users_file(data)
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        with contextlib.suppress(FileNotFoundError):
            if _lock_file(data).lstat().st_size:
                raise errors.CorruptData(
                    f"{path}: gone, and there were users: restore it, or remove users.lock too and "
                    "add the users again with `bloomery user add`"
                ) from None
        return Users()
    return parse(raw, str(path))


def parse(raw: bytes, path: str) -> Users:
    """Read the bytes of `users.json`, which are from `path`; CorruptData if they are damaged."""
    try:
        content = json.loads(raw)
        if content["version"] != _VERSION:
            raise errors.UnsupportedVersion(
                f"{path}: version {content['version']!r:.20}, this server knows {_VERSION}"
            )
        users = Users()
        for fields in content["users"]:
            users.add(_account(fields))
        users.changed = {str(name): int(at) for name, at in content.get("changed", {}).items()}
    except errors.UnsupportedVersion:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
        # Not its text: it may show some of the file.
        raise errors.CorruptData(
            f"{path}: not a whole file of users ({type(problem).__name__}): restore it, or move it "
            "and users.lock away and add the users again with `bloomery user add`"
        ) from None
    return users


def _account(fields: dict[str, Any]) -> Account:
    account = Account(
        name=fields["name"],
        role=ROLES[fields["role"]],
        patterns=tuple(fields["patterns"]),
        password=fields["password"],
        tokens=tuple(Token(**token) for token in fields["tokens"]),
        disabled=fields["disabled"],
    )
    tokens: list[dict[str, Any]] = fields["tokens"]
    texts = [*fields["patterns"], *(token[key] for token in tokens for key in ("id", "digest"))]
    if (
        not all(isinstance(text, str) for text in texts)
        or not isinstance(fields["password"], (str, type(None)))
        or not isinstance(fields["disabled"], bool)
        or not all(isinstance(token["expires"], (int, float, type(None))) for token in tokens)
    ):
        raise TypeError
    return account


@contextlib.contextmanager
def changing(data: str | os.PathLike[str]) -> Iterator[Users]:
    """Read the users and write what was changed, unless it raises; others wait meanwhile."""
    with open(_lock_file(data), "ab", opener=private) as lock:
        own(lock.fileno(), data)
        fcntl.flock(lock, fcntl.LOCK_EX)
        users = load(data)
        before = dict(users)
        yield users
        if users == before:
            return
        with files.replacing(users_file(data), mode=0o600) as file:
            own(file.fileno(), data)
            file.write(encode(users))
        if os.fstat(lock.fileno()).st_size == 0:
            lock.write(b"there are users\n")


def encode(users: Users) -> bytes:
    """Return the users as `users.json` has them."""
    rows = [asdict(account) | {"role": account.role.name.lower()} for account in users.values()]
    changed = {"changed": users.changed} if users.changed else {}
    return json.dumps({"version": _VERSION, "users": rows, **changed}, indent=1).encode() + b"\n"


class UserFile:
    """The users of a server alone, in its data folder."""

    def __init__(self, data: str | os.PathLike[str]) -> None:
        self._data = data
        self.place = str(users_file(data))

    def load(self) -> Users:
        """Read the users, as the function `load` does."""
        return load(self._data)

    def changing(self) -> contextlib.AbstractContextManager[Users]:
        """Read the users and write what was changed, as the function `changing` does."""
        return changing(self._data)

    def stamp(self) -> object:
        """What is another once the users were changed; None if there are none."""
        try:
            status = users_file(self._data).stat()
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns, status.st_size


def private(path: str, flags: int) -> int:
    """Open a file (as an `opener`) that only its owner may read; follow no symbolic link."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


@contextlib.contextmanager
def as_owner(data: str | os.PathLike[str]) -> Iterator[None]:
    """As root, work as the owner of the folder: by a link in it that user could else make root
    write to any file."""
    folder = os.stat(data)
    if os.geteuid() != 0 or folder.st_uid == 0:
        yield
        return
    group, groups = os.getegid(), os.getgroups()
    os.setgroups([])
    os.setegid(folder.st_gid)
    os.seteuid(folder.st_uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(group)
        os.setgroups(groups)


def own(file: int, data: str | os.PathLike[str]) -> None:
    """As root, give a file to the owner of the folder: the server has to read it."""
    if os.geteuid() == 0:
        folder = os.stat(data)
        os.fchown(file, folder.st_uid, folder.st_gid)
