"""What is asked of the servers, and what is hoped for: the lines of the tables of rates."""

from __future__ import annotations

from dataclasses import dataclass

KEYS = 100
"""Keys of a request of BF.MEXISTS and BF.MADD."""

PEERS = {1: ("PING",), 16: ("SET", "__rand_int__", "xxx"), 100: ("SET", "__rand_int__", "xxx")}
"""What Redis does meanwhile, by the length of the pipeline."""


@dataclass(frozen=True)
class Case:
    """A command with one pipeline; `must` and `aim` are times Redis, or keys a second."""

    server: str  # one of SERVERS
    command: str
    pipeline: int
    must: float | None = None
    aim: float | None = None
    keys: int = 1  # of a request

    @property
    def adds(self) -> bool:
        return "ADD" in self.command

    @property
    def door(self) -> str:
        return self.command[:2].lower()

    @property
    def what(self) -> str:
        many = f" of {self.keys} keys" if self.keys > 1 else ""
        return f"{self.command}{many}"


SERVERS: dict[str, tuple[str, ...]] = {
    "bloomery": (),
    "redisbloom layout": ("--bf-layout", "redisbloom"),
    "fsync always": ("--fsync", "always"),
}

CASES = [
    Case("bloomery", "BF.EXISTS", 1, 1.1, 1.4),
    Case("bloomery", "BF.ADD", 1, 1.0, 1.2),
    Case("redisbloom layout", "BF.EXISTS", 1),
    Case("redisbloom layout", "BF.ADD", 1),
    Case("bloomery", "CF.EXISTS", 1),
    Case("bloomery", "CF.ADD", 1),
    Case("fsync always", "BF.ADD", 1),
    Case("bloomery", "BF.EXISTS", 16, 1.5, 2.0),
    Case("bloomery", "BF.ADD", 16, 1.0, 1.5),
    Case("redisbloom layout", "BF.EXISTS", 16),
    Case("redisbloom layout", "BF.ADD", 16),
    Case("bloomery", "CF.EXISTS", 16),
    Case("bloomery", "CF.ADD", 16),
    Case("fsync always", "BF.ADD", 16),
    Case("bloomery", "BF.MEXISTS", 16, 4e6, 8e6, keys=KEYS),
    Case("bloomery", "BF.MADD", 16, 3e6, 5e6, keys=KEYS),
    Case("bloomery", "BF.EXISTS", 100, 2.5, 4.0),
    Case("bloomery", "BF.ADD", 100, 1.5, 2.5),
    Case("redisbloom layout", "BF.EXISTS", 100),
    Case("redisbloom layout", "BF.ADD", 100),
    Case("bloomery", "CF.EXISTS", 100),
    Case("bloomery", "CF.ADD", 100),
    Case("fsync always", "BF.ADD", 100),
]
