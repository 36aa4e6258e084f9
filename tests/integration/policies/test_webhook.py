"""A real server and a webhook's other side, good and bad."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from docs.pages import DOCS, blocks
from integration.policies.load import CAPACITY, Load
from integration.resp.wire import Connection
from integration.servers import Serve
from unit.service.policy.receiver import Receiver, Request

SECRET = "a secret that nobody is to see"
TOKEN = "token-of-the-url"


@pytest.fixture
def receiving() -> Iterator[Callable[..., Receiver]]:
    """Make a receiver that behaves as told."""
    made: list[Receiver] = []

    def make(behave: Callable[[Request], int | str] = lambda request: 200) -> Receiver:
        made.append(Receiver(behave))
        return made[-1]

    yield make
    for receiver in made:
        receiver.close()


def options(receiver: Receiver, tmp_path: Path) -> list[str]:
    """What lets a server send its alerts there."""
    secret = tmp_path / "secret"
    secret.write_text(f"{SECRET}\n")
    url = f"http://127.0.0.1:{receiver.port}/hook?token={TOKEN}"
    return ["--set", f"webhook-url={url}", "--set", f"webhook-secret-file={secret}"]


def test_alerts_arrive_signed(
    serve: Serve, receiving: Callable[..., Receiver], tmp_path: Path
) -> None:
    """Each alert of a filter arrives once, in order, and the page's own `verify` takes it, but not
    a changed one; neither the secret nor the URL's token is ever shown."""
    receiver = receiving()
    server = serve(*options(receiver, tmp_path))
    with Connection(server.resp_port) as connection:
        load = Load(server, connection, "").beside("seen", "ONFULL", "alert")
        load.add(CAPACITY * 2)
        assert receiver.wait(2)
        assert TOKEN.encode() not in repr(connection.ask("CONFIG", "GET", "*")).encode()
    (block,) = (one for one in blocks(DOCS / "policies.md") if one.info == "python")
    names: dict[str, Any] = {}
    exec(block.text, names)
    for request, kind in zip(receiver.requests, ("nearly-full", "full"), strict=True):
        header = request.headers["Bloomery-Signature"]
        assert names["verify"](header, request.body, SECRET.encode())
        assert not names["verify"](header, request.body + b" ", SECRET.encode())
        assert not names["verify"](header, request.body, b"another secret of any length")
        assert not names["verify"](header.replace("t=1", "t=2"), request.body, SECRET.encode())
        assert request.alert["kind"] == kind
        assert request.alert["state"] == "raised"
        assert request.alert["filter"] == "seen"
        assert request.alert["items"] >= 0.8 * CAPACITY
    assert SECRET not in server.printed()
    assert TOKEN not in server.printed()


def test_one_that_hangs_is_not_felt(
    serve: Serve, receiving: Callable[..., Receiver], tmp_path: Path
) -> None:
    """While the webhook hangs, hundreds of filters fill and are served as ever, and the server ends
    in good order when asked to."""
    receiver = receiving(lambda request: "hang")
    server = serve(*options(receiver, tmp_path))
    with Connection(server.resp_port) as connection:
        load = Load(server, connection, "").beside("first", "ONFULL", "alert")
        load.add(CAPACITY)
        assert receiver.wait(1)
        began = time.monotonic()
        for number in range(300):
            connection.ask("BF.RESERVE", f"small {number}", 0.01, 10, "ONFULL", "alert")
            connection.ask("BF.MADD", f"small {number}", *range(30))
        assert load.denied(load.keys) == []
        assert time.monotonic() - began < 60  # one try takes 5 seconds, and there are 600
    assert server.stop() == 0
    assert TOKEN not in server.printed()
