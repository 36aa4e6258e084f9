"""Write the synchronous modules out of the asyncio ones: `python scripts/unasync.py [--check]`.

Where a class exists twice, once for asyncio and once for threads, people write the asyncio one,
and this script writes the other: it replaces words (`await`, `async with`, `AsyncClient`, …),
sorts the imports and formats. `--check` writes nothing, and fails when a committed file is not
what would be written.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

TREE = Path(__file__).resolve().parent.parent
PACKAGE = Path("python/bloomery")

# Whole words, in every module: what stands left becomes what stands right.
WORDS = {
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "aclose": "close",
    "aiter": "iter",
    "aiter_raw": "iter_raw",
    "anext": "next",
    "arun": "run",
    "aread": "read",
    "asynccontextmanager": "contextmanager",
    "drive_async": "drive",
    "StopAsyncIteration": "StopIteration",
}


@dataclass(frozen=True)
class Twin:
    """A module for asyncio, the one to write out of it, and the words that only they have."""

    source: str  # below python/bloomery
    target: str
    # Whole words or longer passages (a docstring of several lines too), replaced in this order and
    # before all others. One that does not occur is an error: it would be a rule that does nothing.
    words: Sequence[tuple[str, str]] = ()


CLIENT = [
    Twin(
        "client/aio.py",
        "client/sync.py",
        [
            ("The client for asyncio", "The client for threads"),
            (", for asyncio.", "."),
            ("many tasks", "many threads"),
            ('await client["seen"].contains("alice")', '"alice" in client["seen"]'),
            ("def has", "def __contains__"),
            ("await files.in_thread(files.loaded, path)", "files.loaded(path)"),
            ("aiotransport", "transport"),
            (
                "class AsyncRemoteFilter(OtherNames):",
                "class RemoteFilter(RemoteFigures, OtherNames):",
            ),
            ("`contains` says", "`key in filter` says"),
            (
                "from bloomery.errors",
                "from bloomery.client.figures import RemoteFigures\nfrom bloomery.errors",
            ),
        ],
    ),
    Twin(
        "client/aiotransport.py",
        "client/transport.py",
        [
            ("requests on asyncio", "requests"),
            ("files.opened_in_thread", "files.opened"),
            ("files.read_in_thread(request.body)", "request.body"),
        ],
    ),
]

GUARD = [
    Twin(
        "guard/aio.py",
        "guard/guard.py",
        [
            ("answers for asyncio", "answers for threads"),
            (
                "async with AsyncGuard(filter, source, cache=LocalCache(10_000), ttl=60) as guard:",
                "guard = Guard(filter, source, cache=LocalCache(10_000), ttl=60)",
            ),
            ('    (await guard.get("alice")).value', 'guard.get("alice").value'),
            (
                " Source, cache and queue may\n    have coroutines; what has not is called in a "
                "thread. With a queue, use it by `async with`: a\n    task then drains the queue.",
                " Any thread may use it; with a\n    queue, one of its own drains it.",
            ),
            ("cache: Any = None", "cache: Cache | None = None"),
            ("queue: Any = None", "queue: Queue | None = None"),
            ("Awaitable[None] | None]", "None]"),
            (
                "import GuardOptions\n",
                "import GuardOptions\n    from bloomery.guard.protocols import Cache, Queue\n",
            ),
            # A thread may wait where the guard is made; a constructor on a loop cannot.
            (
                "        self._drainer = AsyncDrainer(self._core, self.drain)\n",
                "        self._core.check_sync()\n"
                "        self._drainer = Drainer(self._core, self.drain)\n"
                "        self._start()\n",
            ),
            ("        await self._start()\n", ""),
            (
                "        if core.blocks(core.filter):\n"
                "            return (await self.get_many([key]))[0]\n",
                "        # A no costs a filter's `in` and its count, and nothing else.\n",
            ),
        ],
    ),
    Twin(
        "guard/caches/aioredis.py",
        "guard/caches/redis.py",
        [
            ("Cluster, for asyncio.", "Cluster, for threads."),
            (
                "Redis, for asyncio, shared by all who use the same prefix.",
                ("Redis, shared by all who use the same prefix; any thread may use it."),
            ),
            ("`redis.asyncio`", "redis-py"),
            ("for_asyncio=True", "for_asyncio=False"),
        ],
    ),
    Twin(
        "guard/queues/aioredis.py",
        "guard/queues/redis.py",
        [
            ("Redis, for asyncio;", "Redis, for threads;"),
            ("Stream, for asyncio", "Stream, for any thread"),
            ("`redis.asyncio`", "redis-py"),
            ("for_asyncio=True", "for_asyncio=False"),
            # A thread may wait for the check where the queue is made; a constructor on a loop not.
            (
                "self._checked = self._closed = False",
                "self._checked = self._closed = False\n        self._check()",
            ),
        ],
    ),
]

_REDIS_WORDS = [
    (" for asyncio", " for threads"),
    ("redis.filters.aiobase", "redis.filters.base"),
    ('await seen.contains("alice")', '"alice" in seen'),
]

REDIS = [
    Twin(
        "integrations/redis/wire/aiolink.py",
        "integrations/redis/wire/baselink.py",
        [
            ("on an event loop", "in the caller's thread"),
            ("Tasks of one loop may share it.", "Threads may share it."),
            ("AsyncLink", "BaseLink"),
            ("for_asyncio=True", "for_asyncio=False"),
            ("import asyncio", "import time"),
            ("asyncio.sleep", "time.sleep"),
            ("\n            await cluster.initialize()", ""),  # done when it was made
            ("AsyncNodePool(node)", "cluster.get_redis_connection(node).connection_pool"),
        ],
    ),
    Twin(
        "integrations/redis/filters/aiobase.py",
        "integrations/redis/filters/base.py",
        [
            (" for asyncio", " for threads"),
            ("Tasks of one loop", "Threads"),
            ("redis.wire.aiolink", "redis.wire.link"),
            (
                "    def __contains__(self, key: object) -> bool:\n"
                '        """Refused: `in` cannot wait for Redis."""\n'
                '        raise TypeError("`in` cannot wait for Redis: await .contains(key)")\n',
                "    def __contains__(self, key: Key) -> bool:\n"
                '        """False: definitely not there. True: maybe."""\n'
                "        return self._single(key, write=False)\n",
            ),
        ],
    ),
    Twin(
        "integrations/redis/filters/aio.py",
        "integrations/redis/filters/filter.py",
        _REDIS_WORDS,
    ),
    Twin(
        "integrations/redis/filters/aiocounting.py",
        "integrations/redis/filters/counting.py",
        _REDIS_WORDS,
    ),
    Twin(
        "integrations/redis/filters/aiorotating.py",
        "integrations/redis/filters/rotating.py",
        _REDIS_WORDS,
    ),
]

APPS = [
    Twin(
        "apps/caching/aiostores.py",
        "apps/caching/stores.py",
        [
            (", for asyncio: a", ", for threads: a"),
            ("Values in Redis, for asyncio, shared", "Values in Redis, shared"),
            ("`redis.asyncio`", "redis-py"),
            ("redis.asyncio.from_url", "redis.Redis.from_url"),
        ],
    ),
    Twin(
        "apps/caching/aioadmission.py",
        "apps/caching/admission.py",
        [
            (", for asyncio.", "."),
            ("an asyncio filter in Redis", "a filter in Redis"),
            ("Tasks of one loop may share it.", "Any thread may use it."),
            ('page = await cache.get("/index.html", fetch)', 'page = cache.get("/", fetch)'),
            ("caching.aiostores", "caching.stores"),
            ("Callable[[Any], Awaitable[Any]]", "Callable[[Any], Any]"),
            (
                "import AdmissionCounts, filter_key",
                "import AdmissionCounts, MappingInterface, filter_key",
            ),
            (
                "class AsyncAdmissionCache(AdmissionCounts)",
                "class AdmissionCache(AdmissionCounts, MappingInterface)",
            ),
            (
                "            answer = self.filter.add(filter_key(key))\n"
                "            return bool(await answer if isawaitable(answer) else answer)\n",
                "            return bool(self.filter.add(filter_key(key)))\n",
            ),
        ],
    ),
    Twin(
        "apps/caching/aioresponses.py",
        "apps/caching/responses.py",
        [("for asyncio", "for threads"), ("caching.aioadmission", "caching.admission")],
    ),
]

TWINS = [*CLIENT, *GUARD, *REDIS, *APPS]


def synchronous(text: str, twin: Twin) -> str:
    """A module's text with every word of asyncio replaced; neither sorted nor formatted."""
    for word, other in twin.words:
        text, times = re.subn(_whole(word), other.replace("\\", r"\\"), text)
        if not times:
            raise SystemExit(f"{twin.source} does not have {word!r}, which is to be replaced")
    text = re.sub(r"\basync (?=def\b|with\b|for\b)", "", text)
    text = re.sub(r"\bawait\s+", "", text)
    text = re.sub(r"(?<![A-Za-z0-9])(_*)Async(?=[A-Z])", r"\1", text)
    for word, other in WORDS.items():
        text = re.sub(_whole(word), other, text)
    return f"# Generated by scripts/unasync.py from {Path(twin.source).name}: do not edit.\n" + text


