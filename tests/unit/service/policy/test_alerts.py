"""Alerts: told once, over once, and to whom."""

from dataclasses import dataclass, field
from typing import Any

from bloomery import BloomFilter
from bloomery.service.domain.entry import Entry
from bloomery.service.policy.alerts import KINDS, Alerts


@dataclass
class Told:
    """What the log and the webhook heard."""

    said: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    sent: list[dict[str, Any]] = field(default_factory=list)

    def say(self, text: str, level: str = "info", **fields: Any) -> None:
        """As `Server.say`."""
        self.said.append((text, level, fields))

    def alerts(self) -> Alerts:
        """Alerts that are told here."""
        made = Alerts(self.say, now=lambda: 1000.0)
        made.on_alert.subscribe(lambda alert, state: self.sent.append(alert.as_dict(state)))
        return made


def entry(number: int = 7, name: bytes = b"seen") -> Entry:
    """A filter of a server."""
    return Entry(number, name, BloomFilter(10), 0.0)


def test_an_alert_is_told_once() -> None:
    """However often it begins, it is told once, to the log and the webhook, until it is over."""
    told = Told()
    alerts = told.alerts()
    for _ in range(3):
        alerts.begin("full", "it is full", entry(), items=10)
    assert told.said == [
        ("it is full", "error", {"alert": "full", "state": "raised", "filter": "seen", "items": 10})
    ]
    assert told.sent == [
        {
            "kind": "full",
            "state": "raised",
            "level": "error",
            "filter": "seen",
            "text": "it is full",
            "at": 1000.0,
            "items": 10,
        }
    ]
    assert [one.kind for one in alerts.active.values()] == ["full"]
    assert alerts.end("full", "it has room", entry())
    assert not alerts.end("full", "it has room", entry())
    assert [(one["state"], one["text"]) for one in told.sent[1:]] == [("cleared", "it has room")]
    assert alerts.active == {}
    assert alerts.counts == {"full": 1}
    alerts.begin("full", "again", entry())
    assert alerts.counts == {"full": 2}


def test_each_filter_and_each_kind_has_its_own() -> None:
    """The same alert about another filter is another alert, and so is another kind."""
    told = Told()
    alerts = told.alerts()
    alerts.begin("full", "one", entry(1, b"one"))
    alerts.begin("full", "two", entry(2, b"two"))
    alerts.begin("nearly-full", "one", entry(1, b"one"))
    alerts.begin("clock", "the clock")
    assert len(alerts.active) == 4
    alerts.forget(1)
    assert set(alerts.active) == {("full", 2), ("clock", 0)}
    assert len(told.said) == 4  # a filter that is gone needs no more words


def test_what_happens_often_is_told_now_and_then() -> None:
    """An event is counted each time, and told once in a while for each filter."""
    told = Told()
    alerts = told.alerts()
    for _ in range(100):
        alerts.event("rotated", "turned over", entry(1))
        alerts.event("rotated", "turned over", entry(2))
    assert alerts.counts == {"rotated": 200}
    assert len(told.said) == 2
    assert alerts.active == {}


def test_every_kind_has_a_level() -> None:
    """The table of kinds names a level of the log and a meaning for each."""
    for level, meaning in KINDS.values():
        assert level in {"info", "warning", "error"}
        assert meaning
