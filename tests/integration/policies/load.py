"""A load on one filter that knows what it was told: every key that was acknowledged, when, and how
often a key that nobody added is a *maybe*."""

from __future__ import annotations

import math
import secrets
import time
from dataclasses import dataclass, field
from typing import Any

from integration.resp.wire import Connection, Refused
from integration.servers import BloomeryServer

BATCH = 500
CAPACITY = 10_000
RATE = 0.01


@dataclass
class Load:
    """Keys to one filter of a server, and questions about them."""

    server: BloomeryServer
    connection: Connection
    name: str
    keys: list[str] = field(default_factory=list)  # acknowledged as in
    sent: list[float] = field(default_factory=list)  # when each was sent
    refused: list[str] = field(default_factory=list)  # the errors
    probes: int = 0
    hits: int = 0

    def beside(self, name: str, *words: str) -> Load:
        """A load on another new filter, by the same connection."""
        self.connection.ask("BF.RESERVE", name, RATE, CAPACITY, *words)
        return Load(self.server, self.connection, name)

    def kill(self) -> None:
        """`kill -9`, and go on with another server on the same data."""
        self.connection.close()
        self.server.kill()
        self.server.start()
        self.connection = Connection(self.server.resp_port)

    def add(self, count: int = BATCH) -> None:
        """Add new keys in one command."""
        keys = [secrets.token_hex(8) for _ in range(count)]
        at = time.monotonic()
        replies = self.connection.ask("BF.MADD", self.name, *keys)
        for key, reply in zip(keys, replies, strict=False):
            if isinstance(reply, Refused):
                self.refused.append(str(reply))
            else:
                self.keys.append(key)
                self.sent.append(at)

    def probe(self, count: int = 2 * BATCH) -> int:
        """Ask for keys that nobody added; how many were a maybe."""
        asked = [secrets.token_hex(8) for _ in range(count)]
        hits: int = sum(self.connection.ask("BF.MEXISTS", self.name, *asked))
        self.probes += count
        self.hits += hits
        return hits

    def spike(self, keys: int, probes: int = 2 * BATCH) -> None:
        """Add so many keys as fast as it goes, and measure throughout: the rate of any twenty
        batches in a row is within what chance allows of the one asked for."""
        window: list[int] = []
        for _ in range(keys // BATCH):
            self.add()
            window = [*window[-19:], self.probe(probes)]
            self.within(sum(window), len(window) * probes)

    def within(self, hits: int, probes: int) -> None:
        """Fail if so many hits would come by chance less than once in a million times."""
        expected = RATE * probes
        assert hits <= expected + 5 * math.sqrt(expected) + 5, (hits, expected)

    def denied(self, keys: list[str]) -> list[str]:
        """Those that are definitely not there, as the server says."""
        found: list[str] = []
        for at in range(0, len(keys), 10_000):
            part = keys[at : at + 10_000]
            replies: list[Any] = self.connection.ask("BF.MEXISTS", self.name, *part)
            found += [key for key, reply in zip(part, replies, strict=True) if not reply]
        return found
