"""Recommendations without repeats: of 300 candidates, those this reader has not had yet.

A filter for each reader, all in one file. A wrong maybe leaves out one article that the reader
would have been shown for the first time, at 1% one in a hundred; there are others. An article that
was shown is never shown again, whether the process ended well or was killed.
"""

import random
import tempfile
from pathlib import Path

from bloomery import FilterBank

ARTICLES = [f"article-{n}" for n in range(5_000)]
READERS = 500


def show(bank: FilterBank, reader: int, candidates: list[str], count: int) -> list[str]:
    """The first few that the reader has not had; from now on it has had them."""
    shown = bank.unseen(reader, candidates)[:count]
    bank.add_many(reader, shown)
    return shown


def main() -> None:
    rng = random.Random(7)
    had: dict[int, set[str]] = {reader: set() for reader in range(READERS)}
    missed = asked = 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "readers.bank"
        FilterBank(error_rate=0.01, keys_per_filter=100, path=path).close()
        for _day in range(4):
            # Each day another process: the file is all that it needs to know.
            with FilterBank.open(path) as bank:
                for reader, before in had.items():
                    candidates = rng.sample(ARTICLES, 300)
                    new = [article for article in candidates if article not in before]
                    missed += len(new) - len(bank.unseen(reader, candidates))
                    asked += len(new)
                    shown = show(bank, reader, candidates, count=rng.choice((5, 10, 50)))
                    assert before.isdisjoint(shown), "nobody is shown an article twice"
                    before.update(shown)
                bank.flush()  # from here on no power cut takes this day back
                nbytes, keys = bank.nbytes, bank.estimated_count

    assert missed < 0.01 * asked, "hardly an article is left out by mistake"
    print(f"{READERS} readers, {keys:,} articles shown, none twice; {nbytes:,} bytes")
    print(f"left out by mistake: {missed / asked:.2%} of what was new")


if __name__ == "__main__":
    main()
