"""The forecast: when a filter is full, at the rate at which keys come."""

import random

import pytest

from bloomery.service.policy.forecast import Forecast, in_words


def after(*paces: tuple[float, int], step: float = 5.0) -> Forecast:
    """A forecast after keys came at these paces (keys a second), each for so many samples."""
    made = Forecast()
    for pace, samples in paces:
        for _ in range(samples):
            made.take(round(pace * step), step)
    return made


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (None, "does not fill at this rate"),
        (0.0, "full"),
        (0.2, "full in 1 s at this rate"),
        (59.9, "full in 59 s at this rate"),
        (60, "full in 1 min at this rate"),
        (12_000, "full in 3 h 20 min at this rate"),
        (86_400, "full in 1 d at this rate"),
        (90_061, "full in 1 d 1 h at this rate"),
    ],
)
def test_in_words(seconds: float | None, words: str) -> None:
    """Two units, rounded down."""
    assert in_words(seconds) == words


def test_nothing_known() -> None:
    """Before two samples there is no rate, and so no end."""
    assert Forecast().until(100) is None
    assert Forecast().until(0) == 0.0


@pytest.mark.parametrize("samples", [2, 3, 500])
def test_a_steady_rate_is_exact_from_the_first_samples_on(samples: int) -> None:
    """1,000 keys a second, 1 million to come: 1,000 seconds."""
    assert after((1000, samples)).until(10**6) == pytest.approx(1000)


def test_it_looks_no_further_ahead_than_it_can() -> None:
    """After five seconds it can tell what is in some minutes, and not what is in an hour."""
    assert after((1000, 1)).until(100_000) == pytest.approx(100)
    assert after((1000, 1)).until(3_600_000) is None
    assert after((1000, 12)).until(3_600_000) == pytest.approx(3600)


def test_a_few_keys_are_no_rate() -> None:
    """A single key, now or after an hour of silence, says nothing about those to come."""
    alone = after((0, 720))
    alone.take(1, 5.0)
    assert alone.until(100) is None
    assert after((0.2, 1)).until(100) is None
    assert after((0.2, 700)).until(100) == pytest.approx(500)  # but one every five seconds does


def test_noise_is_averaged() -> None:
    """Keys that come at random are forecast within a fifth."""
    chance, made = random.Random(5), Forecast()
    for _ in range(200):
        made.take(sum(chance.random() < 0.02 for _ in range(5000)), 5.0)
    assert made.until(20_000) == pytest.approx(1000, rel=0.2)


def test_bursts_are_not_forgotten_in_between() -> None:
    """Of 6,000 keys once a minute a hundred a second is seen at any moment."""
    made = Forecast()
    for minute in range(30):
        for sample in range(12):
            made.take(6000 if sample == 0 else 0, 5.0)
            if minute > 10:
                assert 90 < made.pace < 200


def test_a_spike_is_seen_within_a_minute() -> None:
    """Ten times as many keys as before: a minute later the forecast is nearly ten times shorter,
    and some minutes after the spike it is nearly as before."""
    calm = after((100, 500)).until(10**6)
    spike = after((100, 500), (1000, 12)).until(10**6)
    over = after((100, 500), (1000, 12), (100, 400)).until(10**6)
    assert calm is not None
    assert spike is not None
    assert spike < calm / 6
    assert over == pytest.approx(calm, rel=0.1)


def test_no_keys_no_end() -> None:
    """Where nothing comes, or as much is removed, a filter does not fill."""
    assert after((0, 100)).until(10) is None
    assert after((-5, 100)).until(10) is None
    assert after((100, 10), (-100, 500)).until(10) is None
    assert after((0.4, 100_000)).until(10**9) is None  # in more than ten years


def test_a_clock_that_stands_still_tells_nothing() -> None:
    """No seconds, no rate; and no division by zero."""
    made = Forecast()
    made.take(100, 0.0)
    made.take(100, -1.0)
    assert made.pace == 0.0
