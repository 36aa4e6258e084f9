"""The BLOOMERY_* settings of a Scrapy project, checked before anything is crawled."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from bloomery.errors import InvalidConfiguration, InvalidParameter
from bloomery.sizing import check_sizes

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.crawler import Crawler

Order = Literal["lifo", "fifo"]
_SERVERS = ("http", "https")
_REDIS = (
    *("redis", "rediss", "unix"),
    *("redis+cluster", "rediss+cluster", "redis+sentinel", "rediss+sentinel"),
)
_DEFAULTS: dict[str, Any] = {
    "BLOOMERY_CAPACITY": 10_000_000,
    "BLOOMERY_ERROR_RATE": 1e-6,
    "BLOOMERY_EXACT": False,
    "BLOOMERY_URL": None,
    "BLOOMERY_NAME": None,
    "BLOOMERY_TOKEN": None,
    "BLOOMERY_QUEUE": "lifo",
}


@dataclass(frozen=True)
class JobSettings:
    """What a spider's dupefilter and scheduler are made with."""

    capacity: int
    error_rate: float
    exact: bool
    url: str | None
    name: str
    token: str | None
    order: Order
    folder: Path | None  # JOBDIR

    @property
    def over_http(self) -> bool:
        """Whether the shared filter is a server's and not Redis's."""
        return urlsplit(self.url or "").scheme in _SERVERS


def read_settings(crawler: Crawler) -> JobSettings:
    """Return the settings of a crawler; InvalidConfiguration has a line for each that is wrong."""
    given = {name: crawler.settings.get(name, default) for name, default in _DEFAULTS.items()}
    problems = [_unknown(name) for name in crawler.settings if _is_unknown(name)]

    def checked(name: str, read: Callable[[Any], Any]) -> Any:
        try:
            return read(given[name])
        except (ValueError, TypeError) as problem:
            shown = (
                "wrong" if name == "BLOOMERY_URL" else repr(given[name])
            )  # it may have a password
            problems.append(f"{name} is {shown}: {problem}")
            return _DEFAULTS[name]

    capacity = checked("BLOOMERY_CAPACITY", _capacity)
    error_rate = checked("BLOOMERY_ERROR_RATE", _error_rate)
    exact = checked("BLOOMERY_EXACT", _flag)
    url = checked("BLOOMERY_URL", _url)
    order = checked("BLOOMERY_QUEUE", _order)
    folder = crawler.settings["JOBDIR"]
    if exact and url and urlsplit(url).scheme in _SERVERS:
        problems.append(
            "BLOOMERY_EXACT is on and BLOOMERY_URL is that of a `bloomery serve`, which has filters"
            " and no exact sets: give the URL of a Redis, or set one of them"
        )
    if exact and not url and not folder:
        problems.append(
            "BLOOMERY_EXACT is on and JOBDIR is not set: the exact set is kept there: set JOBDIR"
        )
    if problems:
        raise InvalidConfiguration(*problems)
    spider = getattr(crawler.spidercls, "name", None) or "spider"
    return JobSettings(
        capacity,
        error_rate,
        exact,
        url,
        str(given["BLOOMERY_NAME"] or f"scrapy:{spider}:seen"),
        given["BLOOMERY_TOKEN"] or None,
        order,
        Path(folder) if folder else None,
    )


def _is_unknown(name: object) -> bool:
    return isinstance(name, str) and name.startswith("BLOOMERY_") and name not in _DEFAULTS


def _unknown(name: str) -> str:
    near = get_close_matches(name, _DEFAULTS, n=1)
    known = f"did you mean {near[0]}?" if near else f"there are {', '.join(_DEFAULTS)}"
    return f"{name} is not a setting: {known}"


def _capacity(value: Any) -> int:
    number = float(value) if isinstance(value, str) else value  # -s BLOOMERY_CAPACITY=1e8
    if isinstance(number, bool) or number != int(number):
        raise InvalidParameter("must be a whole number of requests, such as 10_000_000")
    return check_sizes(int(number), 0.01)[0]


def _error_rate(value: Any) -> float:
    text = isinstance(value, str) and not value.strip().endswith("%")
    return check_sizes(1000, float(value) if text else value)[1]


def _flag(value: Any) -> bool:
    words = {
        "1": True,
        "true": True,
        "on": True,
        "0": False,
        "false": False,
        "off": False,
        "": False,
    }
    flag = words.get(str(value).strip().lower())
    if flag is None:
        raise InvalidParameter("must be True or False")
    return flag


def _url(value: Any) -> str | None:
    if value in (None, ""):
        return None
    if urlsplit(str(value)).scheme not in _SERVERS + _REDIS:
        raise InvalidParameter(
            "must be http://host:port of a `bloomery serve`, or redis://host:port/0 and the like"
        )
    return str(value)


def _order(value: Any) -> Order:
    if value not in ("lifo", "fifo"):
        raise InvalidParameter("must be 'lifo' (depth first, as Scrapy's) or 'fifo'")
    return value  # type: ignore[no-any-return]
