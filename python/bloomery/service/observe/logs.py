"""The server's log, on stderr: text for people, or a line of JSON for machines.

Everything goes through the logger `bloomery`; what libraries warn of goes the same way. Neither a
key nor a secret comes into it: of an exception that nobody expected its type and its place in the
code are logged and not its text, which may quote either; and secrets that are known (`hide`) are
redacted from every line.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from bloomery import errors
from bloomery.service.config.settings import HIDDEN

LOGGER = logging.getLogger("bloomery")
_COLOURS = {"debug": "2", "warning": "33", "error": "31", "critical": "31"}
_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
_SHORTEST_SECRET = 4  # a shorter one would blot out half of every line
_secrets: list[str] = []


class Say(Protocol):
    """A function that writes a line to the operator's log, as `tell` does. Neither its text nor its
    fields have a key or a secret in them; `problem` is an exception that nobody expected."""

    def __call__(self, text: str, level: str = ..., **fields: Any) -> None: ...


def set_up(form: str = "text", level: str = "info") -> None:
    """Let everything go to stderr, in one of the two forms."""
    logging.raiseExceptions = False  # a closed stderr is no reason to stop
    # Python has no stderr where the shell closed it.
    handler = logging.StreamHandler(sys.stderr) if sys.stderr else logging.NullHandler()
    colour = os.isatty(2) and not os.environ.get("NO_COLOR")
    handler.setFormatter(_JsonFormatter() if form == "json" else _TextFormatter(colour))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)  # of libraries; httpx, say, tells whole URLs below that
    logging.captureWarnings(True)
    threading.excepthook = lambda ended: tell(
        f"the thread {ended.thread.name if ended.thread else '?'} ended by an error",
        level="error",
        problem=ended.exc_value,
    )
    sys.unraisablehook = lambda lost: tell(
        "an error where nothing could be told of it", level="error", problem=lost.exc_value
    )
    set_level(level)


def set_level(level: str) -> None:
    """Log no less than this: debug, info, warning or error."""
    LOGGER.setLevel(_LEVELS[level])


def hide(secret: str) -> None:
    """Redact a secret from all lines from now on; of a URL, its password."""
    parts = [secret]
    if "://" in secret:
        try:
            password = urlsplit(secret).password or ""
        except ValueError:
            password = ""
        parts += [password, unquote(password)]
    parts += [json.dumps(part)[1:-1] for part in parts]  # as it is in a line of JSON
    for part in parts:
        if len(part) >= _SHORTEST_SECRET and part not in _secrets:
            _secrets.append(part)
    _secrets.sort(key=len, reverse=True)


def tell(
    text: str, level: str = "info", problem: BaseException | None = None, **fields: Any
) -> None:
    """Log a line; `problem` adds where in the code an exception was raised."""
    LOGGER.log(_LEVELS[level], "%s", text, exc_info=problem, extra={"fields": fields})


def complain(loop: object, context: Mapping[str, Any]) -> None:
    """An event loop's exception handler. The loop's own would print the arguments of callbacks,
    among which keys may be."""
    text = str(context.get("message", "")).partition("<")[0].partition("(")[0].strip()
    problem = context.get("exception")
    tell(text or "an error that nobody waited for", level="error", problem=problem)


class _TextFormatter(logging.Formatter):
    """`2026-01-31 12:00:00.123 warning  text  name=value`; a traceback on lines of its own."""

    def __init__(self, colour: bool) -> None:
        super().__init__()
        self.colour = colour

    def format(self, record: logging.LogRecord) -> str:
        """Make a record text."""
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        level = record.levelname.lower()
        padded = f"{level:<8}"
        if self.colour and level in _COLOURS:
            padded = f"\x1b[{_COLOURS[level]}m{padded}\x1b[0m"
        line = f"{at}.{int(record.msecs):03d} {padded} {_printable(record.getMessage())}"
        for name, value in _fields(record).items():
            line += f" {name}={_field_text(value)}"
        frames = _frames(record)
        return _redact(
            "\n".join([line, "Traceback, the last call at its end:", *frames] if frames else [line])
        )


class _JsonFormatter(logging.Formatter):
    """One object a line: ts, level, logger, message, and the fields; traceback as a list."""

    def format(self, record: logging.LogRecord) -> str:
        """Make a record JSON."""
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        fields: dict[str, Any] = {
            "ts": f"{at}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name, value in _fields(record).items():
            fields.setdefault(name, value)
        if frames := _frames(record):
            fields["traceback"] = frames
        return _redact(json.dumps(fields, default=str))


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    fields = dict(getattr(record, "fields", {}))
    if record.exc_info and record.exc_info[1] is not None:
        fields["error"] = _described(record.exc_info[1])
    return fields


def _described(problem: BaseException) -> str:
    kind = type(problem).__name__
    if isinstance(problem, OSError) and not isinstance(problem, errors.BloomeryError):
        return f"{kind}: {problem.strerror}" if problem.strerror else kind
    return kind


def _frames(record: logging.LogRecord) -> list[str]:
    if not record.exc_info or record.exc_info[2] is None:
        return []
    frames = traceback.extract_tb(record.exc_info[2])
    return [f"  {frame.filename}:{frame.lineno} in {frame.name}" for frame in frames]


def _field_text(value: Any) -> str:
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return text if text.isprintable() and " " not in text and text else json.dumps(text)


def _printable(text: str) -> str:
    """The same text on one line: a name that a client chose must not make lines of its own."""
    return text if text.isprintable() else json.dumps(text, ensure_ascii=False)[1:-1]


def _redact(line: str) -> str:
    for secret in _secrets:
        line = line.replace(secret, HIDDEN)
    return line
