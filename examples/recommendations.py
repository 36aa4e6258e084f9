"""Recommendations without repeats: of 300 candidates, those this reader has not had lately.

A `SeenStore` has a filter for each reader, in files that survive a crash, and forgets after a
window: an article that was shown within the last 30 days is never shown again. A wrong maybe leaves
out one article that the reader would have been shown for the first time, at 1% one in a hundred;
there are others.
"""

import random
import tempfile

from bloomery.apps import SeenStore

ARTICLES = [f"article-{n}" for n in range(5_000)]
READERS = 300
DAY = 86_400


def main() -> None:
    rng = random.Random(7)
    shown_on: dict[int, dict[str, int]] = {reader: {} for reader in range(READERS)}
    left_out = asked = again = 0
    now = 1_700_000_000.0  # a clock of our own, so that 48 days pass in seconds

    def clock() -> float:
        return now

    with tempfile.TemporaryDirectory() as folder:
        for day in range(0, 48, 8):
            # Each time another process: the folder is all that it needs to know.
            with SeenStore(folder, window="30d", articles_per_user=100, clock=clock) as seen:
                for reader, before in shown_on.items():
                    candidates = rng.sample(ARTICLES, 300)
                    fresh = seen.fresh(reader, candidates)
                    new = [article for article in candidates if article not in before]
                    asked += len(new)
                    left_out += len(set(new) - set(fresh))

                    shown = seen.fresh(reader, candidates, limit=rng.choice((5, 10, 50)))
                    seen.mark(reader, shown)
                    for article in shown:
                        last = before.get(article, -1_000)
                        assert day - last >= 30, "nobody is shown an article twice in 30 days"
                        again += last >= 0
                        before[article] = day
                seen.flush()  # from here on no power cut takes this day back
                facts = seen.info()
            now += 8 * DAY

    assert left_out < 0.01 * asked, "hardly an article is left out by mistake"
    print(f"{READERS} readers, {facts['marks']:,} marks in the window, {facts['nbytes']:,} bytes")
    print(
        f"left out by mistake: {left_out / asked:.2%} of what was new; shown again later: {again}"
    )


if __name__ == "__main__":
    main()
