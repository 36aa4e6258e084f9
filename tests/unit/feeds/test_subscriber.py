"""Subscribers: a copy that is kept current by deltas, refuses what is not signed, and answers."""

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bloomery import BloomFilter
from bloomery.errors import (
    CorruptData,
    FeedRefused,
    FeedUnavailable,
    FolderInUse,
    InvalidParameter,
    ServerUnavailable,
)
from bloomery.feeds import PrivateKey, Subscriber, Update, publish, url_key
from bloomery.storage.locking import lock_folder
from unit.feeds.conftest import Feed, bloom
from unit.feeds.site import Site, site
from waiting import wait_until

MANIFEST = "feed.manifest"


@pytest.fixture
def served(feed: Feed) -> Iterator[Site]:
    """The feed behind a web server, with a first version: the keys 0 to 999."""
    feed.publish(bloom(range(1000)))
    with site(feed.folder) as running:
        yield running


def holds(subscriber: Subscriber, *keys: int) -> bool:
    """Whether all these keys may be on the feed."""
    return all(key in subscriber for key in keys)


@pytest.mark.parametrize("over", ["http", "folder"])
def test_a_copy_is_kept_current_by_deltas(feed: Feed, served: Site, over: str) -> None:
    """First the full file, then deltas, several versions at once too, then nothing new."""
    subscriber = feed.subscriber(served.url if over == "http" else feed.folder)
    first = subscriber.update()
    assert (first.version, first.by) == (1, "full")
    assert holds(subscriber, *range(1000))
    assert 5000 not in subscriber
    for n in (1001, 1002, 1010):
        newest = feed.publish(bloom(range(n)))
    second = subscriber.update()
    assert second == Update(4, "deltas", sum(delta.size for delta in newest.deltas))
    assert second.fetched < first.fetched / 20
    assert holds(subscriber, *range(1010))
    assert subscriber.update() == Update(4, "nothing", 0)
    feed.publish(bloom(range(1010)))
    assert subscriber.update() == Update(5, "manifest", 0)
    assert BloomFilter.load(feed.copy / "current") == subscriber.filter


def test_the_answers_are_the_filters_own(feed: Feed, served: Site) -> None:
    """One key, many keys, and what is known about the copy."""
    subscriber = feed.subscriber(served.url)
    subscriber.update()
    filter = bloom(range(1000))
    assert subscriber.contains_many([1, 2, 999_999]) == filter.contains_many([1, 2, 999_999])
    assert subscriber.contains(1)
    assert not subscriber.contains(999_999)
    info = subscriber.info()
    assert (info["feed"], info["version"], info["stale"], info["problem"]) == (
        "feed",
        1,
        False,
        None,
    )


def test_without_a_copy_nothing_is_said(feed: Feed) -> None:
    """Before the first fetch a key is neither in nor not: it is an error."""
    feed.publish(bloom([1]))
    subscriber = feed.subscriber()
    assert subscriber.manifest is None
    assert subscriber.info() == {"stale": True, "problem": None}
    for ask in (lambda: 1 in subscriber, lambda: subscriber.check_url("http://a.example")):
        with pytest.raises(FeedUnavailable, match="no copy of the feed yet"):
            ask()


def test_an_unchanged_manifest_is_not_sent_again(feed: Feed, served: Site) -> None:
    """The server's ETag is asked for, also by the next process."""
    feed.subscriber(served.url).update()
    assert feed.subscriber(served.url).update().by == "nothing"
    assert [code for name, code in served.asked if name == MANIFEST] == [200, 304]
    other = feed.subscriber(feed.folder)  # another source: its manifest is read
    assert other.update().by == "nothing"


def test_it_answers_offline(feed: Feed, served: Site) -> None:
    """A copy answers when its source is gone, after a restart too, and says when it is stale."""
    feed.subscriber(served.url).update()
    served.redirect = None
    shutil.rmtree(feed.folder)
    subscriber = feed.subscriber(served.url)
    with pytest.raises(FileNotFoundError):
        subscriber.update()
    assert holds(subscriber, *range(1000))
    assert [subscriber.stale, feed.later(8).subscriber(None).stale] == [False, True]
    assert holds(feed.subscriber(None), *range(1000))


def test_a_server_that_is_away(feed: Feed, served: Site) -> None:
    """No server at all is told as such."""
    subscriber = feed.subscriber("http://127.0.0.1:9/feed")
    with pytest.raises(ServerUnavailable, match=r"127\.0\.0\.1:9/feed/feed\.manifest: "):
        subscriber.update()
    assert isinstance(subscriber.problem, ServerUnavailable)


