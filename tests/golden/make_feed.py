"""Makes tests/golden/feed: a feed of three versions, signed by a key that everybody knows.

`python tests/golden/make_feed.py`, from the top of the tree. Readers in other languages are tried
on it: docs/feeds.md has the format. `feed.manifest` is version 3; `1.manifest` and `2.manifest` are
what it was before. The key is of the bytes 0 to 31, and the feed expires in the year 2100.
"""

import shutil
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from bloomery import BloomFilter
from bloomery.feeds import PrivateKey, publish

FOLDER = Path(__file__).parent / "feed"
PUBLISHED, EXPIRES = 1_800_000_000, 4_102_444_800
VERSIONS = [range(990), range(1000), range(5, 1005)]


def key() -> PrivateKey:
    """The key that everybody knows."""
    return PrivateKey(Ed25519PrivateKey.from_private_bytes(bytes(range(32))))


def member(number: int) -> str:
    """A key of the filter."""
    return f"token-{number}"


def main() -> None:
    """Publish three versions."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    for version, numbers in enumerate(VERSIONS, 1):
        filter = BloomFilter(1000, 0.001)
        filter.update(map(member, numbers))
        publish(
            filter,
            FOLDER,
            key(),
            name="golden",
            expires_in=EXPIRES - PUBLISHED,
            clock=lambda: PUBLISHED,
        )
        if version < len(VERSIONS):
            shutil.copyfile(FOLDER / "feed.manifest", FOLDER / f"{version}.manifest")
    (FOLDER / "lock").unlink()
    (FOLDER / "public.key").write_text(f"{key().public}\n", "ascii")


if __name__ == "__main__":
    main()
