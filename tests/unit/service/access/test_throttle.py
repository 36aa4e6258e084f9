"""Failed logins are slowed, each more than the one before, and others are not held up."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from bloomery.service.access.throttle import (
    ADDRESS,
    PATIENCE,
    USER,
    Backoff,
    LoginThrottle,
    TooManyLogins,
    network,
)


class Time:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)


class Together(Time):
    """A clock that the test moves, by which many can sleep at once."""

    async def sleep(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            await asyncio.sleep(0)


def play(script: Callable[[LoginThrottle, Time], Coroutine[Any, Any, None]]) -> None:
    """Run a script in a time of its own."""
    time = Time()
    asyncio.run(script(LoginThrottle(time.clock, time.sleep), time))


async def fail(throttle: LoginThrottle, key: str, pace: Backoff) -> None:
    """Try, and be wrong."""
    async with throttle.turn(key, pace):
        throttle.failed(key, pace)


def test_each_failure_doubles_the_wait() -> None:
    """The first failures cost nothing; then each try waits twice as long as the one before."""

    async def script(throttle: LoginThrottle, time: Time) -> None:
        waits = []
        for _ in range(ADDRESS.free + 4):
            before = time.now
            await fail(throttle, "a", ADDRESS)
            waits.append(time.now - before)
        assert waits[: ADDRESS.free] == [0.0] * ADDRESS.free
        assert waits[ADDRESS.free :] == pytest.approx([0.25, 0.5, 1.0, 2.0])

    play(script)


def test_who_would_wait_too_long_is_refused() -> None:
    """A try whose turn is too far away is refused without being looked at, and later it is not."""

    async def script(throttle: LoginThrottle, time: Time) -> None:
        refused = 0
        for _ in range(20):
            try:
                await fail(throttle, "a", ADDRESS)
            except TooManyLogins:
                refused += 1
        assert refused > 0
        assert throttle.blocked("a")
        time.now += ADDRESS.longest
        async with throttle.turn("a", ADDRESS):
            pass

    play(script)


def test_others_are_not_held_up() -> None:
    """What one address does wrong is not held against another."""

    async def script(throttle: LoginThrottle, time: Time) -> None:
        for _ in range(1000):
            throttle.failed("a", ADDRESS)
        before = time.now
        async with throttle.turn("b", ADDRESS):
            assert time.now == before

    play(script)


def test_failures_fade() -> None:
    """After some minutes without a failure nothing is held against anybody."""

    async def script(throttle: LoginThrottle, time: Time) -> None:
        for _ in range(1000):
            throttle.failed("a", ADDRESS)
        time.now += 20 * ADDRESS.fades
        for _ in range(ADDRESS.free):
            before = time.now
            await fail(throttle, "a", ADDRESS)
            assert time.now == before

    play(script)


def test_a_user_cannot_be_locked_out() -> None:
    """However often others fail for a user, a try has its turn within the time that one waits."""

    async def script(throttle: LoginThrottle, time: Time) -> None:
        for _ in range(1000):
            throttle.failed("ann", USER)
        assert USER.longest < PATIENCE
        async with throttle.turn("ann", USER):
            pass

    play(script)


def test_who_tried_least_is_next() -> None:
    """Of those that wait for a user, the address that tried least is next, also where no more may
    wait: the last of those that tried most is refused in its place."""

    async def script(throttle: LoginThrottle, time: Time) -> None:
        order = []

        async def one(address: str) -> None:
            try:
                async with (
                    throttle.turn(address, ADDRESS),
                    throttle.turn("ann", USER, address),
                ):
                    order.append(address)
            except TooManyLogins:
                order.append(f"{address} refused")

        for _ in range(100):
            throttle.failed("ann", USER)
        tries = [asyncio.ensure_future(one(f"bad {n % 5}")) for n in range(40)]
        await asyncio.sleep(0)
        tries.append(asyncio.ensure_future(one("good")))
        while not all(one.done() for one in tries):
            await asyncio.sleep(0)
            time.now += 0.01
        looked_at = [address for address in order if "refused" not in address]
        assert looked_at[0] == "good"
        assert len(looked_at) > 1
        assert order.count("good refused") == 0

    time = Together()
    asyncio.run(script(LoginThrottle(time.clock, time.sleep), time))


def test_tries_at_once_are_no_quicker() -> None:
    """Many tries on as many connections are looked at no faster than one after the other."""

    async def script(throttle: LoginThrottle, time: Time) -> None:
        looked_at = []

        async def one() -> None:
            try:
                async with throttle.turn("a", ADDRESS):
                    looked_at.append(time.now)
                    await time.sleep(0.05)
                    throttle.failed("a", ADDRESS)
            except TooManyLogins:
                pass

        await asyncio.gather(*(one() for _ in range(500)))
        assert len(looked_at) < 20

    play(script)


def test_what_is_remembered_has_a_bound() -> None:
    """A flood from ever new addresses takes no more than a table of fixed size."""

    async def script(throttle: LoginThrottle, time: Time) -> None:
        for number in range(20_000):
            throttle.failed(str(number), ADDRESS)
        assert len(throttle.attempts) == 10_000

    play(script)


@pytest.mark.parametrize(
    ("address", "remembered"),
    [
        ("10.0.0.7", "10.0.0.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
        ("/run/socket", "/run/socket"),
    ],
)
def test_addresses_by_network(address: str, remembered: str) -> None:
    """An IPv6 address counts as its network, of which one machine has all addresses."""
    assert network(address) == remembered
