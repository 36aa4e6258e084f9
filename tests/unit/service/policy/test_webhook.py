"""The webhook, against receivers that take alerts and receivers that do not."""

import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from bloomery.service.config.configuration import RawSetting, read
from bloomery.service.policy import webhook as module
from bloomery.service.policy.webhook import Webhook, signature
from unit.service.policy.receiver import Receiver, Request
from waiting import wait_until

pytestmark = pytest.mark.slow

SECRET = b"sixteen bytes or more"
TOKEN = "token-that-nobody-is-to-see"


class Sender:
    """A webhook with a receiver, quicker than life."""

    def __init__(self, receiver: Receiver, scheme: str = "http") -> None:
        self.receiver = receiver
        self.said: list[str] = []
        url = f"{scheme}://127.0.0.1:{receiver.port}/hook?token={TOKEN}"
        self.webhook = Webhook(url, SECRET, self.say, "server-1")

    def say(self, text: str, level: str = "info", **fields: Any) -> None:
        """As `Server.say`."""
        self.said.append(f"{level}: {text} {fields}")

    def send(self, name: str | None, text: str) -> None:
        """Send an alert about a filter."""
        self.webhook.deliver({"kind": "full", "filter": name, "text": text})

    def wait(self, done: Callable[[Webhook], bool], seconds: float = 60.0) -> bool:
        """Whether that came true."""
        return wait_until(lambda: done(self.webhook), seconds)


Sending = Callable[..., Sender]


@pytest.fixture
def sending(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sending]:
    """Make a sender; its pauses are hundredths of a second."""
    monkeypatch.setattr(module, "FIRST_PAUSE", 0.02)
    monkeypatch.setattr(module, "LAST_PAUSE", 0.05)
    made: list[Sender] = []

    def make(behave: Callable[[Request], int | str] = lambda request: 204) -> Sender:
        made.append(Sender(Receiver(behave)))
        return made[-1]

    yield make
    for sender in made:
        sender.receiver.close()
        sender.webhook.close()
        assert TOKEN not in "".join(sender.said)
        assert SECRET.decode() not in "".join(sender.said)


def test_an_alert_arrives_signed(sending: Sending) -> None:
    """The body is the alert, with the server and a number of its own; the signature is that of the
    time and the body."""
    sender = sending()
    sender.send("seen", "it is full")
    assert sender.receiver.wait(1)
    (request,) = sender.receiver.requests
    assert request.alert.pop("id") == request.headers["Bloomery-Delivery"]
    assert request.alert["text"] == "it is full"
    assert request.alert["server"] == "server-1"
    at = int(request.headers["Bloomery-Signature"].partition(",")[0].removeprefix("t="))
    assert abs(at - time.time()) < 60
    assert request.headers["Bloomery-Signature"] == signature(SECRET, at, request.body)
    assert sender.wait(lambda webhook: webhook.sent == 1)
    assert sender.said == []


def test_it_is_tried_again_until_it_is_taken(sending: Sending) -> None:
    """While the receiver fails, the same delivery comes again, with the same number and body; the
    log hears of it twice, not each time."""
    tries = Counter[str]()

    def behave(request: Request) -> int:
        tries[request.headers["Bloomery-Delivery"]] += 1
        return 204 if tries.total() > 4 else (500, 503, 429, 408)[tries.total() - 1]

    sender = sending(behave)
    sender.send("seen", "it is full")
    assert sender.wait(lambda webhook: webhook.sent == 1)
    assert list(tries.values()) == [5]
    assert len({request.body for request in sender.receiver.requests}) == 1
    assert len(sender.said) == 2
    assert "HTTP 500" in sender.said[0]
    assert "again" in sender.said[1]


def test_alerts_of_one_filter_stay_in_order_and_hold_up_no_other(sending: Sending) -> None:
    """While one filter's alert is refused, its later ones wait behind it, and others go out."""
    stuck = True
    sender = sending(lambda request: 500 if stuck and request.alert["filter"] == "a" else 200)
    for number in range(3):
        sender.send("a", f"a{number}")
        sender.send("b", f"b{number}")
    assert sender.wait(lambda webhook: webhook.sent == 3)
    texts = [request.alert["text"] for request in sender.receiver.requests]
    assert [text for text in texts if text.startswith("b")] == ["b0", "b1", "b2"]
    assert {text for text in texts if text.startswith("a")} == {"a0"}
    stuck = False
    assert sender.wait(lambda webhook: webhook.sent == 6)
    texts = [request.alert["text"] for request in sender.receiver.requests]
    assert list(dict.fromkeys(text for text in texts if text.startswith("a"))) == ["a0", "a1", "a2"]


def test_what_the_receiver_will_never_take_is_not_tried_again(sending: Sending) -> None:
    """A 4xx that says "wrong" ends a delivery, and it counts as failed."""
    sender = sending(lambda request: 400 if request.alert["text"] == "bad" else 200)
    sender.send("seen", "bad")
    sender.send("seen", "good")
    assert sender.wait(lambda webhook: webhook.sent == 1)
    assert sender.webhook.failed == 1
    assert len(sender.receiver.requests) == 2


