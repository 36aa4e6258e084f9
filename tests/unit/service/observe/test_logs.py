"""Logs: text for people, JSON for machines, and in neither a key or a secret."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.slow

SETTING_UP = "import logging, threading, warnings\nfrom bloomery.service.observe import logs\n"


def told(program: str, form: str, level: str = "info", **around: str) -> str:
    """What a program of its own tells on stderr."""
    whole = f"{SETTING_UP}logs.set_up({form!r}, {level!r})\n{program}"
    environment = {**os.environ, **around}
    done = subprocess.run(
        [sys.executable, "-c", whole], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout == ""
    return done.stderr


def objects(text: str) -> list[dict[str, Any]]:
    """Lines of JSON."""
    return [json.loads(line) for line in text.splitlines()]


def test_text() -> None:
    """A line has time, level, text and fields; a value that would run into others is quoted."""
    text = told("logs.tell('it is late', level='warning', by=2.5, name='a b', at='x')", "text")
    assert re.fullmatch(
        r'\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} warning  it is late by=2\.5 name="a b" at=x\n', text
    )
    assert "\x1b" not in text  # no terminal, no colour


def test_json() -> None:
    """A line is one object, with the fields beside time, level and message."""
    (line,) = objects(told("logs.tell('it is late', level='error', by=2.5, name='a b')", "json"))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line.pop("ts"))
    assert line == {
        "level": "error",
        "logger": "bloomery",
        "message": "it is late",
        "by": 2.5,
        "name": "a b",
    }


@pytest.mark.parametrize("form", ["text", "json"])
def test_one_line_each(form: str) -> None:
    """What a client chose, a name with line ends and colours in it, makes no lines of its own."""
    program = "logs.tell('a\\nb\\x1b[31m', name='c\\r\\nd\\x00')"
    text = told(program, form)
    assert text.count("\n") == 1
    assert text[:-1].isprintable()


def test_levels() -> None:
    """Less than the level is not told; it can be changed while the program runs."""
    program = (
        "for level in ('debug', 'info', 'warning', 'error'): logs.tell(level, level=level)\n"
        "logs.set_level('debug')\nlogs.tell('at last', level='debug')"
    )
    found = [line["message"] for line in objects(told(program, "json", "warning"))]
    assert found == ["warning", "error", "at last"]


def test_libraries() -> None:
    """The log has warnings of libraries and of Python, but not their lower levels, which may have
    complete URLs."""
    program = (
        "logging.getLogger('alembic').warning('from alembic')\n"
        "logging.getLogger('httpx').info('GET https://example.org/?token=1')\n"
        "warnings.warn('from Python')"
    )
    lines = objects(told(program, "json", "debug"))
    assert [line["logger"] for line in lines] == ["alembic", "py.warnings"]


@pytest.mark.parametrize("form", ["text", "json"])
def test_an_error_that_nobody_expected(form: str) -> None:
    """Its kind and its place are told, and not its text, which may quote a key."""
    program = (
        "def raising():\n    raise ValueError('key-of-a-client')\n"
        "try:\n    raising()\nexcept ValueError as problem:\n"
        "    logs.tell('failed', level='error', problem=problem)\n"
        "    logging.getLogger('asyncio').error('failed too', exc_info=problem)\n"
    )
    text = told(program, form)
    assert "key-of-a-client" not in text
    assert text.count("ValueError") == 2
    assert text.count("in raising") == 2
    assert text.lower().count("traceback") == 2


def test_errors_in_threads_callbacks_and_at_the_end() -> None:
    """An error in a thread, in a callback of the loop, and where nobody can catch it, is told
    without its text and without the arguments that the loop would show."""
    program = (
        "import asyncio, gc\n"
        "def fails(*keys):\n    raise RuntimeError('key-of-a-client')\n"
        "thread = threading.Thread(target=fails, name='the-log')\nthread.start()\nthread.join()\n"
        "async def main():\n"
        "    loop = asyncio.get_running_loop()\n"
        "    loop.set_exception_handler(logs.complain)\n"
        "    loop.call_soon(fails, 'key-of-a-client')\n"
        "    lost = loop.create_future()\n"
        "    lost.set_exception(RuntimeError('key-of-a-client'))\n"
        "    del lost\n    gc.collect()\n    await asyncio.sleep(0.01)\n"
        "asyncio.run(main())\n"
        "class Lost:\n    def __del__(self):\n        raise RuntimeError('key-of-a-client')\n"
        "Lost()\n"
    )
    lines = objects(told(program, "json"))
    assert "key-of-a-client" not in str(lines)
    assert [line["error"] for line in lines] == ["RuntimeError"] * 4
    assert "the-log" in lines[0]["message"]


@pytest.mark.parametrize("form", ["text", "json"])
def test_known_secrets(form: str) -> None:
    """A secret that the server knows is blotted out wherever it turns up, as is the password of a
    URL, also unquoted and in JSON."""
    program = (
        "logs.hide('postgresql://u:pass%2Fword@h/d')\nlogs.hide('q\"uote')\nlogs.hide('abc')\n"
        "logs.tell('cannot reach postgresql://u:pass%2Fword@h/d', error='pass/word is wrong')\n"
        "logs.tell('abc', value='q\"uote')\n"
    )
    text = told(program, form)
    assert "pass" not in text
    assert "uote" not in text
    assert text.count("***") == 3
    assert "abc" in text  # too short: it would blot out half of every line


def test_a_closed_stderr() -> None:
    """Nobody reads: nothing happens."""
    program = f"{SETTING_UP}logs.set_up()\nlogs.tell('x')\nprint('went on')"
    closed = f'exec {sys.executable} -c "$PROGRAM" 2>&-'
    environment = {**os.environ, "PROGRAM": program}
    done = subprocess.run(
        ["sh", "-c", closed], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "went on\n"
