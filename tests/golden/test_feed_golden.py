"""A feed that was published once is read for ever, from each of its versions to the next."""

import shutil
from pathlib import Path

import pytest

from bloomery.errors import FeedRefused
from bloomery.feeds import PublicKey, Subscriber
from conftest import require
from golden.make_feed import EXPIRES, FOLDER, PUBLISHED, VERSIONS, key, member

require("cryptography")


def subscriber(source: Path, copy: Path) -> Subscriber:
    """One that trusts the key in the folder."""
    keys = PublicKey.read(FOLDER / "public.key")
    assert keys == [key().public]
    return Subscriber(source, copy, keys, name="golden", clock=lambda: PUBLISHED + 1)


@pytest.mark.parametrize(
    ("manifests", "by"), [([1, 2, 3], "deltas"), ([1, 3], "deltas"), ([3], "full"), ([2], "full")]
)
def test_the_golden_feed_is_read(tmp_path: Path, manifests: list[int], by: str) -> None:
    """Whole, by one delta and by two; what is in the files is what was put in."""
    source = tmp_path / "source"
    shutil.copytree(FOLDER, source)
    shutil.copyfile(FOLDER / "feed.manifest", source / "3.manifest")
    reader = subscriber(source, tmp_path / "copy")
    for version in manifests:
        shutil.copyfile(source / f"{version}.manifest", source / "feed.manifest")
        done = reader.update()
        assert done.version == version
        assert all(reader.contains_many([member(n) for n in VERSIONS[version - 1]]))
        assert not any(reader.contains_many([member(n) for n in range(5000, 5020)]))
    assert done.by == by


def test_the_golden_feed_expires(tmp_path: Path) -> None:
    """In the year 2100."""
    keys = key().public
    with pytest.raises(FeedRefused, match="expired"):
        Subscriber(FOLDER, tmp_path / "copy", keys, clock=lambda: EXPIRES).update()
