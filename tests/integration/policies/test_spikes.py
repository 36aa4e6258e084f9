"""A ten-fold write spike into a filter of each policy, the true error rate measured throughout, and
`kill -9` in the middle of it."""

import math
import time

import pytest

from integration.policies.conftest import Start
from integration.policies.load import BATCH, CAPACITY, RATE
from integration.resp.wire import Refused
from integration.servers import wait_until

SPIKE = 10 * CAPACITY


def test_grow_holds_its_rate(start: Start) -> None:
    """ONFULL grow: ten times the keys, a kill in between: no key is denied, and at no moment does
    the filter err more often than asked."""
    load = start("grow", "ONFULL", "grow")
    load.spike(SPIKE // 2)
    load.kill()
    load.spike(SPIKE // 2)
    assert load.denied(load.keys) == []
    assert not load.refused
    assert load.probes >= 2 * SPIKE
    load.within(load.hits, load.probes)


def test_rotate_holds_its_rate_and_its_window(start: Start) -> None:
    """ONFULL rotate: the rate holds, the last keys are all there however fast they come, and so are
    all of the grace period; older ones are forgotten."""
    grace = 1.0
    load = start("rotate", "ONFULL", "rotate", "GRACE", f"{grace}")
    for part in range(5):
        load.spike(SPIKE // 5)
        if part == 2:
            load.kill()
        denied = set(load.denied(load.keys))
        now = time.monotonic()
        for at, key in enumerate(load.keys):
            young = now - load.sent[at] < grace
            last = len(load.keys) - at <= CAPACITY
            assert not (key in denied and (young or last)), (at, len(load.keys))
    assert not load.refused
    load.within(load.hits, load.probes)

    def first_ones_are_gone() -> bool:
        load.add()
        return len(load.denied(load.keys[:BATCH])) > BATCH // 2

    assert wait_until(first_ones_are_gone)
    assert "'rotate' began a new generation" in load.server.printed()


def test_a_full_generation_waits_for_its_grace_over_a_kill(start: Start) -> None:
    """A generation that is full but too young turns over when its grace is over, though no key
    comes and the server was killed meanwhile."""
    load = start("rotate", "ONFULL", "rotate", "GRACE", "2s", "FULLAT", "0.5")
    load.spike(CAPACITY)
    load.kill()
    assert load.denied(load.keys) == []
    assert wait_until(lambda: "'rotate' began a new generation" in load.server.printed())
    assert load.denied(load.keys) == []  # the generation before stays
    load.connection.ask("BF.ROTATE", "rotate")  # by hand it is at once
    assert len(load.denied(load.keys)) > 0.9 * len(load.keys)
    assert load.connection.ask("BF.CARD", "rotate") == 0


def test_reject_refuses_and_says_so(start: Start) -> None:
    """ONFULL reject: what was taken is there and the rate holds; every other key is refused with an
    error that says why, before a kill and after it. So for each kind that can."""
    kinds = ("bloom", "counting", "deletable", "cuckoo", "scalable")
    first = start("bloom", "KIND", "bloom", "ONFULL", "reject")
    loads = [first, *(first.beside(kind, "KIND", kind, "ONFULL", "reject") for kind in kinds[1:])]
    for load in loads:
        load.spike(SPIKE // 5)
        assert load.refused
    first.kill()
    for load in loads:
        load.connection = first.connection
        before = len(load.keys)
        load.add()
        assert len(load.keys) - before <= 5  # those that seemed to be there
        assert all("its policy is reject" in text for text in load.refused)
        assert load.connection.ask("BF.CARD", load.name) == CAPACITY
        assert load.denied(load.keys) == []
        load.within(load.hits, load.probes)


def test_alert_precedes_the_breach(start: Start) -> None:
    """ONFULL alert: whoever is told of a key past 80% can read the alert already; the filter goes
    on, and errs too often only after that. A server that is killed then tells it again."""
    load = start("alert", "ONFULL", "alert")
    told = 0
    while not told:
        load.add(100)
        printed = load.server.printed()
        if "'alert' holds" in printed:
            told = len(load.keys)
        new = load.connection.ask("BF.CARD", "alert")
        assert told or new < 0.8 * CAPACITY, "somebody was told of a key before the alert"
    assert told <= 0.82 * CAPACITY
    load.within(sum(load.probe() for _ in range(20)), 40 * BATCH)  # no breach yet
    while load.connection.ask("BF.CARD", "alert") < CAPACITY:
        load.add(50)
    assert "with more it errs more often" in load.server.printed()
    for _ in range(SPIKE // BATCH):
        load.add()
    hits = sum(load.probe() for _ in range(10))
    assert hits > 10 * 2 * BATCH * 10 * RATE  # the breach, of which everybody was warned
    assert load.denied(load.keys) == []
    assert load.server.printed().count("'alert' holds") == 2
    load.kill()
    load.add(1)
    assert wait_until(lambda: "'alert' holds" in load.server.printed())


def test_one_command_past_everything(start: Start) -> None:
    """Even if a single command fills the filter twice over, the alert is out before its reply."""
    load = start("alert", "ONFULL", "alert")
    load.add(2 * CAPACITY)
    assert "'alert' holds" in load.server.printed()
    assert "with more it errs more often" in load.server.printed()


def test_a_policy_can_be_changed(start: Start) -> None:
    """BF.POLICY takes effect at once, holds over a kill and a snapshot, and a wrong one changes
    nothing."""
    load = start("one", "ONFULL", "reject", "FULLAT", "0.5")
    load.spike(CAPACITY)
    assert load.connection.ask("BF.CARD", "one") == CAPACITY // 2
    with pytest.raises(Refused, match="did you mean 'alert'"):
        load.connection.ask("BF.POLICY", "one", "ONFULL", "alrt")
    with pytest.raises(Refused, match="scalable or cuckoo"):
        load.connection.ask("BF.POLICY", "one", "ONFULL", "grow")
    reply = load.connection.ask("BF.POLICY", "one", "ONFULL", "alert", "FULLAT", "1")
    fields = dict(zip(reply[::2], reply[1::2], strict=True))
    assert fields[b"on_full"] == b"alert"
    assert math.isclose(float(fields[b"warn_at"]), 0.8)
    load.add()
    assert load.connection.ask("BF.CARD", "one") > CAPACITY // 2
    load.connection.ask("SAVE")
    load.kill()
    assert load.connection.ask("BF.POLICY", "one") == reply


def test_samples_raise_alerts(start: Start) -> None:
    """A filter that keys come to is told to be full soon, and one that errs too often is found out
    by the canary; both alerts are over when the filter is empty again."""
    load = start("one", "ONFULL", "alert", options=("--set", "sample-seconds=1"))

    def foreseen() -> bool:
        if len(load.keys) < CAPACITY // 2:
            load.add(50)
        return "'one' is full in" in load.server.printed()

    assert wait_until(foreseen)
    load.add(5 * CAPACITY)
    assert wait_until(lambda: "'one' errs more often than asked" in load.server.printed())
    load.connection.ask("BF.CLEAR", "one")
    assert wait_until(lambda: "'one' errs no more often than asked" in load.server.printed())
    assert "'one' holds 0 keys" in load.server.printed()
