"""`bloomery nodes`: which options belong together. The nodes themselves are integration tests."""

import pytest

from unit.cli.conftest import Run


@pytest.mark.parametrize(
    "words", [["recover"], ["recover", "--keep", "--discard"], ["--keep"], ["list", "--discard"]]
)
def test_recover_takes_one_decision(run: Run, words: list[str]) -> None:
    """An operator keeps or discards, and only with `recover`."""
    told = run("nodes", *words, code=2).stderr.decode()
    assert "either --keep or --discard" in " ".join(told.split())
