"""What genuine RedisBloom answered, on record: tests/golden/redisbloom/genuine."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from functools import cached_property
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[2] / "golden" / "redisbloom" / "genuine"
NAME = "golden"
_ASKED_ABSENT = 20_000


class Record:
    """One filter of genuine RedisBloom: how it was made, its dump, and its answers."""

    def __init__(self, path: Path) -> None:
        self.facts: dict[str, Any] = json.loads(path.read_text("utf-8"))
        self.prefix = path.name[:2].upper()  # BF or CF

    @cached_property
    def keys(self) -> list[bytes]:
        """The keys that were added."""
        return keys_of(self.facts["keys"])

    @property
    def chunks(self) -> list[tuple[int, bytes]]:
        """What SCANDUMP gave: iterators and bytes."""
        return [(iterator, base64.b64decode(text)) for iterator, text in self.facts["chunks"]]

    @property
    def present(self) -> str:
        """The answers for the keys that were added."""
        found: str = self.facts["present"]
        return "1" * len(self.keys) if found == "all 1" else found


def keys_of(rule: str) -> list[bytes]:
    """The keys that a record names by a rule: b'key:%d' % i for i in range(300)."""
    prefix, numbers = re.search(r"b'(\w+):", rule), re.search(r"range\(([^)]*)\)", rule)
    assert prefix is not None
    assert numbers is not None
    span = range(*map(int, numbers[1].split(",")))
    return [b"%b:%d" % (prefix[1].encode(), number) for number in span]


class Beside:
    """A server, asked as the genuine one was."""

    def __init__(self, client: Any, record: Record) -> None:
        self.ask = client.execute_command
        self.record, self.prefix = record, record.prefix

    def dump(self) -> list[tuple[int, bytes]]:
        """All chunks of a dump."""
        chunks: list[tuple[int, bytes]] = []
        iterator = 0
        while True:
            iterator, data = self.ask(f"{self.prefix}.SCANDUMP", NAME, iterator)
            if not iterator:
                return chunks
            chunks.append((iterator, data))

    def dump_sum(self) -> str:
        """The dump as a record has it."""
        digest = hashlib.sha256()
        for iterator, data in self.dump():
            digest.update(b"%d:%b" % (iterator, data))
        return digest.hexdigest()

    def add(self, keys: list[bytes]) -> str:
        """Add keys, 500 at once; a character a reply."""
        words = ("BF.MADD", NAME) if self.prefix == "BF" else ("CF.INSERT", NAME, "ITEMS")
        replies = []
        for start in range(0, len(keys), 500):
            replies += self.ask(*words, *keys[start : start + 500])
        return shown(replies)

    def contains(self, keys: list[bytes]) -> str:
        """Ask for keys; a character a reply."""
        replies = []
        for start in range(0, len(keys), 2000):
            replies += self.ask(f"{self.prefix}.MEXISTS", NAME, *keys[start : start + 2000])
        return shown(replies)

    def answers(self) -> dict[str, Any]:
        """What is asked of every filter: keys that are there, and keys that are not."""
        absent = self.contains([b"absent:%d" % number for number in range(_ASKED_ABSENT)])
        return {
            "absent": hashlib.sha256(absent.encode()).hexdigest(),
            "present": self.contains(self.record.keys) if self.record.keys else "",
        }

    def state(self) -> dict[str, Any]:
        """How a filter is built: INFO, DEBUG and the dump."""
        return {
            "info": plain(self.ask(f"{self.prefix}.INFO", NAME)),
            "debug": plain(self.ask(f"{self.prefix}.DEBUG", NAME)),
            "dump": self.dump_sum(),
        }

    def load(self) -> None:
        """Load the record's dump."""
        for iterator, data in self.record.chunks:
            assert self.ask(f"{self.prefix}.LOADCHUNK", NAME, iterator, data) == b"OK"

    def more(self) -> dict[str, Any]:
        """Add the keys that a record adds afterwards."""
        rule: str = self.record.facts["then"]["keys"]
        added = self.add(keys_of(rule))
        info = plain(self.ask(f"{self.prefix}.INFO", NAME))
        return {"keys": rule, "added": added, "info": info, "dump_sha256": self.dump_sum()}


def shown(replies: list[Any]) -> str:
    """A character a reply: e is an error, - is -1."""
    return "".join(
        "e" if isinstance(one, Exception) else "-" if one == -1 else str(int(one))
        for one in replies
    )


def plain(reply: Any) -> Any:
    """A reply as JSON has it."""
    if isinstance(reply, bytes):
        return reply.decode("latin-1")
    return [plain(one) for one in reply] if isinstance(reply, list) else reply
