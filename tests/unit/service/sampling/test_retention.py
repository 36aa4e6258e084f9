"""Retention: samples go by their age, and never because a clock jumped."""

from hypothesis import given
from hypothesis import strategies as st

from bloomery.service.sampling.retention import Retention

HOUR, DAY = 3600.0, 86400.0
KEEP = {0: HOUR, 60: DAY, 3600: 90 * DAY}
NOW = 1_790_000_000.0


def test_in_step_with_the_clock() -> None:
    """While the clock runs as it should, each span goes by its own age."""
    one = Retention(NOW, 0.0, NOW - 5)
    for steady in (0.0, 60.0, 5000.0):
        now = NOW + steady
        assert one.before(KEEP, now, steady) == {0: now - HOUR, 60: now - DAY, 3600: now - 90 * DAY}


def test_a_jump_ahead_removes_nothing() -> None:
    """A year ahead in a second: raw samples go an hour later, minutes a day later."""
    one = Retention(NOW, 0.0, None)
    one.before(KEEP, NOW + 60, 60.0)
    ahead = NOW + 365 * DAY
    found = one.before(KEEP, ahead + 61, 61.0)
    assert found[0] <= NOW + 61 - HOUR
    assert found[3600] <= NOW + 61 - 90 * DAY
    later = one.before(KEEP, ahead + HOUR + 120, HOUR + 120)
    assert later[0] == ahead + 120
    assert later[60] <= NOW + HOUR + 120 - DAY
    at_last = one.before(KEEP, ahead + 100 * DAY, 100 * DAY)
    assert at_last == {span: ahead + 100 * DAY - keep for span, keep in KEEP.items()}


def test_a_wrong_clock_at_the_start_removes_nothing() -> None:
    """Started with the time of another century, by the newest sample: nothing goes for an hour."""
    one = Retention(NOW + 74 * 365 * DAY, 0.0, NOW)
    assert one.before(KEEP, NOW + 74 * 365 * DAY + 60, 60.0)[0] <= NOW + 60 - HOUR


def test_time_that_goes_back_removes_nothing() -> None:
    """What looks new stays until the time has caught up."""
    one = Retention(NOW, 0.0, NOW)
    assert one.before(KEEP, NOW - 10 * DAY, 60.0)[0] == NOW - 10 * DAY - HOUR
    back = Retention(NOW - DAY, 0.0, NOW)
    assert back.before(KEEP, NOW - DAY, 0.0)[0] == NOW - DAY - HOUR


_STEPS = st.lists(
    st.tuples(
        st.floats(1, 7200),
        st.one_of(st.just(0.0), st.floats(-1e9, 1e9), st.floats(-120, 120)),
    ),
    max_size=30,
)


@given(_STEPS)
def test_no_sample_goes_before_its_time(steps: list[tuple[float, float]]) -> None:
    """Whatever the clock does, a sample is there for as long as it is kept, by the time that the
    server really ran; but for steps of less than a minute each."""
    now, steady = NOW, 0.0
    one = Retention(now, steady, None)
    written: list[tuple[float, float]] = []
    slack = 0.0
    for passed, jump in steps:
        written.append((now, steady))
        steady += passed
        now = max(0.0, now + passed + jump)
        slack += 61.0
        before = one.before(KEEP, now, steady)
        for span, keep in KEEP.items():
            gone = [taken for at, taken in written if at < before[span]]
            assert all(steady - taken >= keep - slack for taken in gone)