def _whole(word: str) -> str:
    """A pattern of the word that does not find it inside a longer one."""
    before = r"(?<!\w)" if re.match(r"\w", word) else ""
    after = r"(?!\w)" if re.search(r"\w\Z", word) else ""
    return before + re.escape(word) + after


def written(twin: Twin, package: Path) -> str:
    """What the synchronous module has to be: imports sorted, unused ones left out, formatted."""
    text = synchronous((package / twin.source).read_text("utf-8"), twin)
    place = ["--quiet", "--stdin-filename", str(package / twin.target), "-"]
    text = _ruff(["check", "--fix-only", "--unsafe-fixes", "--select=I,F401,UP028", *place], text)
    return _ruff(["format", *place], text)


def _ruff(arguments: list[str], text: str) -> str:
    command = [sys.executable, "-m", "ruff", *arguments]
    done = subprocess.run(command, input=text, capture_output=True, encoding="utf-8", cwd=TREE)
    if done.returncode:
        raise SystemExit(f"ruff {arguments[0]}: {done.stderr.strip()}")
    return done.stdout


def main(
    arguments: Sequence[str],
    twins: Sequence[Twin] = TWINS,
    package: Path = TREE / PACKAGE,
    say: Callable[[str], object] = print,
) -> int:
    """Write every module, or say which ones differ; 1 if any does."""
    check = "--check" in arguments
    differs = 0
    for twin in twins:
        target = package / twin.target
        text = written(twin, package)
        if target.is_file() and target.read_text("utf-8") == text:
            continue
        if check:
            say(f"{twin.target} is not what {twin.source} makes: change that one, `make format`")
            differs = 1
        else:
            target.write_text(text, "utf-8")
            say(f"wrote {twin.target}")
    return differs


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
