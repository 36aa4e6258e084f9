"""The health check of a container: whoever goes by it ends a server that is not well."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bloomery import errors
from unit.service.inside import running

SCRIPT = Path(__file__).parents[3] / "deploy" / "healthcheck.py"


async def healthcheck(address: str) -> int:
    """Its exit code, for a server at this address."""
    around = {**os.environ, "BLOOMERY_HTTP_PORT": address.rpartition(":")[2]}
    command = [sys.executable, str(SCRIPT)]
    return (await asyncio.to_thread(subprocess.run, command, env=around, timeout=60)).returncode


@pytest.mark.slow
def test_a_server_that_only_refuses_writes_is_well(tmp_path: Path) -> None:
    """It answers those who ask, and to end it would take that from them too."""

    async def run() -> None:
        async with running(tmp_path) as server:
            assert await healthcheck(server.http_address) == 0
            log = server.parts.file_log
            assert log is not None
            async with log.frozen(errors.LogUnavailable("the disk is full")):
                assert server.not_ready(writes=True)
                assert await healthcheck(server.http_address) == 0
        assert await healthcheck(server.http_address) == 1

    asyncio.run(run())
