"""What the commands about feeds take and print: spans, times and public keys."""

import time
from typing import TYPE_CHECKING

from bloomery.cli.parsing.declared import bad_parameter

if TYPE_CHECKING:
    from bloomery.feeds import PublicKey


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


def trusted_keys(given: list[str]) -> "list[PublicKey]":
    """The public keys that a command line trusts: each as text (ed25519:…), or a file of such
    lines."""
    from bloomery.feeds import PublicKey

    keys: list[PublicKey] = []
    for text in given:
        keys += [PublicKey.parse(text)] if text.startswith("ed25519:") else PublicKey.read(text)
    return keys
