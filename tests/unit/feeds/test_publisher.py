"""Publishing: versions ascend, deltas lead to the newest, old files stay for a grace."""

import os
from pathlib import Path
from typing import Any

import pytest

import bloomery
from bloomery import (
    BloomFilter,
    CountingBloomFilter,
    CuckooFilter,
    FilterBank,
    RotatingBloomFilter,
    ScalableBloomFilter,
    StaticFilter,
)
from bloomery.errors import CorruptData, FeedRefused, FolderInUse, InvalidParameter
from bloomery.feeds import PrivateKey, publish
from bloomery.storage.locking import lock_folder
from unit.feeds.conftest import Feed, bloom


def names(feed: Feed) -> set[str]:
    """The files of the feed."""
    return {path.name for path in feed.folder.iterdir()} - {"lock"}


def test_versions_ascend(feed: Feed) -> None:
    """Each publish has the next version; one can be skipped to, and none taken again."""
    assert [feed.publish(bloom(range(n))).version for n in (1, 2, 2)] == [1, 2, 3]
    assert feed.publish(bloom(range(9)), version=10).version == 10
    for wrong in (10, 3, 0):
        with pytest.raises(InvalidParameter, match=f"version is {wrong}, must be at least 11"):
            feed.publish(bloom(range(9)), version=wrong)


def test_the_name_is_the_folders_and_stays(feed: Feed) -> None:
    """The first publish names the feed; a folder has one feed."""
    assert feed.publish(bloom([1])).feed == "feed"
    with pytest.raises(InvalidParameter, match="has the feed 'feed': use another folder"):
        feed.publish(bloom([1]), name="other")
    with pytest.raises(InvalidParameter, match="the feed's name is 'a b'"):
        publish(bloom([1]), feed.folder.parent / "second", feed.key, name="a b")


def test_deltas_lead_to_the_newest(feed: Feed) -> None:
    """There is a delta from each of the last versions to the next, up to max_deltas of them."""
    made = [feed.publish(bloom(range(1000 + n)), max_deltas=3) for n in range(6)]
    newest = made[-1]
    assert [delta.name.rpartition("-")[0] for delta in newest.deltas] == ["3-4", "4-5", "5-6"]
    assert [delta.base for delta in newest.deltas] == [each.full.sha256 for each in made[2:5]]
    assert all(delta.size < newest.full.size / 20 for delta in newest.deltas)
    assert feed.publish(bloom(range(2000)), max_deltas=0).deltas == ()


def test_no_delta_that_is_not_worth_it(feed: Feed) -> None:
    """Filters that differ in most of their bits, or whose base is gone, are sent whole."""
    feed.publish(bloom(range(1000)))
    assert feed.publish(bloom(range(50_000, 60_000))).deltas == ()
    for path in feed.folder.glob("*.bloom"):
        path.unlink()
    assert feed.publish(bloom(range(50_000, 60_001))).deltas == ()


def test_deltas_together_are_smaller_than_the_file(feed: Feed) -> None:
    """Whoever is so late that the full file is less to fetch has no way by deltas."""
    for start in range(10):
        made = feed.publish(bloom(range(start * 1000, start * 1000 + 8000)))
    assert 0 < len(made.deltas) < 8
    assert sum(delta.size for delta in made.deltas) < made.full.size


def test_the_same_filter_again_is_only_signed_again(feed: Feed) -> None:
    """A publish without a change renews the expiry; file and deltas stay."""
    feed.publish(bloom(range(100)))
    before = feed.publish(bloom(range(101)))
    feed.now += 1000
    after = feed.publish(bloom(range(101)))
    assert (after.version, after.full, after.deltas) == (3, before.full, before.deltas)
    assert after.expires == before.expires + 1000


def test_old_files_stay_for_a_grace(feed: Feed) -> None:
    """What a manifest named is removed a grace after it was last named, and not before; files of
    others are left."""
    for file in ("index.html", "1-notes.bloom"):
        feed.folder.mkdir(exist_ok=True)
        (feed.folder / file).write_text("mine")
    first = feed.publish(bloom(range(100)), max_deltas=0)
    left_over = feed.folder / ".incoming.0123456789abcdef.tmp"
    left_over.write_bytes(b"of one that was killed")
    os.utime(left_over, (feed.now, feed.now))
    feed.now += 86400 * 30  # it was the newest for a month
    second = feed.publish(bloom(range(200)), max_deltas=0)
    assert not left_over.exists()
    feed.now += 86000
    third = feed.publish(bloom(range(300)), max_deltas=0)
    assert {first.full.name, second.full.name, third.full.name} <= names(feed)
    feed.now += 1000
    fourth = feed.publish(bloom(range(400)), max_deltas=0)
    assert first.full.name not in names(feed)
    assert {second.full.name, third.full.name, fourth.full.name} <= names(feed)
    assert {"index.html", "1-notes.bloom"} <= names(feed)


