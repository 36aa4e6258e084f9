"""What docs/http.md shows happens: its sessions with curl, against a real server; its lists are
those of the application."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from fastapi.routing import APIRoute

from bloomery import errors
from bloomery.service.http import app, problems
from conftest import missing
from docs.pages import DOCS, blocks
from integration.servers import Serve

PAGE = DOCS / "http.md"


def test_the_sessions_of_the_page(serve: Serve, tmp_path: Path) -> None:
    """Each command of the page's sessions prints what is shown below it."""
    if shutil.which("curl") is None:
        missing("curl (scripts/servers installs it)")
    server = serve("--set", "sample-seconds=0")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = 0
    for block in blocks(PAGE):
        for command, shown in re.findall(r"^> (.*)\n((?:(?!> ).*\n)*)", block.text, re.M):
            here = command.replace("localhost:8100", f"127.0.0.1:{server.http_port}")
            said = subprocess.run(
                ["bash", "-c", here],
                capture_output=True,
                text=True,
                cwd=tmp_path,
                env={**os.environ, "PATH": path},
                check=False,
            )
            pattern = ".*".join(re.escape(part) for part in shown.strip().split("…"))
            assert re.fullmatch(pattern, said.stdout.strip(), re.S), (command, said)
            done += 1
    assert done >= 25


def test_the_page_has_every_endpoint() -> None:
    """The table of endpoints is the application's, each with the operation that it takes."""
    told = {
        endpoint: operation
        for endpoints, operation in re.findall(
            r"^\| (`(?:GET|POST|PUT|PATCH|DELETE) /.*?`) \| ?(\w*) \|",
            PAGE.read_text("utf-8"),
            re.M,
        )
        for endpoint in re.findall(r"`(.*?)`", endpoints)
    }
    there = {
        f"{method} {route.path}": (route.openapi_extra or {}).get("x-operation", "")
        for route in app.make().routes
        if isinstance(route, APIRoute) and route.include_in_schema  # others are for pages
        for method in route.methods or ()
    }
    assert told == there | {"GET /bloomery.js": ""}  # a file: the API's document has it not


def test_the_page_has_every_problem() -> None:
    """The table of problems is the one of statuses, and that has every error of the catalogue that
    can come from a server."""
    rows = re.findall(r"^\| (\d{3}) \| (.*) \|$", PAGE.read_text("utf-8"), re.M)
    told = {
        code: int(status)
        for status, codes in rows
        for code in re.findall(r"`([a-z-]+)`", codes)
        if code != "invalid-request" or status == "400"
    }
    assert told == problems.STATUSES
    codes = {
        kind.code
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.BloomeryError)
    }
    elsewhere = {"conflicting-keys", "feed-refused", "feed-unavailable"}  # of the library
    # With a folder that is in use there is no server.
    assert codes - problems.STATUSES.keys() == {"folder-in-use", *elsewhere}