# What must be refused: each changes the feed, and gives the reason.


def forged_body(feed: Feed) -> None:
    """Somebody changes a member of the manifest."""
    path = feed.folder / MANIFEST
    path.write_bytes(path.read_bytes().replace(b'"version": 2', b'"version": 9'))


def forged_key(feed: Feed) -> None:
    """Somebody signs a feed of their own."""
    other = PrivateKey.create(feed.folder.parent / "other.key")
    feed.publish(bloom(range(5)), keys=other, trust=[feed.key.public])


def forged_filter(feed: Feed) -> None:
    """Somebody replaces the files that the manifest names by others of the same size."""
    for path in feed.folder.glob("2-*.bloom"):
        path.write_bytes(bloom(range(5)).to_bytes())
    for path in feed.folder.glob("*.delta"):
        path.write_bytes(path.read_bytes()[:-1] + b"!")


def truncated_manifest(feed: Feed) -> None:
    """The manifest is cut off."""
    path = feed.folder / MANIFEST
    path.write_bytes(path.read_bytes()[:-20])


def truncated_filter(feed: Feed) -> None:
    """The full file and the delta are cut off."""
    for pattern in ("2-*.bloom", "*.delta"):
        for path in feed.folder.glob(pattern):
            path.write_bytes(path.read_bytes()[:-1])


def extended_filter(feed: Feed) -> None:
    """The full file and the delta are longer than the manifest says."""
    for pattern in ("2-*.bloom", "*.delta"):
        for path in feed.folder.glob(pattern):
            path.write_bytes(path.read_bytes() + b"!")


def expired(feed: Feed) -> None:
    """The publisher has not signed for longer than it promised."""
    feed.now += 8 * 86400


def other_feed(feed: Feed) -> None:
    """Another feed of the same publisher is served in its place."""
    elsewhere = Feed.__new__(Feed)
    vars(elsewhere).update(vars(feed), folder=feed.folder.parent / "elsewhere")
    elsewhere.publish(bloom(range(5)), version=10)
    shutil.copytree(elsewhere.folder, feed.folder, dirs_exist_ok=True)


def too_large(feed: Feed) -> None:
    """A file is larger than the subscriber wants."""
    feed.publish(bloom(range(5), capacity=1_000_000))


WRONGS: list[tuple[Callable[[Feed], None], str, str]] = [
    (forged_body, "signature", "forged, or damaged"),
    (forged_key, "signature", "none of which is trusted here"),
    (forged_filter, "damaged", "not the bytes that were signed"),
    (truncated_manifest, "signature", "forged, or damaged"),
    (truncated_filter, "damaged", "ends after"),
    (extended_filter, "damaged", "is longer than"),
    (expired, "expired", "expired: version 2 was to be replaced 24 hours ago"),
    (other_feed, "other-feed", "the feed 'elsewhere', 'feed' was expected"),
    (too_large, "too-large", r"more than max_bytes \(500,000\)"),
]


@pytest.mark.parametrize("over", ["http", "folder"])
@pytest.mark.parametrize(
    ("wrong", "reason", "message"), WRONGS, ids=[wrong.__name__ for wrong, _, _ in WRONGS]
)
def test_what_is_wrong_is_refused_and_the_copy_answers(
    feed: Feed,
    served: Site,
    over: str,
    wrong: Callable[[Feed], None],
    reason: str,
    message: str,
) -> None:
    """The reason is told, the old copy goes on answering, after a restart too; and when the feed
    is right again, it is taken."""
    source = served.url if over == "http" else feed.folder
    subscriber = feed.subscriber(source, max_bytes=500_000)
    subscriber.update()
    feed.publish(bloom(range(1001)))
    kept = feed.folder.parent / "kept"
    shutil.copytree(feed.folder, kept)
    began = feed.now
    wrong(feed)
    for _ in range(2):
        with pytest.raises(FeedRefused, match=message) as caught:
            subscriber.update()
        assert caught.value.reason == reason
        assert subscriber.problem is caught.value
        assert subscriber.manifest is not None
        assert subscriber.manifest.version == 1
        assert holds(subscriber, *range(1000))
        subscriber = feed.subscriber(source, max_bytes=500_000)
    shutil.rmtree(feed.folder)
    shutil.copytree(kept, feed.folder)
    feed.now = began
    assert subscriber.update().version == 2
    assert holds(subscriber, *range(1001))
    assert subscriber.problem is None


