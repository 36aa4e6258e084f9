"""Whether the Redis of a node answers and takes writes, and the alert while it does not."""

from __future__ import annotations

import time
from enum import Enum

from bloomery.service.clock import ALARM_SECONDS
from bloomery.service.policy.alerts import Alerts
from bloomery.service.replication.core.messages import StoreChecked


class Outage(Enum):
    """What is wrong with Redis, by the kind of the alert that says so."""

    UNREACHABLE = "store-unavailable"
    READ_ONLY = "store-refused"  # it answers, and takes no writes: it is full, say


class StoreHealth:
    """How the Redis of a node was when it was last asked."""

    def __init__(self, alerts: Alerts) -> None:
        self.outage: Outage | None = None
        self._alerts = alerts
        self._since = 0.0  # when the outage began (monotonic)
        self._reason = ""
        self._aside: str | None = None  # the last entry that was set aside; None: not known yet

    def failed(self, reason: str, outage: Outage = Outage.UNREACHABLE) -> None:
        """Note that Redis did not do what it was asked."""
        self._reason = reason
        if self.outage is None:
            self._since = time.monotonic()
        if outage is not self.outage:
            self._end_alert("it is otherwise now")
            self.outage = outage
            self._alerts.begin(outage.value, f"{reason}: nothing can be written")

    def answered(self, *, wrote: bool) -> None:
        """Note that Redis did what it was asked. One that takes no writes goes on reading."""
        if self.outage is not None and (wrote or self.outage is not Outage.READ_ONLY):
            self._end_alert("Redis takes writes again")
            self.outage = None

    def checked(self, found: StoreChecked, ahead: float) -> None:
        """Note whether Redis has all that a node needs to start, and keeps it; and by how many
        seconds its clock is ahead of this machine's."""
        if abs(ahead) > ALARM_SECONDS:
            where = "ahead of" if ahead > 0 else "behind"
            text = f"Redis's clock is {abs(ahead):.0f} s {where} this machine's: set both right"
            self._alerts.begin("store-clock", text, seconds=round(ahead))
        else:
            self._alerts.end("store-clock", "Redis's clock and this machine's agree")
        if found.problem:
            self._alerts.begin("store-incomplete", f"no node can start: {found.problem}")
        else:
            self._alerts.end("store-incomplete", "nodes can start again")
        if found.policy != "noeviction":
            self._alerts.begin(
                "store-evicts",
                f"Redis may delete the log and snapshots: its maxmemory-policy is {found.policy}; "
                "set it to noeviction",
            )
        else:
            self._alerts.end("store-evicts", "its maxmemory-policy is noeviction")
        if found.aside and found.aside != self._aside:
            self._alerts.event(
                "store-foreign",
                "an entry of the log that no node wrote was set aside: find the program that "
                "writes there (the stream `foreign` under the store-prefix has the last entries)",
            )
        self._aside = found.aside

    def _end_alert(self, why: str) -> None:
        if self.outage is not None:
            self._alerts.end(self.outage.value, why)

    @property
    def outage_seconds(self) -> float:
        """For how long nothing can be written; 0 if it can."""
        return 0.0 if self.outage is None else time.monotonic() - self._since

    @property
    def refusal(self) -> str:
        """Why nothing can be written; "" if it can."""
        if self.outage is Outage.UNREACHABLE:
            return f"Redis does not answer: {self._reason}"
        return "" if self.outage is None else self._reason
