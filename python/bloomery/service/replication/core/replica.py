"""What the log is applied to: the filters of a server, or a model of them in a simulation."""

from __future__ import annotations

from typing import Any, Protocol


class Replica(Protocol):
    """The filters, as far as the log is concerned. The same payloads in the same order make the
    same filters, with the same replies."""

    def apply(self, payload: bytes, at_ms: int) -> Any:
        """Do operations, at Redis's time; return the reply to who asked for them."""

    def unchanged(self, payload: bytes) -> Any | None:
        """Return the reply to operations that would change nothing; None: they would."""

    def additions(self, payload: bytes) -> bytes | None:
        """Return those of the operations that can be done later than others and take nothing from
        them: what adds keys or makes filters; None if there are none."""

    def pass_time(self, now_ms: int) -> None:
        """Expire and rotate what is due by this time: TTLs, windows."""
