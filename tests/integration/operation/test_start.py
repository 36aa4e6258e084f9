"""The start of a server, from its command."""

import re
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import pytest

from integration.resp.wire import Wire
from integration.servers import BloomeryServer, free_ports
from waiting import wait_until

_PROGRAM = """
import gc, os, signal, sys, threading
from bloomery.cli import main

seen = []
late = threading.Event()

def watch():
    while not gc.get_freeze_count():  # the filters are not yet loaded
        seen.append(gc.isenabled())
        late.wait(0.001)
    while not gc.isenabled():
        late.wait(0.001)
    print("collects again:", not seen[-1], flush=True)
    os.kill(os.getpid(), signal.SIGTERM)

threading.Thread(target=watch, daemon=True).start()
sys.exit(main(["serve", "--data", sys.argv[1], "--resp-port", "0", "--http-port", "0"]))
"""


@pytest.mark.slow
def test_garbage_is_collected_from_when_the_filters_are_loaded(tmp_path: Path) -> None:
    """While it starts it is not; a server that never did would take more memory each day."""
    command = [sys.executable, "-c", _PROGRAM, str(tmp_path / "data")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "collects again: True" in done.stdout


# Imported after RESP answers: half of the time of a start.
LATE = {
    *("alembic", "fastapi", "jinja2", "prometheus_client", "pydantic", "sqlalchemy"),
    *("starlette", "bloomery.service.http.pages.routes"),
}


class FreshServer(BloomeryServer):
    """A server that imports everything itself, and shows when."""

    fresh = True

    def command(self) -> list[str]:
        python, *rest = super().command()
        return [python, "-X", "importtime", *rest, "--set", "log-level=debug"]


@pytest.fixture
def fresh(tmp_path: Path) -> FreshServer:
    """A server at ports of its own, which is not started yet."""
    resp, http = free_ports(2)
    return FreshServer(tmp_path, "--resp-port", str(resp), "--http-port", str(http))


def imported(lines: str) -> set[str]:
    """Return the modules that `-X importtime` lists."""
    return set(re.findall(r"^import time:.*\| +(\S+)$", lines, re.M))


def test_resp_answers_before_http_is_imported(fresh: FreshServer) -> None:
    """RESP clients do not wait for the imports of HTTP, the registry and the metrics."""
    fresh.start()
    try:
        before, said, after = fresh.printed().partition("RESP answers at ")
        assert said
        assert "bloomery.service.resp.server" in imported(before)
        assert imported(before) & LATE == set()
        # Alembic follows on the thread that writes the registry, Jinja2 with the first page.
        assert httpx.get(f"{fresh.url}/ui/filters").status_code == 200
        assert wait_until(lambda: imported(fresh.printed()) >= LATE), fresh.printed()
        assert "bloomery ready" in after
    finally:
        assert fresh.stop() == 0


def test_http_requests_wait_while_http_is_imported(fresh: FreshServer) -> None:
    """From the first moment that the HTTP port is open, no request fails: while the filters are
    loaded it is refused with a 503, then it waits. RESP answers while they wait."""
    resp, http = (int(port) for port in (fresh.arguments[1], fresh.arguments[3]))
    answers: set[tuple[str, int, str]] = set()
    ended = threading.Event()

    def ask() -> None:
        with httpx.Client(base_url=f"http://127.0.0.1:{http}", timeout=60) as client:
            while not ended.is_set():
                for path in ("/healthz", "/readyz", "/filters", "/metrics", "/"):
                    try:
                        answer = client.get(path)
                    except httpx.ConnectError:
                        continue  # the port is closed
                    text = answer.text if path == "/readyz" else ""
                    answers.add((path, answer.status_code, text))

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        fresh.spawn()
        assert wait_until(lambda: "RESP answers at " in fresh.printed()), fresh.printed()
        with Wire(resp) as wire:
            assert wire.ask("BF.ADD", "early", "key") == b":1\r\n"
        assert wait_until(fresh.ready), fresh.printed()
        done = httpx.post(f"http://127.0.0.1:{http}/filters/early/contains", json={"key": "key"})
        assert done.json() == {"maybe": True}
        wanted = {("/filters", 200, ""), ("/readyz", 200, "ok\n"), ("/", 303, "")}
        assert wait_until(lambda: answers >= wanted), answers
    finally:
        ended.set()
        for thread in threads:
            thread.join()
        assert fresh.stop() == 0
    # Never a 500, and never "draining", which is the end.
    assert {(status, text) for _, status, text in answers} <= {
        *((200, ""), (303, ""), (503, "")),  # a page, a redirect to it, loading
        *((200, "ok\n"), (503, "loading\n")),
    }
    assert ("/healthz", 503, "") not in answers


def test_stop_during_the_start(fresh: FreshServer) -> None:
    """SIGTERM while HTTP is imported ends the server in order, with everything saved."""
    fresh.spawn()
    assert wait_until(lambda: "RESP answers at " in fresh.printed()), fresh.printed()
    with Wire(int(fresh.arguments[1])) as wire:
        assert wire.ask("BF.ADD", "early", "key") == b":1\r\n"
    assert fresh.stop() == 0
    fresh.start()
    with Wire(fresh.resp_port) as wire:
        assert wire.ask("BF.EXISTS", "early", "key") == b":1\r\n"
    assert fresh.stop() == 0


def test_wrong_registry_ends_the_start(fresh: FreshServer) -> None:
    """A URL whose kind is wrong is refused before RESP answers."""
    fresh.arguments = (*fresh.arguments, "--registry", "mysql://localhost/filters")
    fresh.spawn()
    assert fresh.process is not None
    assert fresh.process.wait(60) == 2
    fresh.process = None
    assert "the registry's URL begins with 'mysql'" in fresh.printed()
    assert "RESP answers" not in fresh.printed()