def test_another_publishers_feed_is_not_continued(feed: Feed, tmp_path: Path) -> None:
    """A feed that none of the keys has signed stays as it is, unless its key is named."""
    feed.publish(bloom([1]))
    other = PrivateKey.create(tmp_path / "other.key")
    with pytest.raises(FeedRefused, match="cannot be continued: signed by"):
        feed.publish(bloom([2]), keys=other)
    assert feed.publish(bloom([2]), keys=other, trust=[str(feed.key.public)]).version == 2


def test_one_publisher_at_a_time(feed: Feed) -> None:
    """A second one is refused, and says who is there."""
    with lock_folder(feed.folder, "publisher"), pytest.raises(FolderInUse, match="publisher"):
        feed.publish(bloom([1]))


@pytest.mark.parametrize(
    ("option", "value"),
    [("keys", []), ("expires_in", 0), ("expires_in", "soon"), ("grace", -1), ("max_deltas", 65)],
)
def test_absurd_options_are_refused(feed: Feed, option: str, value: Any) -> None:
    """Each error names the option, and nothing is written."""
    with pytest.raises(InvalidParameter, match=option):
        feed.publish(bloom([1]), **{option: value})
    assert not list(feed.folder.glob("*.manifest"))


def every_kind() -> list[Any]:
    """A filter of each kind, with the keys 0 to 99."""
    filters: list[Any] = [
        BloomFilter(200),
        ScalableBloomFilter(200),
        CountingBloomFilter(200),
        CuckooFilter(200),
        RotatingBloomFilter(200),
    ]
    for filter in filters:
        filter.update(range(100))
    filters.append(StaticFilter.build(range(100)))
    if exact := getattr(bloomery, "ExactSet", None):
        filters.append(exact.build(range(100), range(100, 1000)))
    return filters


@pytest.mark.parametrize("filter", every_kind(), ids=lambda filter: str(filter.kind))
def test_any_kind_can_be_published(feed: Feed, filter: Any, tmp_path: Path) -> None:
    """A filter, or its file by its path, arrives at a subscriber as it is."""
    path = tmp_path / "saved.bloom"
    filter.save(path)
    assert feed.publish(filter).kind == filter.kind
    assert feed.publish(path).kind == filter.kind
    subscriber = feed.subscriber()
    subscriber.update()
    assert all(subscriber.contains_many(range(100)))
    assert type(subscriber.filter) is type(filter)


def test_a_bank_can_be_published(feed: Feed, tmp_path: Path) -> None:
    """A bank too, whose keys belong to users."""
    bank = FilterBank(keys_per_filter=10)
    bank.add("user", "key")
    feed.publish(bank)
    subscriber = feed.subscriber()
    subscriber.update()
    assert subscriber.filter.contains("user", "key")


def test_a_file_that_is_written_to_is_published_with_a_checksum(feed: Feed, tmp_path: Path) -> None:
    """A filter that a process has mapped for writing is copied, and its copy summed."""
    path = tmp_path / "live.bloom"
    bloom(range(100)).save(path)
    live = BloomFilter.load(path, mmap=True, writable=True)
    live.add("new")
    feed.publish(path)
    subscriber = feed.subscriber()
    subscriber.update()
    assert "new" in subscriber
    copied = bloomery.open(feed.copy / "current", verify=True)
    assert copied == BloomFilter.load(path)


def test_what_is_no_filter_is_not_published(feed: Feed, tmp_path: Path) -> None:
    """Damage is found before a manifest names it."""
    path = tmp_path / "broken.bloom"
    path.write_bytes(b"BLOOMERY" + bytes(200))
    with pytest.raises(CorruptData, match=r"broken\.bloom"):
        feed.publish(path)
    data = bytearray(bloom(range(100)).to_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptData):
        feed.publish(path)
    assert names(feed) == set()
