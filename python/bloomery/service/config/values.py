"""Parsers of settings: from the text that CONFIG and files have to a value.

Each raises ValueError for a wrong text; its docstring is the end of the message, and says what
would be right.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from bloomery.filters.rotating import parse_window

_UNITS = {
    "": 1,
    "b": 1,
    "k": 1000,
    "kb": 1 << 10,
    "m": 1000**2,
    "mb": 1 << 20,
    "g": 1000**3,
    "gb": 1 << 30,
}


def _nbytes(text: str) -> int:
    """A number of bytes as Redis writes it: 100mb, 1gb, 4096."""
    digits = text.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
    unit = _UNITS.get(text[len(digits) :].lower())
    if unit is None:
        raise ValueError
    return int(digits) * unit


def between(low: float, high: float, read: Callable[[str], Any] = int) -> Callable[[str], Any]:
    """A number in a range, both ends included."""

    def check(text: str) -> Any:
        value = read(text)
        if not low <= value <= high:
            raise ValueError
        return value

    check.__doc__ = f"must be in the range [{low:.17g}, {high:.17g}]"
    return check


def size(low: int, high: int) -> Callable[[str], Any]:
    """A number of bytes in a range."""
    check = between(low, high, _nbytes)
    check.__doc__ = f"{check.__doc__} of bytes: 4096, 512mb or 4gb, say"
    return check


def rate(text: str) -> float:
    """must be in the range (0, 1)"""
    value = float(text)
    if not 0 < value < 1:
        raise ValueError
    return min(value, 0.25)  # as RedisBloom does


def one_of(*words: str) -> Callable[[str], str]:
    """One of some words, in capitals or not."""

    def check(text: str) -> str:
        if text.lower() not in words:
            raise ValueError
        return text.lower()

    check.__doc__ = f"must be one of {', '.join(words)}"
    return check


def yes_no(text: str) -> bool:
    """must be yes or no"""
    if text.lower() not in {"yes", "true", "on", "1", "no", "false", "off", "0"}:
        raise ValueError
    return text.lower() in {"yes", "true", "on", "1"}


def url(text: str) -> str:
    """must be empty, or an http:// or https:// URL with a host"""
    parts = urlsplit(text)
    if text and (parts.scheme not in ("http", "https") or not parts.hostname):
        raise ValueError
    return text


def secret(text: str) -> str:
    """must be 16 to 1,024 printable characters"""
    if not 16 <= len(text) <= 1024 or not text.isprintable():
        raise ValueError
    return text


def host(text: str) -> str:
    """must be a host's name or its address: 127.0.0.1, ::1, 0.0.0.0 for all of them"""
    bare = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    if not bare or bare == "*" or any(char.isspace() or not char.isprintable() for char in bare):
        raise ValueError
    return bare


def hosts(text: str) -> str:
    """must be names of hosts, separated by commas: filters.example.org, *.example.org, * for any,
    or https://filters.example.org where a proxy speaks TLS"""
    names = [host.strip().lower().rstrip("/") for host in text.split(",")]
    if text.strip() and not all(_HOSTS.fullmatch(host) for host in names):
        raise ValueError
    return ",".join(names)


_HOSTS = re.compile(r"\*|(https?://|\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*\.?(:[0-9]{1,5})?")


def line(text: str) -> str:
    """must be one line of text"""
    if not text.isprintable():
        raise ValueError
    return text


def prefix(text: str) -> str:
    """must be 1 to 200 printable characters without braces, which Redis finds a key's slot by"""
    if not 1 <= len(text) <= 200 or not text.isprintable() or set(text) & {"{", "}"}:
        raise ValueError
    return text


def cluster(text: str) -> str:
    """must be at most 63 printable characters; may be empty"""
    if len(text) > 63 or not text.isprintable():
        raise ValueError
    return text


def keep(text: str) -> int:
    """must be seconds, or a time such as 15min, 12h or 90d, of ten years at most; 0: none"""
    seconds = int(text) if text.isdecimal() else int(parse_window(text))
    if seconds > 10 * 365 * 86400:
        raise ValueError
    return seconds
