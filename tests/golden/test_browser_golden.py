"""The vectors that readers in other languages are tried on are what the library gives today."""

import json

from golden.make_browser import ANSWERS, KEYS, answers


def test_the_vectors_are_the_library_s() -> None:
    """Every key under every hasher and seed, by its hash."""
    golden = json.loads(ANSWERS.read_text("ascii"))
    assert golden["keys"] == [[kind, value] for kind, value, _ in KEYS]
    assert golden["answers"] == answers()
