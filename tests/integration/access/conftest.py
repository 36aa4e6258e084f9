"""A server with users of every role, some for all filters and some for a few."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from bloomery.service.access.users import ROLES, Account, changing, hash_password
from integration.conftest import open_folder
from integration.servers import BloomeryServer

MINE = "mine:*"
PASSWORD = "correct horse battery staple"


@dataclass(frozen=True)
class Someone:
    """A user of the tests; None for one who does not log in."""

    role: str | None
    everything: bool
    token: str | None

    @property
    def name(self) -> str:
        """What it is called."""
        which = "all" if self.everything else "some"
        return "nobody" if self.role is None else f"{self.role}-{which}"


def add_users(data: Path) -> list[Someone]:
    """Add one of each role for all filters and one for MINE; all have the same password."""
    data.mkdir(exist_ok=True)
    hashed = hash_password(PASSWORD)
    made = [Someone(None, False, None)]
    with changing(data) as users:
        for word, role in ROLES.items():
            for everything in (True, False):
                someone = Someone(word, everything, None)
                patterns = ("*",) if everything else (MINE,)
                users.add(Account(someone.name, role, patterns, hashed))
                token = users.add_token(someone.name, "tests")
                made.append(Someone(word, everything, token))
    return made


@dataclass(frozen=True)
class Guarded:
    """A server and its users."""

    server: BloomeryServer
    users: list[Someone]

    def token(self, name: str) -> str:
        """The token of a user."""
        (found,) = [one.token for one in self.users if one.name == name]
        assert found is not None
        return found


@pytest.fixture(scope="session")
def guarded() -> Iterator[Guarded]:
    """A `bloomery serve` that demands a login; tests share it, and end nothing."""
    with open_folder() as folder:
        users = add_users(folder / "data")
        server = BloomeryServer(folder)
        server.start()
        try:
            yield Guarded(server, users)
        finally:
            server.stop()