@pytest.mark.parametrize("over", ["http", "folder"])
def test_an_older_feed_is_refused_after_a_restart_too(feed: Feed, served: Site, over: str) -> None:
    """A replay of a version that was signed once, and has not expired, is told from the newest."""
    source = served.url if over == "http" else feed.folder
    old = feed.folder.parent / "old"
    shutil.copytree(feed.folder, old)
    feed.publish(bloom(range(1001)))
    feed.publish(bloom(range(1002)))
    feed.subscriber(source).update()
    shutil.copytree(old, feed.folder, dirs_exist_ok=True)
    for _ in range(2):
        subscriber = feed.subscriber(source)
        with pytest.raises(FeedRefused, match="version 1, though 3 was seen before") as caught:
            subscriber.update()
        assert caught.value.reason == "rolled-back"
        assert holds(subscriber, *range(1002))


def test_a_version_that_was_seen_counts_before_its_files_come(feed: Feed, served: Site) -> None:
    """Whoever saw version 3, and could not fetch it, takes no version 2 later."""
    feed.subscriber(served.url).update()
    feed.publish(bloom(range(1001)))
    second = feed.folder.parent / "second"
    shutil.copytree(feed.folder, second)
    feed.publish(bloom(range(1002)))
    served.cut.update({".bloom": 10, ".delta": 10})
    with pytest.raises((FeedRefused, ServerUnavailable)):
        feed.subscriber(served.url).update()
    served.cut.clear()
    third = feed.folder.parent / "third"
    shutil.copytree(feed.folder, third)
    shutil.copytree(second, feed.folder, dirs_exist_ok=True)
    with pytest.raises(FeedRefused, match="version 2, though 3 was seen before"):
        feed.subscriber(served.url).update()
    shutil.copytree(third, feed.folder, dirs_exist_ok=True)
    assert feed.subscriber(served.url).update() == Update(3, "deltas", _deltas(feed))


def _deltas(feed: Feed) -> int:
    return sum(path.stat().st_size for path in feed.folder.glob("*.delta"))


def test_two_manifests_of_one_version_are_refused(feed: Feed, tmp_path: Path) -> None:
    """A publisher that signs two different versions 1 is not followed to the second."""
    feed.publish(bloom(range(10)))
    feed.subscriber().update()
    shutil.rmtree(feed.folder)
    feed.publish(bloom(range(20)))
    with pytest.raises(FeedRefused, match="forked: another version 1") as caught:
        feed.subscriber().update()
    assert caught.value.reason == "forked"


def test_a_server_that_says_nothing_changed_cannot_hold_a_copy_back(
    feed: Feed, served: Site
) -> None:
    """304 for ever: when the copy's time is over, an update says so."""
    subscriber = feed.subscriber(served.url)
    served.always_304 = True
    with pytest.raises(ServerUnavailable, match="304 without having been asked"):
        subscriber.update()
    served.always_304 = False
    subscriber.update()
    served.always_304 = True
    assert subscriber.update().by == "nothing"
    feed.now += 8 * 86400
    with pytest.raises(FeedRefused, match="expired"):
        subscriber.update()
    assert subscriber.stale
    assert holds(subscriber, *range(1000))


@pytest.mark.parametrize("where", [".delta", ".bloom", MANIFEST])
def test_a_connection_that_breaks_changes_nothing(feed: Feed, served: Site, where: str) -> None:
    """A server that hangs up in the middle leaves the copy as it was."""
    subscriber = feed.subscriber(served.url)
    if where != ".bloom":
        subscriber.update()
    feed.publish(bloom(range(1001)))
    served.cut[where] = 30
    if where == ".delta":
        assert subscriber.update().by == "full"  # which has not broken
        assert holds(subscriber, *range(1001))
    else:
        with pytest.raises((FeedRefused, ServerUnavailable)):
            subscriber.update()
    served.cut.clear()
    subscriber.update()
    assert holds(subscriber, *range(1001))
    assert not list(feed.copy.glob(".*"))


@pytest.mark.parametrize("where", [".bloom", MANIFEST])
def test_a_server_that_sends_a_byte_now_and_then_is_left(
    feed: Feed, served: Site, where: str
) -> None:
    """The timeout is for the whole of a file, and not for each of its bytes alone."""
    served.slow = where
    with pytest.raises(ServerUnavailable, match="too slow, given up"):
        feed.subscriber(served.url, timeout=0.2).update()


