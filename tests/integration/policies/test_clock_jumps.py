"""A real server whose wall clock jumps a year forward and two back: Debian's libfaketime."""

import glob
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import missing
from integration.resp.wire import Connection
from integration.servers import BloomeryServer, wait_until

KEYS = [f"key {number}" for number in range(2000)]


class Jumping(BloomeryServer):
    """A server whose wall clock a test sets; the steady one goes on."""

    fresh = True  # a library is loaded into it before all else

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        found = glob.glob("/usr/lib/*/faketime/libfaketime.so.1")
        if not found:
            missing("libfaketime (scripts/servers installs it)")
        self.library = found[0]
        self.hands = folder / "hands"
        self.jump("+0")

    def environment(self) -> dict[str, str]:
        return {
            **super().environment(),
            "LD_PRELOAD": self.library,
            "FAKETIME_TIMESTAMP_FILE": str(self.hands),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    def jump(self, off: str) -> None:
        """Set the wall clock: off by so much from the real time."""
        new = self.hands.with_suffix(".new")
        new.write_text(f"{off}\n")
        new.replace(self.hands)

    def says(self, text: str, times: int) -> None:
        """Wait until it has said so, so many times."""
        assert wait_until(lambda: self.printed().count(text) == times), self.printed()


@pytest.fixture
def jumping(tmp_path: Path) -> Iterator[Jumping]:
    """One that runs."""
    server = Jumping(tmp_path)
    server.start()
    yield server
    server.kill()


def test_no_jump_forgets_anything(jumping: Jumping) -> None:
    """A year forward, two back, and a kill then: no key of a window is denied, a TTL stays what it
    was, and what ought to be forgotten meanwhile is: the time does not stand still."""
    with Connection(jumping.resp_port) as connection:
        ask = connection.ask
        ask("BF.RESERVE", "week", 0.01, 10_000, "KIND", "rotating", "WINDOW", "7d")
        ask("BF.RESERVE", "turns", 0.01, 10_000, "ONFULL", "rotate", "GRACE", "1h")
        for name in ("week", "turns", "mortal"):
            ask("BF.MADD", name, *KEYS)
        ask("EXPIRE", "mortal", 1000)

        def all_there() -> None:
            for name in ("week", "turns", "mortal"):
                assert all(ask("BF.MEXISTS", name, *KEYS)), name
            assert 900 <= ask("TTL", "mortal") <= 1000

        for times, (off, text) in enumerate((("+365d", "ahead of"), ("-365d", "behind")), 1):
            jumping.jump(off)
            all_there()
            # Time passes by the steady clock, at 0.9 to 1.1 of its pace.
            ask("BF.RESERVE", "moment", 0.01, 100, "KIND", "rotating", "WINDOW", "0.5s")
            both = [("BF.ADD", "moment", "key"), ("BF.EXISTS", "moment", "key")]
            assert connection.ask_all(both) == [1, 1]
            ask("BF.ADD", "brief", "key")
            ask("PEXPIRE", "brief", 500)
            assert wait_until(lambda: not ask("BF.EXISTS", "moment", "key"))
            assert wait_until(lambda: not ask("EXISTS", "brief"))
            ask("DEL", "moment")
            ask("BF.MADD", "turns", *(f"{off} {key}" for key in KEYS))
            all_there()
            jumping.says(f" s {text} the server's time", 1)
            jumping.jump("+0")
            jumping.says("is the wall clock's again", times)
        jumping.jump("-365d")
    jumping.kill()
    jumping.start()
    with Connection(jumping.resp_port) as connection:
        ask = connection.ask
        all_there()


@pytest.mark.parametrize("killed", [True, False])
def test_no_restart_goes_back(jumping: Jumping, killed: bool) -> None:
    """A wall clock that was set back, and a server that only answered since it last logged
    anything: its time goes on from where it was."""

    def now() -> int:
        """The server's time in ms."""
        with Connection(jumping.resp_port) as connection:
            at, left = connection.ask_all([("PEXPIRETIME", "mortal"), ("PTTL", "mortal")])
        return int(at) - int(left)

    with Connection(jumping.resp_port) as connection:
        connection.ask("BF.ADD", "mortal", "key")
        connection.ask("EXPIRE", "mortal", 1000)
    began = now()
    assert wait_until(lambda: now() > began + 4000)
    before = now()
    jumping.jump("-1d")
    (jumping.kill if killed else jumping.stop)()
    jumping.start()
    assert before <= now() <= before + 60_000
