"""Sends alerts to a webhook: each is a signed POST of JSON, with retries until it is accepted.

    alerts ── deliver ──> what waits, by filter ──> thread ──> POST ──> 2xx: done
              (never waits)     │                                └────> else: later, behind nothing
                     too much: the oldest goes, counted                but its own filter's

A thread with an event loop of its own does it: whatever the other side does (hangs, drips, answers
slowly, is not found), the server does not notice. Nothing of the URL but its host is ever shown.

    Bloomery-Delivery: 5f0c0a6e-…                    the same each time one is tried
    Bloomery-Signature: t=1700000000,v1=9f86d081…    HMAC-SHA256 of "<t>.<body>"
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import heapq
import hmac
import json
import random
import threading
import time
import uuid
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from bloomery.service.observe.logs import Say

if TYPE_CHECKING:
    import httpx

MOST_WAITING = 1000  # deliveries
SECONDS_EACH = 5.0  # for one try, from looking up the name to the answer's status
SECONDS_ALL = 3600.0  # for all tries of one delivery
FIRST_PAUSE, LAST_PAUSE = 1.0, 60.0
# Answers that say "not now"; of all other 4xx the next try would fare no better.
_LATER = {408, 425, 429}


@dataclass(slots=True)
class _Delivery:
    body: bytes
    id: str
    until: float
    tries: int = 0


@dataclass(order=True, slots=True)
class _Lane:
    """What waits for one filter, in order."""

    due: float
    name: str | None = field(compare=False)
    waiting: deque[_Delivery] = field(default_factory=deque, compare=False)


def signature(secret: bytes, at: int, body: bytes) -> str:
    """The value of Bloomery-Signature."""
    digest = hmac.new(secret, b"%d." % at + body, hashlib.sha256).hexdigest()
    return f"t={at},v1={digest}"


class Webhook:
    """One URL that alerts go to. `deliver` them, `close` it."""

    def __init__(self, url: str, secret: bytes, say: Say, server: str = "") -> None:
        self.host = urlsplit(url).hostname or ""
        self.sent = self.failed = self.dropped = 0
        self._url = url
        self._secret = secret
        self._say = say
        self._server = server
        self._lock = threading.Lock()  # guards what follows
        self._lanes: dict[str | None, _Lane] = {}
        self._due: list[_Lane] = []  # a heap of those lanes, but for the one that is being tried
        self._order: OrderedDict[str, _Lane] = OrderedDict()  # all that waits, the oldest first
        self._away = False  # did the last try fail?
        self._loop: asyncio.AbstractEventLoop | None = None
        self._news = asyncio.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bloomery-webhook", daemon=True)
        self._thread.start()

    def deliver(self, alert: dict[str, Any]) -> None:
        """Take an alert; it goes out soon, and behind others about the same filter."""
        number = str(uuid.uuid4())
        body = json.dumps({"id": number, "server": self._server, **alert}).encode()
        delivery = _Delivery(body, number, time.monotonic() + SECONDS_ALL)
        name = alert.get("filter")
        with self._lock:
            lane = self._lanes.get(name)
            if lane is None:
                lane = self._lanes[name] = _Lane(time.monotonic(), name)
                heapq.heappush(self._due, lane)
            lane.waiting.append(delivery)
            self._order[number] = lane
            if len(self._order) > MOST_WAITING:
                # The oldest of all is the oldest of its filter.
                self._order.popitem(last=False)[1].waiting.popleft()
                self.dropped += 1
        self._wake()

    def close(self, seconds: float = 1.0) -> None:
        """End it, after a last moment for what waits."""
        self._closing.set()
        self._wake()
        self._thread.join(seconds)

    @property
    def waiting(self) -> int:
        """How many deliveries wait."""
        return len(self._order)

    def _wake(self) -> None:
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # it has just ended
                loop.call_soon_threadsafe(self._news.set)

    # ---- the thread

    def _run(self) -> None:
        while True:
            try:
                asyncio.run(self._work())
            except Exception as problem:  # noqa: BLE001  # a proxy that cannot be one, say
                self._tell(type(problem).__name__)
            if self._closing.wait(LAST_PAUSE):
                return

    async def _work(self) -> None:
        self._loop, self._news = asyncio.get_running_loop(), asyncio.Event()
        # A proxy of the environment is used; a redirect is not followed, it would take the
        # signature elsewhere.
        import httpx  # 0.1 s, which a server without a webhook need not wait for

        async with httpx.AsyncClient(timeout=SECONDS_EACH, follow_redirects=False) as client:
            while True:
                lane, pause = self._next()
                if lane is not None:
                    await self._try(client, lane)
                elif self._closing.is_set():
                    return
                else:
                    with contextlib.suppress(asyncio.TimeoutError):
                        await asyncio.wait_for(self._news.wait(), pause)
                    self._news.clear()

    def _next(self) -> tuple[_Lane | None, float | None]:
        """The lane that is due, or else seconds until the next one is."""
        with self._lock:
            while self._due and not self._due[0].waiting:  # all of it was dropped
                del self._lanes[heapq.heappop(self._due).name]
            if not self._due:
                return None, None
            pause = self._due[0].due - time.monotonic()
            return (heapq.heappop(self._due), None) if pause <= 0 else (None, pause)

    async def _try(self, client: httpx.AsyncClient, lane: _Lane) -> None:
        with self._lock:
            delivery = lane.waiting[0] if lane.waiting else None
        problem, again = None, False
        if delivery is not None:
            delivery.tries += 1
            problem, again = await self._post(client, delivery)
        with self._lock:
            # While it was tried it may have been dropped to make room.
            still = delivery is not None and bool(lane.waiting) and lane.waiting[0] is delivery
            again = again and still and delivery is not None and time.monotonic() < delivery.until
            if still and not again:
                del self._order[lane.waiting.popleft().id]
                self.sent += problem is None
                self.failed += problem is not None
            if again and delivery is not None:
                pause = min(LAST_PAUSE, FIRST_PAUSE * 2.0 ** min(delivery.tries - 1, 30))
                lane.due = time.monotonic() + pause * random.uniform(0.5, 1)
            if lane.waiting:
                heapq.heappush(self._due, lane)
            else:
                del self._lanes[lane.name]
        self._tell(problem)

    def _tell(self, problem: str | None) -> None:
        """Log when deliveries begin to fail, and when they succeed again."""
        if (problem is not None) != self._away:
            self._away = problem is not None
            if problem is None:
                self._say(f"the webhook at {self.host} takes alerts again", level="info")
            else:
                self._say(
                    f"the webhook at {self.host} did not take an alert: {problem}", level="warning"
                )

    async def _post(
        self, client: httpx.AsyncClient, delivery: _Delivery
    ) -> tuple[str | None, bool]:
        """Try once; what is wrong, if anything, and whether to try again."""
        headers = {
            "Content-Type": "application/json",
            "Bloomery-Delivery": delivery.id,
            "Bloomery-Signature": signature(self._secret, int(time.time()), delivery.body),
            "User-Agent": "bloomery",
        }
        try:
            status = await asyncio.wait_for(
                self._status(client, delivery.body, headers), SECONDS_EACH
            )
        except asyncio.TimeoutError:
            return f"no answer within {SECONDS_EACH:g} s", True
        except Exception as problem:  # noqa: BLE001  # whatever they answer, the next alert goes out
            # Only the type: the text of some has the URL in it.
            return type(problem).__name__, True
        if 200 <= status < 300:
            return None, False
        return f"HTTP {status}", status >= 500 or status in _LATER or status < 400

    async def _status(self, client: httpx.AsyncClient, body: bytes, headers: dict[str, str]) -> int:
        """Return the status of the response, of which no more is read."""
        async with client.stream("POST", self._url, content=body, headers=headers) as answer:
            return answer.status_code
