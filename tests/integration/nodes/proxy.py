"""A wire that a test holds in its hand: between a node and Redis, to be cut, dulled or slowed."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import Any


class Proxy:
    """TCP from a free port to a place. Threads carry the bytes."""

    def __init__(self, place: tuple[str, int]) -> None:
        self.place = place
        self.carried = 0  # bytes from the place
        self.bytes_a_second: float | None = None  # from the place
        self.delay = 0.0  # seconds that bytes are under way, in each direction
        self._dull = threading.Event()
        self._cut = False
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._ended = False
        self.port: int = self._listener.getsockname()[1]
        self._begin(self._accept)

    @property
    def url(self) -> str:
        """Where a node finds Redis by it."""
        return f"redis://127.0.0.1:{self.port}/0"

    # ---- what can happen

    def cut(self) -> None:
        """Reset every connection, and take none until `mend`."""
        self._cut = True
        self._reset()

    def dull(self) -> None:
        """Carry nothing more, and tell nobody: as a network that loses everything."""
        self._dull.set()

    def mend(self) -> None:
        """Be as at first. What was lost stays lost: connections of before are reset."""
        if self._dull.is_set():
            self._reset()
        self._dull.clear()
        self._cut = False

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._reset()
        self._dull.clear()
        for thread in self._threads:
            thread.join()

    # ---- how

    def _begin(self, work: Any, *args: Any) -> None:
        thread = threading.Thread(target=work, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._ended:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                if self._cut:
                    raise OSError
                far = socket.create_connection(self.place, timeout=5)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            pair = (near, far)
            with self._lock:
                self._pairs.add(pair)
            self._begin(self._carry, near, far, pair, False)
            self._begin(self._carry, far, near, pair, True)

    def _carry(
        self, one: socket.socket, other: socket.socket, pair: tuple[Any, Any], back: bool
    ) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(65_536 if self.bytes_a_second is None else 4096):
                while self._dull.is_set() and pair in self._pairs:
                    time.sleep(0.01)
                if pair not in self._pairs:
                    break
                if self.delay:
                    time.sleep(self.delay)
                if back:
                    self.carried += len(data)
                    if self.bytes_a_second:
                        time.sleep(len(data) / self.bytes_a_second)
                other.sendall(data)
        self._drop(pair)

    def _drop(self, pair: tuple[socket.socket, socket.socket]) -> None:
        with self._lock:
            if pair not in self._pairs:
                return
            self._pairs.discard(pair)
        for one in pair:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _reset(self) -> None:
        with self._lock:
            pairs = list(self._pairs)
        for pair in pairs:
            self._drop(pair)