def test_a_feed_is_not_fetched_into_nor_a_copy_published_in(feed: Feed) -> None:
    """Each would remove what the other needs."""
    feed.publish(bloom([1]))
    feed.subscriber().update()
    for source in (feed.folder, feed.copy):
        with pytest.raises(InvalidParameter, match="cannot be a subscriber's copy"):
            feed.subscriber(source, copy=feed.folder).update()
    with pytest.raises(InvalidParameter, match="cannot be a feed that was published here"):
        publish(bloom([1]), feed.copy, feed.key)


def test_a_delta_of_a_damaged_copy_is_of_no_use(feed: Feed, served: Site) -> None:
    """Where the copy's file was damaged, the full one is fetched."""
    feed.subscriber(served.url).update()
    feed.publish(bloom(range(1001)))
    path = (feed.copy / "current").resolve()
    data = bytearray(path.read_bytes())
    data[500] ^= 1
    path.write_bytes(data)
    subscriber = feed.subscriber(served.url)
    assert isinstance(subscriber.problem, FeedRefused)
    with pytest.raises(FeedUnavailable):
        _ = 1 in subscriber
    assert subscriber.update().by == "full"
    assert holds(subscriber, *range(1001))


def test_a_copy_that_is_gone_under_a_running_subscriber(feed: Feed, served: Site) -> None:
    """It answers from memory, and the next update fetches the file again."""
    subscriber = feed.subscriber(served.url)
    subscriber.update()
    (feed.copy / "current").resolve().unlink()
    assert holds(subscriber, *range(1000))
    feed.publish(bloom(range(1001)))
    assert subscriber.update().by == "full"


def test_what_says_which_version_was_seen_must_be_whole(feed: Feed) -> None:
    """A damaged note of the highest version is no reason to take any: somebody has to look."""
    feed.publish(bloom([1]))
    feed.subscriber().update()
    (feed.copy / "seen.json").write_text("{}")
    with pytest.raises(CorruptData, match=r"seen\.json: damaged, and it says which versions"):
        feed.subscriber().update()


def test_keys_are_replaced_without_a_gap(feed: Feed, tmp_path: Path) -> None:
    """For a while both keys sign; who trusts either follows. Then the old one is of no use."""
    new = PrivateKey.create(tmp_path / "new.key")
    feed.publish(bloom(range(10)))
    old_hands = feed.subscriber(copy=tmp_path / "old", keys=[feed.key.public, new.public])
    old_hands.update()
    feed.publish(bloom(range(20)), keys=[feed.key, new])
    new_hands = feed.subscriber(copy=tmp_path / "new", keys=[str(new.public)])
    assert old_hands.update().version == new_hands.update().version == 2
    feed.publish(bloom(range(30)), keys=[new])
    assert old_hands.update().version == new_hands.update().version == 3
    late = feed.subscriber(copy=tmp_path / "late")
    with pytest.raises(FeedRefused, match="none of which is trusted here"):
        late.update()
    # A copy that a key signed which is no longer trusted does not answer.
    feed.publish(bloom(range(40)), keys=[new, feed.key])
    late.update()
    later = feed.subscriber(copy=tmp_path / "late", keys=new.public)
    assert later.manifest is not None
    assert isinstance(feed.subscriber(copy=tmp_path / "old").problem, FeedRefused)


def test_another_process_keeps_the_copy_current(feed: Feed, served: Site) -> None:
    """Without a source, a subscriber follows the folder that another one fetches into."""
    fetcher, reader = feed.subscriber(served.url), feed.subscriber(None)
    with pytest.raises(FeedUnavailable):
        reader.update()
    fetcher.update()
    assert reader.update() == Update(1, "nothing", 0)
    assert holds(reader, *range(1000))
    assert not reader.refresh()
    feed.publish(bloom(range(2000)))
    fetcher.update()
    assert reader.refresh()
    assert holds(reader, *range(2000))


def test_two_fetchers_on_one_folder(feed: Feed, served: Site) -> None:
    """Any number at once, while versions come: each ends with the newest, and none has an error."""
    subscribers = [feed.subscriber(served.url, timeout=60) for _ in range(4)]
    problems: list[BaseException] = []
    ended = threading.Event()

    def follow(subscriber: Subscriber) -> None:
        try:
            while not ended.is_set():
                subscriber.update()
                assert holds(subscriber, *range(1000))
        except BaseException as problem:  # noqa: BLE001 (the test says it)
            problems.append(problem)

    threads = [threading.Thread(target=follow, args=[one]) for one in subscribers]
    for thread in threads:
        thread.start()
    for n in range(1001, 1011):
        feed.publish(bloom(range(n)))
    ended.set()
    for thread in threads:
        thread.join()
    assert problems == []
    for subscriber in subscribers:
        subscriber.update()
        assert subscriber.manifest is not None
        assert subscriber.manifest.version == 11
    assert len(list(feed.copy.glob("*.bloom"))) == 1


