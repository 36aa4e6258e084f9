"""Spans and times on a command line of feeds."""

import time


def parse_span(text: str | float) -> float:
    """Seconds: 90, 15min, 12h, 7d."""
    from bloomery.feeds.times import seconds

    if isinstance(text, str) and text.strip().isdecimal():
        text = float(text)
    return seconds("the time", text)


parse_span.__name__ = "time"  # as the help shows it


def show_time(when: float) -> str:
    """A time for a person, of UTC."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(when))
