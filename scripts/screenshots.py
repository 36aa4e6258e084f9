"""Screenshots of every page of a server, in both themes, wide and narrow: `make screenshots`.

`python scripts/screenshots.py [FOLDER]`: starts a server with some filters, drives traffic for half
a minute so that the charts have something to show, and writes docs/images/pages/*.webp. Look at
them before they are committed. Needs chromium and playwright (requirements/dev.txt).
"""

from __future__ import annotations

import base64
import math
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

TREE = Path(__file__).resolve().parent.parent
FOLDER = TREE / "docs" / "images" / "pages"
WIDTHS = (1280, 390)
MOST_HEIGHT = 1600  # pixels; a page may be longer
QUALITY = 40  # of WebP: text is sharp, and a page takes 20 to 60 KB
TRAFFIC = 30.0  # seconds
PAGES = {
    "filters": "/ui/filters",
    "filter": "/ui/filters/seen-urls",
    "filter-rotating": "/ui/filters/last-minute",
    "planner": "/ui/planner",
    "playground": "/ui/playground",
    "nodes": "/ui/nodes",
    "api": "/docs",
}
FILTERS: dict[str, dict[str, Any]] = {
    "seen-urls": {"capacity": 20_000, "kind": "bloom", "error_rate": 0.01},
    "sessions": {"capacity": 8_000, "kind": "counting", "error_rate": 0.001},
    "carts": {"capacity": 4_000, "kind": "deletable"},
    "emails": {"capacity": 100_000, "kind": "cuckoo", "error_rate": 0.0001},
    "last-minute": {"capacity": 2_000, "kind": "rotating", "window": "24s", "generations": 6},
    "crawler": {"capacity": 1_000, "kind": "scalable"},
    "articles:read": {"capacity": 50, "kind": "bank"},
    "legacy": {"capacity": 1_000, "kind": "redisbloom"},
}


@contextmanager
def serving(*arguments: str) -> Iterator[tuple[int, int]]:
    """A server on an empty folder; its ports, of the Redis protocol and of HTTP."""
    with tempfile.TemporaryDirectory() as data:
        command = [sys.executable, "-m", "bloomery", "serve", "--data", data, *arguments]
        ports = ["--resp-port", "0", "--http-port", "0", "--set", "sample-seconds=1"]
        process = subprocess.Popen([*command, *ports], stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            found = re.search(r"resp=\S+:(\d+) http=\S+:(\d+)", process.stdout.readline())
            assert found is not None, "the server did not start"
            yield int(found[1]), int(found[2])
        finally:
            process.terminate()
            process.wait(60)


def create(http: int) -> None:
    """Make the filters."""
    from bloomery import Client

    with Client(f"http://127.0.0.1:{http}") as client:
        for name, options in FILTERS.items():
            client.create(name, **options)


def drive(resp: int, over: threading.Event) -> None:
    """Use them, now more and now less, as people do."""
    import redis

    numbers, turn = random.Random(1), 0
    with redis.Redis(port=resp) as client:
        while not over.wait(0.25):
            turn += 1
            many = int(60 + 50 * math.sin(turn / 20) + numbers.randrange(20))
            keys = [f"key {numbers.randrange(30_000)}" for _ in range(many)]
            asked = [f"key {numbers.randrange(60_000)}" for _ in range(60 + numbers.randrange(40))]
            for name, options in FILTERS.items():
                if options["kind"] != "bank":
                    client.execute_command("BF.MADD", name, *keys)
                    client.execute_command("BF.MEXISTS", name, *asked)


def take(page: Any, target: Path) -> None:
    """Write what a page shows, from its top, as WebP."""
    width = page.viewport_size["width"]
    tall = int(page.evaluate("document.documentElement.scrollHeight"))
    height = min(tall, MOST_HEIGHT)
    clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
    options = {"format": "webp", "quality": QUALITY, "captureBeyondViewport": True, "clip": clip}
    shot = page.context.new_cdp_session(page).send("Page.captureScreenshot", options)
    target.write_bytes(base64.b64decode(shot["data"]))
    print(f"{target.name}: {target.stat().st_size:,} bytes")


def look(browser: Any, http: int, pages: dict[str, str], folder: Path) -> None:
    """Take all pages in both themes and widths."""
    for theme in ("light", "dark"):
        for width in WIDTHS:
            size = {"width": width, "height": 900}
            window = browser.new_context(viewport=size, color_scheme=theme, locale="en-GB")
            for name, path in pages.items():
                page = window.new_page()
                answer = page.goto(f"http://127.0.0.1:{http}{path}")
                if answer.ok:
                    if page.locator("#test-key").count():  # so that a test of a key is seen
                        page.locator("#test-key").fill("key 1")
                        page.locator("#test button").click()
                    page.wait_for_timeout(2500)
                    take(page, folder / f"{name}-{theme}-{width}.webp")
                page.close()
            window.close()


def main() -> None:
    """Take all of them."""
    from playwright.sync_api import sync_playwright

    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        options = {"executable_path": shutil.which("chromium"), "args": ["--no-sandbox"]}
        browser = playwright.chromium.launch(**options)  # type: ignore[arg-type]
        with serving() as (resp, http):
            create(http)
            over = threading.Event()
            driver = threading.Thread(target=drive, args=(resp, over))
            driver.start()
            try:
                time.sleep(TRAFFIC)
                look(browser, http, PAGES, folder)
            finally:
                over.set()
                driver.join()
        browser.close()


if __name__ == "__main__":
    main()
