"""Enforces the policies of filters: sees which are full, nearly full or full soon, and acts on it.

    a batch of writes ──marks─> end_batch ─┐
    the sampler ─────────────> sampled ───┼──> look: rotate, raise an alert, or end one
    each second ─────────────> pass_second┘

`end_batch` is called when a batch is applied and no client has been answered: when a client gets
the answer to a write that passed a threshold, the alert has been raised. Refused keys are not seen
here: the shelf refuses them (`limit`).
"""

from __future__ import annotations

from bloomery.service.domain import operations
from bloomery.service.domain.entry import Entry
from bloomery.service.domain.operations import Op, quoted
from bloomery.service.domain.policy import (
    FilterPolicy,
    capacity_of,
    generation_of,
    part_of,
    policy_of,
)
from bloomery.service.engine import Engine
from bloomery.service.observe.logs import Say
from bloomery.service.policy.alerts import Alerts
from bloomery.service.policy.forecast import in_words
from bloomery.service.sampling.sample import Sample

# An alert about a number of keys is over when there are so much fewer.
_FEWER = 0.95
# One about a forecast, when it is so much longer.
_LONGER = 1.25
# How much surer than 95% one must be: the lower bound, so many times as far from the rate that was
# seen, is five standard errors off. A thousand filters that err exactly as often as they may then
# raise a false alarm in years, at 95% all the time.
_SURER = 2.5
# Filters that can wait are looked at so many a turn, which takes some milliseconds.
_SOME = 500
# What follows when a filter is full.
_THEN = {"reject": ": more are refused", "alert": ": with more it errs more often"}


