"""What docs/nodes.md shows happens, and its settings are those that there are."""

import re
import shutil
import subprocess
from dataclasses import fields

from bloomery.service.config.settings import Settings
from conftest import missing
from docs.pages import DOCS, blocks
from integration.servers import RedisServer, Serve

PAGE = DOCS / "nodes.md"


def test_the_sessions_of_the_page(redis_server: RedisServer, serve: Serve) -> None:
    """With two nodes on one Redis, each command prints what is shown below it."""
    for tool in ("redis-cli", "curl"):
        if shutil.which(tool) is None:
            missing(f"{tool} (scripts/servers installs it)")
    one, other = (
        serve("--store", redis_server.url, "--set", "store-bootstrap-seconds=0.2") for _ in range(2)
    )
    real = {6380: one.resp_port, 8100: one.http_port, 6381: other.resp_port, 8101: other.http_port}
    done = 0
    for block in blocks(PAGE):
        for command, shown in re.findall(r"^> (.*)\n((?:(?!> ).*\n)*)", block.text, re.M):
            here = re.sub(r"\b(6380|6381|8100|8101)\b", lambda m: str(real[int(m[1])]), command)
            said = subprocess.run(
                ["bash", "-c", here.replace("localhost", "127.0.0.1")],
                capture_output=True,
                text=True,
                check=False,
            )
            assert said.stdout.strip() == shown.strip(), (command, said)
            done += 1
    assert done >= 5


def test_the_settings_of_the_page() -> None:
    """Each setting of nodes, with its default."""
    told = dict(re.findall(r"^\| `(store[a-z-]*)` \| (\S+) \|", PAGE.read_text("utf-8"), re.M))
    settings = Settings()
    names = [item.name.replace("_", "-") for item in fields(settings)]
    assert told == {name: settings.get(name) or "–" for name in names if name.startswith("store")}