def test_tries_end(sending: Sending, monkeypatch: pytest.MonkeyPatch) -> None:
    """A delivery that nobody took in its time is given up, and counted."""
    monkeypatch.setattr(module, "SECONDS_ALL", 0.2)
    sender = sending(lambda request: 500)
    sender.send("seen", "never")
    assert sender.wait(lambda webhook: webhook.failed == 1)
    assert sender.webhook.waiting == 0


@pytest.mark.parametrize("how", ["hang", "drip", "redirect", "nowhere"])
def test_a_receiver_that_plays_games(
    sending: Sending, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """One that hangs, sends a byte now and then, or sends us elsewhere or to no place at all: each
    try ends, nothing goes elsewhere, and when it behaves again the alert arrives."""
    monkeypatch.setattr(module, "SECONDS_EACH", 0.3)
    bad = True
    sender = sending(lambda request: how if bad else 200)
    sender.send("seen", "it is full")
    assert sender.receiver.wait(2)
    assert sender.webhook.sent == 0
    bad = False
    assert sender.wait(lambda webhook: webhook.sent == 1)
    assert {request.path.partition("?")[0] for request in sender.receiver.requests} == {"/hook"}


def test_an_endless_answer_is_not_read(sending: Sending) -> None:
    """The status is all that counts: an answer without end is left where it is."""
    sender = sending(lambda request: "flood")
    sender.send("seen", "one")
    sender.send("seen", "two")
    assert sender.wait(lambda webhook: webhook.sent == 2)


def test_what_waits_is_bounded(sending: Sending, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a receiver that hangs, only so many alerts wait: the oldest go, and are counted."""
    monkeypatch.setattr(module, "MOST_WAITING", 100)
    monkeypatch.setattr(module, "SECONDS_EACH", 0.3)
    hanging = True
    sender = sending(lambda request: "hang" if hanging else 200)
    for number in range(1000):
        sender.send(f"filter {number % 7}", f"{number}")
    assert sender.webhook.waiting == 100
    assert sender.webhook.dropped == 900
    hanging = False
    assert sender.wait(lambda webhook: webhook.waiting == 0)
    came = [int(request.alert["text"]) for request in sender.receiver.requests]
    assert set(range(900, 1000)) <= set(came)
    for lane in range(7):
        mine = list(dict.fromkeys(number for number in came if number % 7 == lane))
        assert mine == sorted(mine)


def test_a_certificate_must_be_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """A receiver whose certificate nobody vouches for gets nothing."""
    monkeypatch.setattr(module, "FIRST_PAUSE", 0.02)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    sender = Sender(Receiver(context=context), "https")
    try:
        sender.send("seen", "it is full")
        assert sender.wait(lambda webhook: bool(sender.said))
        assert "ConnectError" in sender.said[0]
        assert TOKEN not in sender.said[0]
        assert sender.receiver.requests == []
    finally:
        sender.webhook.close()
        sender.receiver.close()


def threads() -> set[threading.Thread]:
    """Those of webhooks that have not ended."""
    return {one for one in threading.enumerate() if one.name == "bloomery-webhook"}


def test_nobody_there(sending: Sending) -> None:
    """A receiver that is down is tried again, and gets the alert when it is up."""
    before = threads()
    sender = sending()
    sender.receiver.close()
    sender.send("seen", "it is full")
    assert sender.wait(lambda webhook: bool(sender.said))
    assert sender.webhook.waiting == 1
    sender.webhook.close()
    assert threads() <= before


@pytest.mark.parametrize("url", ["https://a.org/{}", "ftp://a.org/{}", "https:///{}", "{}"])
def test_a_url_needs_a_secret(url: str) -> None:
    """Alerts are signed or not sent: a URL without a secret, or a wrong one, is a problem of the
    configuration, which does not show it."""
    given = RawSetting("webhook-url", url.format(TOKEN), "--set")
    (problem,) = read([given], environment={}).problems
    assert "webhook-url is" in problem
    assert TOKEN not in problem


def test_a_secret_comes_from_the_environment_or_a_file(tmp_path: Path) -> None:
    """BLOOMERY_WEBHOOK_SECRET or webhook-secret-file; too short a one is a problem."""
    url = RawSetting("webhook-url", "https://a.org/x", "--set")
    file = tmp_path / "secret"
    file.write_bytes(SECRET + b"\n")
    named = RawSetting("webhook-secret-file", str(file), "--set")
    variable = {"BLOOMERY_WEBHOOK_SECRET": SECRET.decode()}
    for found in (read([url, named], environment={}), read([url], environment=variable)):
        assert found.problems == []
        assert found.settings.webhook_secret == SECRET.decode()
    short = read([url], environment={"BLOOMERY_WEBHOOK_SECRET": "short"})
    assert any("must be 16 to 1,024" in problem for problem in short.problems)


def test_a_proxy_that_cannot_be_one(sending: Sending, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment that no request can be made in is told, once; when it is mended, what waited
    goes out."""
    monkeypatch.setenv("HTTP_PROXY", "nonsense://proxy")
    sender = sending()
    sender.send("a", "first")
    assert sender.wait(lambda _: bool(sender.said))
    monkeypatch.delenv("HTTP_PROXY")
    assert sender.wait(lambda webhook: webhook.sent == 1)
    assert [one.partition(":")[0] for one in sender.said] == ["warning", "info"]