class PolicyEnforcer:
    """Does what the policies of a running server's filters demand."""

    def __init__(self, engine: Engine, alerts: Alerts, say: Say) -> None:
        self.engine = engine
        self.alerts = alerts
        self._say = say
        self._known: dict[int, tuple[int, FilterPolicy]] = {}  # policies, as of so many changes
        self._waiting: dict[int, float] = {}  # full ones, and when each may rotate
        engine.on_applied.subscribe(self.end_batch)
        engine.on_rotated.subscribe(self._rotated)
        # Some were full when the server went down, or would have raised an alert.
        filters = engine.state.filters.items()
        self._again = {number for number, entry in filters if "on_full" in entry.settings}

    def end_batch(self) -> None:
        """Look at all filters that reached their threshold, or were changed."""
        numbers = self.engine.take_touched()
        if self._again:
            batch = [self._again.pop() for _ in range(min(len(self._again), _SOME))]
            numbers = numbers | set(batch)
        for number in numbers:
            entry = self.engine.state.filters.get(number)
            if entry is None:
                self.alerts.forget(number)
                self._known.pop(number, None)
                self._waiting.pop(number, None)
            elif entry.filter is not None:
                try:
                    self.enforce(entry)
                except Exception as problem:  # noqa: BLE001  # others wait for their answers
                    text = f"the policy of {quoted(entry.name)} failed"
                    self._say(text, level="error", problem=problem)

    def sampled(self, entry: Entry, sample: Sample) -> None:
        """Compare a new sample of a filter with its policy."""
        policy = self._policy(entry)
        if policy.on_full in ("reject", "alert"):
            self._compare_keys(entry, policy, sample.items)
            self._compare_forecast(entry, policy, sample.full_in)
        elif policy.on_full == "rotate":
            self._again.add(entry.id)
        self._compare_error_rate(entry, sample.observed_error_rate, sample.observed_low)

    def pass_second(self) -> None:
        """Look at filters that are full and whose grace is over by now."""
        now = self.engine.now
        self._again |= {number for number, due in self._waiting.items() if due <= now}

    def enforce(self, entry: Entry) -> None:
        """Do what the number of keys in a filter calls for."""
        policy = policy_of(entry)
        if policy.on_full == "rotate":
            self._rotate(entry, policy)
        elif policy.on_full in ("reject", "alert"):
            self._compare_keys(entry, policy, self.engine.state.count(entry))
        else:
            for kind in ("nearly-full", "full", "full-soon"):
                self.alerts.end(kind, f"{quoted(entry.name)} grows now", entry)

    def _compare_keys(self, entry: Entry, policy: FilterPolicy, items: int) -> None:
        """Keys against the two thresholds."""
        capacity = capacity_of(entry)
        for kind, share in (("nearly-full", policy.warn_at), ("full", policy.full_at)):
            threshold = part_of(share, capacity)
            raised = self._is_active(kind, entry)
            if raised == (share > 0 and items >= threshold):
                continue
            text = f"{quoted(entry.name)} holds {items:,} keys of {capacity:,}"
            fields = {"items": items, "capacity": capacity, "on_full": policy.on_full}
            if not raised:
                then = _THEN[policy.on_full or ""] if kind == "full" else ""
                self.alerts.begin(kind, text + then, entry, **fields)
            elif not share or items < _FEWER * threshold:
                self.alerts.end(kind, text, entry, **fields)
                self.engine.state.refresh(entry)  # its threshold

    def _compare_forecast(self, entry: Entry, policy: FilterPolicy, seconds: float | None) -> None:
        within = policy.warn_within
        far = seconds is None or seconds > _LONGER * within
        if seconds is not None and 0 < seconds <= within:
            text = f"{quoted(entry.name)} is {in_words(seconds)}"
            self.alerts.begin("full-soon", text, entry, full_in=seconds)
        elif far and self._is_active("full-soon", entry):
            self.alerts.end("full-soon", f"{quoted(entry.name)} is not full soon", entry)

    def _compare_error_rate(self, entry: Entry, rate: float, low: float) -> None:
        """The error rate that was seen against the one that was asked for."""
        allowed = getattr(entry.filter, "error_rate", 1.0)
        if rate - _SURER * (rate - low) > allowed:  # not so where they are nan
            text = f"{quoted(entry.name)} errs more often than asked: {rate:.2%}, not {allowed:.2%}"
            self.alerts.begin("error-rate", text, entry, observed=rate, error_rate=allowed)
        elif rate <= allowed and self._is_active("error-rate", entry):
            text = f"{quoted(entry.name)} errs no more often than asked: {rate:.2%}"
            self.alerts.end("error-rate", text, entry, observed=rate, error_rate=allowed)

    def _is_active(self, kind: str, entry: Entry) -> bool:
        """Is there such an alert? Checked before a text is made, since samples come often."""
        return (kind, entry.id) in self.alerts.active

    def _policy(self, entry: Entry) -> FilterPolicy:
        """The policy of a filter, made anew only after the filter was changed."""
        known = self._known.get(entry.id)
        if known is None or known[0] != entry.changes:
            known = self._known[entry.id] = entry.changes, policy_of(entry)
        return known[1]

    def _rotate(self, entry: Entry, policy: FilterPolicy) -> None:
        """A new generation, if this one is full and old enough; until it is, the filter grows."""
        keys, started = generation_of(entry)
        self._waiting.pop(entry.id, None)
        if keys < part_of(policy.full_at, capacity_of(entry)):
            return
        due = started + policy.grace
        busy = self.engine.problem is not None or self.engine.locks.is_locked([entry.name])
        if due > self.engine.now or busy:
            self._waiting[entry.id] = due
            return
        self._waiting[entry.id] = self.engine.now + 1  # check then whether it was done
        if self.engine.batches.holds_lease:
            self.engine.decide(Op.ROTATE, entry, operations.fields(began=started))

    def _rotated(self, entry: Entry, keys: int, forgotten: int) -> None:
        text = f"{quoted(entry.name)} began a new generation after {keys:,} keys"
        self.alerts.event("rotated", text, entry, keys=keys, forgotten=forgotten)
