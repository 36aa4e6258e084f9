"""What pages of the documentation show happens: their sessions with redis-cli, against a real
server."""

import re
import shutil
import subprocess

import pytest

from conftest import missing
from docs.pages import DOCS, blocks
from integration.servers import Serve

PROMPT = "127.0.0.1:6380> "


@pytest.mark.parametrize(("page", "least"), [("service.md", 8), ("policies.md", 4)])
def test_the_sessions_of_the_page(serve: Serve, page: str, least: int) -> None:
    """Each command of the page's redis-cli sessions gives the reply that is shown below it."""
    if shutil.which("redis-cli") is None:
        missing("redis-cli (scripts/servers installs it)")
    server = serve()
    done = 0
    for block in blocks(DOCS / page):
        for command, shown in re.findall(
            rf"^{re.escape(PROMPT)}(.*)\n((?:(?!{re.escape(PROMPT)}).*\n)*)", block.text, re.M
        ):
            asked = ["redis-cli", "--no-raw", "-p", str(server.resp_port), *command.split()]
            said = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
            assert said.strip() == shown.strip(), command
            done += 1
    assert done >= least