def test_a_folder_that_is_locked_for_too_long(feed: Feed) -> None:
    """A fetcher that never ends is told, after the timeout."""
    feed.publish(bloom([1]))
    subscriber = feed.subscriber(timeout=0.1)
    with lock_folder(feed.copy, "fetcher"), pytest.raises(FolderInUse, match="another fetcher"):
        subscriber.update()


def test_in_the_background(feed: Feed, served: Site) -> None:
    """A thread keeps the copy current, and goes on after a failure."""
    seen: list[Any] = []
    with feed.subscriber(served.url).start(0.01, seen.append) as subscriber:
        assert wait_until(lambda: not subscriber.stale)
        kept = (feed.folder / MANIFEST).read_bytes()
        (feed.folder / MANIFEST).write_bytes(b"nonsense")
        assert wait_until(lambda: bool(seen) and isinstance(seen[-1], FeedRefused))
        (feed.folder / MANIFEST).write_bytes(kept)
        feed.publish(bloom(range(2000)))
        assert wait_until(lambda: subscriber.info()["version"] == 2)
        with pytest.raises(InvalidParameter, match="started already"):
            subscriber.start()
    assert holds(subscriber, *range(2000))


def test_urls_are_looked_up_by_their_expressions(feed: Feed) -> None:
    """A host that is listed covers its pages and what is below it, however they are spelled."""
    listed = ("http://evil.example", "https://shop.example/bad/")
    feed.publish(bloom(map(url_key, listed), rate=1e-9))
    subscriber = feed.subscriber()
    subscriber.update()
    assert subscriber.check_url("HTTP://www.EVIL.example:80/a/%62?c#d") == ["evil.example/"]
    assert subscriber.check_url("shop.example/good/../bad/x") == ["shop.example/bad/"]
    assert subscriber.check_url("http://shop.example/good") == []
    for spelling in (
        *("http:/evil.example/", "http:evil.example", "http:\\\\evil.example\\"),
        *("https:/\\evil.example/x", "\x01http://evil.example", "\x0bhttp://evil.example"),
        *("//evil.example/x", "http://x%2F@evil.example/", "http://evil\uff61example"),
    ):
        assert subscriber.check_url(spelling) == ["evil.example/"], spelling


def test_a_mapped_copy_outlives_its_file(feed: Feed) -> None:
    """With mmap, processes share the copy's memory, and an update replaces no byte under them."""
    feed.publish(bloom(range(1000)))
    subscriber = feed.subscriber(mmap=True)
    subscriber.update()
    before = subscriber.filter
    feed.publish(bloom(range(5000, 7000)))
    subscriber.update()
    assert before.read_only
    assert all(before.contains_many(range(1000)))
    assert holds(subscriber, *range(5000, 7000))


@pytest.mark.parametrize(
    "source", ["ftp://host/feed", "file:///etc", "http://", "https://host/feed?x=1"]
)
def test_what_cannot_be_a_source(feed: Feed, source: str) -> None:
    """Other schemes and URLs with a query are refused at once."""
    with pytest.raises(InvalidParameter, match="is not where a feed can be"):
        feed.subscriber(source)


def test_redirects(feed: Feed, served: Site) -> None:
    """They are followed within http and https, and to nothing else: no local file is read."""
    served.redirect = f"file://{feed.folder}/{MANIFEST}"
    with pytest.raises(ServerUnavailable):
        feed.subscriber(served.url).update()
    with site(feed.folder) as other:
        served.redirect = f"{other.url}{MANIFEST}"
        with pytest.raises(FeedRefused, match=r"\.bloom"):  # the files are redirected there too
            feed.subscriber(served.url).update()


def test_what_a_feed_says_of_files_is_not_followed_out_of_the_folder(feed: Feed) -> None:
    """The copy's file has a name of the subscriber's own, whatever the manifest calls it."""
    feed.publish(bloom(range(10)))
    subscriber = feed.subscriber()
    subscriber.update()
    names = {path.name for path in feed.copy.iterdir()}
    (data,) = names - {"lock", MANIFEST, "seen.json", "current"}
    assert subscriber.manifest is not None
    assert data == f"{subscriber.manifest.full.sha256[:16]}.bloom"
    assert json.loads((feed.copy / "seen.json").read_text())["version"] == 1
