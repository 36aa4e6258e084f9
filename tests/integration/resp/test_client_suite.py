"""redis-py's own tests of BF and CF, as redis-py has them, against `bloomery serve`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from conftest import missing
from integration.resp.wire import Wire
from integration.servers import BloomeryServer

SOURCES = Path(sys.prefix) / "client-tests"
# Structures that this server does not have: a test may end where it comes to one of them.
OTHERS = re.compile(r"unknown command '(?:CMS|TDIGEST|TOPK)\.|unknown command 'SET'")
# What is only about BF and CF passes to its end.
OURS = {
    *("test_bf_add", "test_bf_insert", "test_bf_scandump_and_loadchunk", "test_bf_info"),
    *("test_bf_card", "test_cf_add_and_insert", "test_cf_exists_and_del"),
}


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """redis-py's sources, unpacked."""
    found = sorted(SOURCES.glob("redis-*.tar.gz"))
    if not found:
        missing("redis-py's sources (`make test` fetches them)")
    folder = tmp_path_factory.mktemp("redis-py")
    with tarfile.open(found[-1]) as archive:
        archive.extractall(folder, filter="data")
    [top] = folder.iterdir()
    (top / "redis").rename(top / "unused")  # the one that is installed is tested
    return top


@pytest.mark.slow
@pytest.mark.parametrize(("layout", "protocol"), [("bloomery", 3), ("redisbloom", 2)])
def test_nothing_fails_at_bf_or_cf(
    suite: Path, layout: str, protocol: int, empty: BloomeryServer, tmp_path: Path
) -> None:
    """The suite starts, and no test fails but where it comes to another structure."""
    with Wire(empty.resp_port) as wire:
        assert wire.ask("CONFIG", "SET", "bf-layout", layout) == b"+OK\r\n"
    url, report = f"redis://127.0.0.1:{empty.resp_port}", tmp_path / "report.xml"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            *("--protocol", str(protocol), "--redis-url", f"{url}/0", "--redis-mod-url", url),
            *(f"--junitxml={report}", "-k", "bf or cf or create", "tests/test_bloom.py"),
        ],
        cwd=suite,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},  # ours are a second to import
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert report.exists(), done.stdout + done.stderr
    cases = list(ElementTree.parse(report).iter("testcase"))
    failed = {str(case.get("name")): _why(case) for case in cases if _why(case)}
    wrong = {name: why for name, why in failed.items() if not OTHERS.search(why)}
    assert wrong == {}
    passed = {str(case.get("name")) for case in cases} - failed.keys()
    assert passed >= OURS
    assert len(cases) >= 10


def _why(case: ElementTree.Element) -> str:
    """Why a test failed; nothing if it did not."""
    return "".join(
        f"{one.get('message', '')} {one.text or ''}"
        for one in case
        if one.tag in ("failure", "error")
    )
