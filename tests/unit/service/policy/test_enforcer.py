"""Policies: which go with which kind, what is right, and what is done when."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bloomery import RotatingBloomFilter, errors
from bloomery.service.clock import Clock
from bloomery.service.commands import Commands
from bloomery.service.config.settings import Settings
from bloomery.service.domain.entry import Entry
from bloomery.service.domain.operations import Op
from bloomery.service.domain.policy import FIELDS, ON_FULL, chosen, limit_and_threshold, part_of
from bloomery.service.engine import REFUSED
from bloomery.service.policy.alerts import Alerts
from bloomery.service.policy.enforcer import _SURER, PolicyEnforcer
from bloomery.service.sampling.sample import Sample
from bloomery.sizing.intervals import wilson_interval
from bloomery.storage.files import HEADER_BYTES
from properties.forgery import forged
from unit.service.driven import Driven


class House(Driven):
    """Filters, their log and policies, and a clock that a test sets."""

    def __init__(self, log: Path) -> None:
        self.now = 1e9
        self.said: list[str] = []
        super().__init__(log, Clock(0.0, lambda: self.now, lambda: self.now))
        self.commands = Commands(self.engine, Settings())
        self.alerts = Alerts(self.say, lambda: self.now)
        self.policies = PolicyEnforcer(self.engine, self.alerts, self.say)

    def say(self, text: str, level: str = "info", **fields: Any) -> None:
        """As `Server.say`."""
        assert fields.get("problem") is None, fields
        self.said.append(text)

    def turn(self, seconds: float = 0.0) -> None:
        """Let a tick start and end, and time pass after it."""
        self.tick()
        self.now += seconds
        self.policies.pass_second()

    def replayed(self) -> Entry:
        """The filter as a replay of the log makes it."""
        return self.replayed_state().names[b"x"]

    def make(self, **settings: Any) -> Entry:
        """A filter named x for a thousand keys."""
        entry: Entry = self.run(self.commands.create(b"x", **{"capacity": 1000, **settings}))
        return entry

    def add(self, start: int, end: int) -> int:
        """Add keys; how many were taken."""
        done, _ = self.run(
            self.commands.add(b"x", [f"key {number}" for number in range(start, end)])
        )
        return len(done)

    def kinds(self) -> set[str]:
        """The alerts that are active."""
        return {kind for kind, _ in self.alerts.active}

    def sampled(self, entry: Entry, **facts: Any) -> None:
        """A sample of the filter comes in."""
        facts = {"observed_error_rate": math.nan, "observed_low": math.nan, **facts}
        sample = Sample(
            filter_id=entry.id,
            sampled_at=self.now,
            estimated_count=0.0,
            estimated_error_rate=0.0,
            items=self.engine.state.count(entry),
            **facts,
        )
        self.policies.sampled(entry, sample)


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    """One that is empty."""
    made = House(tmp_path / "log")
    yield made
    made.close()


DEFAULTS: list[tuple[dict[str, Any], str, str]] = [
    ({}, "scalable", "grow"),
    ({"on_full": "grow"}, "scalable", "grow"),
    ({"on_full": "rotate"}, "rotating", "rotate"),
    ({"on_full": "reject"}, "bloom", "reject"),
    ({"on_full": "alert"}, "bloom", "alert"),
    ({"kind": "counting"}, "counting", "reject"),
    ({"kind": "deletable"}, "deletable", "reject"),
    ({"kind": "cuckoo"}, "cuckoo", "reject"),
    ({"kind": "cuckoo", "grow": True}, "cuckoo", "grow"),
    ({"kind": "cuckoo", "on_full": "grow"}, "cuckoo", "grow"),
    ({"kind": "scalable"}, "scalable", "grow"),
    ({"kind": "rotating"}, "rotating", "grow"),
    ({"kind": "rotating", "window": None}, "rotating", "rotate"),
    ({"kind": "bank"}, "bank", "grow"),
    ({"kind": "redisbloom", "expansion": 2}, "redisbloom", "grow"),
    ({"kind": "redisbloom", "expansion": 0}, "redisbloom", "reject"),
    ({"kind": "rediscuckoo", "expansion": 0}, "rediscuckoo", "reject"),
]


@pytest.mark.parametrize(("settings", "kind", "on_full"), DEFAULTS)
def test_kind_and_policy_choose_each_other(
    house: House, settings: dict[str, Any], kind: str, on_full: str
) -> None:
    """Without a kind the policy chooses it, without a policy the kind does."""
    entry = house.make(**settings)
    assert entry.filter.kind == kind
    assert house.commands.policy(b"x").on_full == on_full
    assert house.commands.info(house.commands.find(b"x"))["policy"]["on_full"] == on_full


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"kind": "bloom", "on_full": "grow"}, "scalable or cuckoo"),
    ({"kind": "counting", "on_full": "rotate"}, "of kind rotating"),
    ({"kind": "rotating", "on_full": "reject"}, "bloom, counting"),
    ({"kind": "cuckoo", "grow": False, "on_full": "alert"}, "can reject"),
    ({"kind": "bank", "on_full": "alert"}, "can grow"),
    ({"on_full": "rotate", "window": "7d"}, "leave window out"),
    ({"on_full": "rotate", "generations": 4}, "leave generations out"),
    ({"on_full": "grwo"}, "did you mean 'grow'"),
    ({"on_full": 5}, "must be grow, rotate, reject or alert"),
    ({"on_full": "grow", "warn_at": 0.5}, "goes with reject or alert"),
    ({"on_full": "reject", "grace": 5}, "goes with rotate"),
    ({"full_at": 0}, "above 0"),
    ({"full_at": 1.01}, "up to 1"),
    ({"full_at": True}, "share"),
    ({"full_at": "half"}, "share"),
    ({"full_at": math.nan}, "share"),
    ({"warn_at": -0.1}, "from 0"),
    ({"warn_within": -1}, "seconds"),
    ({"warn_within": "soon"}, "15min"),
    ({"on_full": "rotate", "grace": math.inf}, "seconds"),
]


@pytest.mark.parametrize(("settings", "says"), WRONG)
def test_what_cannot_be_is_refused(house: House, settings: dict[str, Any], says: str) -> None:
    """A policy that the kind cannot follow, or a field out of its range: the error says what is
    right, and there is no such filter then."""
    with pytest.raises(errors.InvalidParameter, match=says):
        house.make(**settings)
    assert house.commands.listing.names() == []


@given(st.dictionaries(st.sampled_from(FIELDS), st.one_of(st.floats(), st.text(), st.none())))
def test_nonsense_is_invalid_and_nothing_else(fields: dict[str, Any]) -> None:
    """Whatever a client gives as a policy, it is taken or is an InvalidParameter."""
    try:
        made = chosen(None, {"capacity": 10, **fields})
    except errors.InvalidParameter:
        return
    assert made.get("on_full") in {None, *ON_FULL}


def test_a_policy_is_adjusted(house: House) -> None:
    """Fields change one by one, None takes a field back to its default, and what is wrong changes
    nothing; a replay of the log ends with the same."""
    house.make(on_full="reject", full_at=0.5)
    house.run(house.commands.adjust(b"x", on_full="alert", warn_within="15min"))
    policy = house.commands.policy(b"x")
    assert (policy.on_full, policy.full_at, policy.warn_within) == ("alert", 0.5, 900)
    wrong: list[dict[str, Any]] = [{}, {"on_full": "grow"}, {"ful_at": 1}, {"grace": 3}]
    for fields in wrong:
        with pytest.raises(errors.InvalidParameter):
            house.run(house.commands.adjust(b"x", **fields))
    with pytest.raises(errors.InvalidParameter, match="did you mean 'full_at'"):
        house.run(house.commands.adjust(b"x", ful_at=1))
    assert house.commands.policy(b"x") == policy
    house.run(house.commands.adjust(b"x", on_full=None, full_at=None))
    house.turn()
    assert house.replayed().settings == house.engine.state.names[b"x"].settings
    assert house.commands.policy(b"x").on_full == "reject"


def test_reject_takes_as_many_as_it_says(house: House) -> None:
    """With full_at 0.5 half the capacity is taken, and the refusal says what refused; adjusted to
    1, the other half."""
    house.make(on_full="reject", full_at=0.5)
    answers, _ = house.run(house.commands.try_each(b"x", [f"key {n}" for n in range(2000)]))
    taken = len(answers) - answers.count(REFUSED)
    assert house.engine.figures(house.commands.find(b"x"))[0] == taken
    assert house.commands.find(b"x").items == 500
    _, refused = house.run(house.commands.add(b"x", ["one more", "and another", "and a third"]))
    assert refused is not None
    code, text = house.commands.explain(b"x", refused)
    assert code == "filter-full"
    assert text.startswith(
        "'x' holds 500 keys, full_at of its capacity of 1,000, and its policy is reject: make "
    )
    house.run(house.commands.adjust(b"x", full_at=1))
    house.add(2000, 4000)
    assert house.commands.find(b"x").items == 1000
    assert house.commands.explain(b"x", refused)[1].startswith(
        "'x' holds 1,000 keys, its capacity, and its policy is reject: make a larger one"
    )


@pytest.mark.parametrize("kind", ["counting", "cuckoo", "deletable"])
def test_what_is_removed_makes_room(house: House, kind: str) -> None:
    """A full filter from which keys are removed takes others again, and the alert is over once it
    is well below the threshold."""
    house.make(kind=kind, error_rate=0.001)
    house.add(0, 1100)
    house.turn()
    assert house.kinds() == {"nearly-full", "full"}
    done, _ = house.run(house.commands.remove(b"x", [f"key {number}" for number in range(20)]))
    gone = sum(done)
    house.turn()
    entry = house.commands.find(b"x")
    house.sampled(entry)
    assert house.kinds() == {"nearly-full", "full"}  # only a few are gone
    done, _ = house.run(house.commands.remove(b"x", [f"key {number}" for number in range(20, 500)]))
    assert gone + sum(done) > 250
    house.sampled(entry)
    assert house.kinds() == set()
    house.add(2000, 3000)
    house.turn()
    assert house.kinds() == {"nearly-full", "full"}  # and it is watched again


def test_alerts_are_out_before_the_client_is_answered(house: House) -> None:
    """When a client has the answer to the key that crosses a threshold, the alert is raised; one
    key less, and there is none."""
    entry = house.make(on_full="alert", error_rate=1e-6)
    house.add(0, 799)
    house.turn()
    assert house.kinds() == set()

    async def add_one() -> set[str]:
        await house.commands.add(b"x", ["key 799"])
        return house.kinds()

    assert house.run(add_one()) == {"nearly-full"}
    house.add(800, 1000)
    house.turn()
    assert house.kinds() == {"nearly-full", "full"}
    assert len(house.said) == 2
    house.run(house.commands.clear(b"x"))
    house.turn()
    assert house.kinds() == set()
    assert entry.items == 0


def test_a_filter_that_is_gone_is_not_talked_of(house: House) -> None:
    """Dropping a filter ends what was said about it."""
    house.make(on_full="alert")
    house.add(0, 2000)
    house.turn()
    assert house.kinds()
    house.run(house.commands.drop(b"x"))
    house.turn()
    assert house.alerts.active == {}


def test_rotation_waits_for_keys_and_grace(house: House) -> None:
    """A generation turns over when it is full and the grace is over, whichever is later; two turns
    forget a key, one does not. A replay of the log gives the same filter."""
    entry = house.make(on_full="rotate", grace=100, error_rate=1e-4)
    house.add(0, 1500)
    house.turn(99)
    house.turn()
    assert house.alerts.counts["rotated"] == 0
    house.turn(1)
    house.turn()
    assert house.alerts.counts["rotated"] == 1
    assert all(house.commands.contains(b"x", [f"key {number}" for number in range(1500)]))
    house.turn(1000)
    house.add(2000, 2999)
    house.turn(1000)
    assert house.alerts.counts["rotated"] == 1  # one key is missing
    house.add(2999, 3001)
    house.turn()
    assert house.alerts.counts["rotated"] == 2
    assert sum(house.commands.contains(b"x", [f"key {n}" for n in range(1500)])) <= 1
    assert all(house.commands.contains(b"x", [f"key {n}" for n in range(2000, 3001)]))
    assert house.commands.find(b"x").items == entry.filter.estimated_count
    twin = house.replayed()
    assert twin.items == entry.items
    assert twin.filter.to_bytes() == entry.filter.to_bytes()


def test_keys_that_come_again_fill_a_generation_too(house: House) -> None:
    """Keys of the generation before that are added again count: a sample finds it full."""
    entry = house.make(on_full="rotate", grace=0, error_rate=1e-6)
    house.add(0, 1000)
    house.turn()
    assert house.alerts.counts["rotated"] == 1
    house.add(0, 1000)
    house.turn()
    house.sampled(entry)
    house.turn()
    assert house.alerts.counts["rotated"] == 2
    assert all(house.commands.contains(b"x", [f"key {number}" for number in range(1000)]))


def test_no_rotation_while_the_log_cannot_be_written(house: House) -> None:
    """What cannot be logged is not done; it is done when it can be again."""
    house.make(on_full="rotate", grace=10)
    house.add(0, 2000)
    house.turn(5)
    house.engine.refuse(errors.LogUnavailable("no room"))
    house.turn(20)
    house.turn()
    assert house.alerts.counts["rotated"] == 0
    house.engine.accept()
    house.turn()
    house.turn()
    assert house.alerts.counts["rotated"] == 1


def test_a_forecast_raises_an_alert_and_ends_it(house: House) -> None:
    """Full within warn_within: an alert; well beyond it: over. 0 turns it off; growing ones have
    none."""
    entry = house.make(on_full="alert", warn_within=600)
    for full_in, kinds in ((None, set()), (601, set()), (600, {"full-soon"}), (700, {"full-soon"})):
        house.sampled(entry, full_in=full_in)
        assert house.kinds() == kinds
    assert house.said == ["'x' is full in 10 min at this rate"]
    house.sampled(entry, full_in=800)
    assert house.kinds() == set()
    house.run(house.commands.adjust(b"x", warn_within=0))
    house.sampled(entry, full_in=5)
    assert house.kinds() == set()


def test_the_canary_raises_an_alert_when_it_is_sure(house: House) -> None:
    """A rate clearly past the one asked for is an alert; one that chance may have brought is not,
    and one that is not known is not either."""
    entry = house.make(kind="scalable", error_rate=0.01)
    house.sampled(entry, observed_error_rate=0.02, observed_low=0.011)
    house.sampled(entry)
    assert house.kinds() == set()
    house.sampled(entry, observed_error_rate=0.04, observed_low=0.032)
    assert house.kinds() == {"error-rate"}
    house.sampled(entry, observed_error_rate=0.012, observed_low=0.008)
    assert house.kinds() == {"error-rate"}
    house.sampled(entry, observed_error_rate=0.009, observed_low=0.008)
    assert house.kinds() == set()


def test_a_false_alarm_is_rare_beyond_worry() -> None:
    """Summed exactly: filters that err exactly as often as they may are taken for worse less than
    once in a hundred thousand windows, at every size of a window."""
    for rate in (0.1, 0.01, 0.001):
        for probes in (256, 2048, 16384):
            chance, total = (1 - rate) ** probes, 0.0
            for hits in range(probes + 1):
                seen, (low, _) = hits / probes, wilson_interval(probes, hits)
                if seen - _SURER * (seen - low) > rate:
                    total += chance
                chance *= (probes - hits) / (hits + 1) * rate / (1 - rate)
            assert total < 1e-5, (rate, probes, total)


def test_policies_survive_a_copy_and_a_new_name(house: House) -> None:
    """A copy has the policy of its source; a renamed filter keeps its own, and is still watched."""
    house.make(on_full="alert", warn_at=0.5)
    house.run(house.commands.copy(b"x", b"y"))
    house.run(house.commands.rename(b"x", b"z"))
    house.run(house.commands.rename(b"y", b"x"))
    assert house.commands.policy(b"x") == house.commands.policy(b"z")
    house.add(0, 600)
    house.turn()
    assert house.kinds() == {"nearly-full"}
    assert house.said[0].startswith("'x' holds")


def test_a_loaded_filter_has_the_policy_of_its_kind(house: House) -> None:
    """A plain filter that comes from a file refuses keys past its capacity, as one made here."""
    house.make(on_full="alert")
    head = house.run(house.commands.export_head(b"x"))
    rest = house.commands.export(b"x", 0)
    house.run(house.commands.drop(b"x"))
    house.run(house.commands.load(b"x", 1, head))
    house.run(house.commands.load(b"x", 1 + len(head), rest))
    assert house.commands.policy(b"x").on_full == "reject"
    house.add(0, 2000)
    assert house.commands.find(b"x").items == 1000


def test_each_operation_of_a_policy_is_logged(house: House) -> None:
    """CREATE, ADJUST and ROTATE are in the log, with the time of their turn."""
    house.make(on_full="rotate", grace=0)
    house.turn(5)
    house.run(house.commands.adjust(b"x", full_at=0.5))
    house.add(0, 600)
    house.turn()
    told: Callable[[int], list[float]] = lambda op: [row[1] for row in house.rows() if row[3] == op]  # noqa: E731
    assert told(Op.CREATE) == [1e9]
    assert told(Op.ADJUST) == [1e9 + 5]
    assert told(Op.ROTATE) == [1e9 + 5]


def test_a_capacity_that_no_float_has() -> None:
    """The head of a filter that was loaded may name any: what follows from it can be counted."""
    filter = RotatingBloomFilter(1000)
    filter.update(range(300))
    filter.rotate()
    filter.update(range(300, 600))
    data = filter.to_bytes()
    head = forged(data[:HEADER_BYTES], capacity=2**64 - 1)
    loaded = RotatingBloomFilter.from_bytes(head + data[HEADER_BYTES:])
    settings = {"kind": "rotating", "on_full": "rotate"}
    entry = Entry(1, b"f", loaded, 0.0, items=loaded.estimated_count, settings=settings)
    assert limit_and_threshold(entry) == (None, 2**64 - 1)
    assert part_of(1.0, 2**64 - 1) == 2**64 - 1
    assert part_of(0.5, 1000) == 500
