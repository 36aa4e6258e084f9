"""A search engine that caches results for terms that were asked for before.

Most terms are typed once; their results would push those of the popular ones out. A term is worth
caching when somebody asks for it a second time within the day. A wrong maybe caches one term in a
hundred at its first time.
"""

import random

from cachetools import LRUCache

from bloomery import RotatingBloomFilter
from bloomery.apps import AdmissionCache

DOCUMENTS = {
    number: {f"word{number % 97}", f"word{number % 101}", f"word{number % 103}"}
    for number in range(2_000)
}
now = 1_700_000_000.0  # a clock of our own: the example is a day of two seconds
asked_before = RotatingBloomFilter(100_000, window="1d", generations=8, clock=lambda: now)
cache = AdmissionCache(LRUCache(200), asked_before)
searches = 0


def search(term: str) -> list[int]:
    """Documents that have a word: slow, since there is no index."""
    global searches
    searches += 1
    return [number for number, words in DOCUMENTS.items() if term in words]


def main() -> None:
    global now
    rng = random.Random(7)
    terms = [f"word{n}" for n in range(103)]
    typed = [rng.choice(terms) for _ in range(3_000)] + [f"typo{n}" for n in range(3_000)]
    rng.shuffle(typed)
    for term in typed:
        now += 86_400 / len(typed)
        assert all(term in DOCUMENTS[number] for number in cache.get(term, search))

    counts = cache.info()
    assert counts["admitted"] <= len(terms) + 60, "hardly a term that was typed once is cached"
    assert searches < 3_000 + 2 * len(terms) + 60, "each real term was searched for twice"
    print(f"{len(typed):,} searches, {searches:,} of them carried out; {counts['hits']:,} cached")
    print(f"terms in the cache: {counts['admitted']} of {len(set(typed)):,} that were typed")


if __name__ == "__main__":
    main()
