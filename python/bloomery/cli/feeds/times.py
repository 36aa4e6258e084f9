"""Spans and times on a command line of feeds."""

import time

from bloomery.cli.parsing.declared import bad_parameter


def parse_span(text: str | float) -> float:
    """Seconds: 90, 15min, 12h, 7d."""
    from bloomery.errors import InvalidParameter
    from bloomery.feeds.times import seconds

    if isinstance(text, str) and text.strip().isdecimal():
        text = float(text)
    try:
        return seconds("the time", text)
    except InvalidParameter as why:
        raise bad_parameter(str(why)) from None


parse_span.__name__ = "time"  # as the help shows it


def show_time(when: float) -> str:
    """A time for a person, of UTC."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(when))
