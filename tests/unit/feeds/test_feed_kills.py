"""A kill at any point of publishing and of fetching leaves a whole feed, and a whole copy.

A child of a fork does the work, and is killed just before its n-th step in the file system, for
every n there is (an audit hook counts them); or, by the kernel, in the middle of a file that grows
beyond a limit.
"""

import os
import resource
import shutil
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from os import _exit
from pathlib import Path

import pytest

from bloomery.errors import FeedUnavailable
from bloomery.feeds import Subscriber
from unit.feeds.conftest import Feed, bloom
from unit.feeds.site import site
from unit.kills import die

STEPS = {
    "open",
    "os.rename",
    "os.remove",
    "os.utime",
    "os.symlink",
    "os.truncate",
    "os.mkdir",
    "os.chmod",
    "os.scandir",
    "mmap.__new__",
    "fcntl.flock",
    "shutil.copyfile",
    "urllib.Request",
}


def in_child(work: Callable[[], object], *, steps: int = 0, most: int = 0) -> int:
    """Do the work in the child of a fork: killed before so many steps, or as a file would grow
    beyond so many bytes. The exit code, negative for a signal."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python 3.12 warns where there are threads
        child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        if most:
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # which Python ignores
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if steps:
            _die_after(steps)
        work()
    except BaseException:  # noqa: BLE001 (it must not get into the parent's code)
        traceback.print_exc()
        _exit(1)
    _exit(0)


def _die_after(steps: int) -> None:
    left = steps

    def count(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal left
        if event in STEPS:
            left -= 1
            if not left:
                die()

    sys.addaudithook(count)


def kills(work: Callable[[], object], check: Callable[[], object]) -> int:
    """Kill the work at every point there is, and check what it leaves; how many there were."""
    for most in (1, 100, 1_000, 10_000):
        if in_child(work, most=most) == -signal.SIGXFSZ:
            check()
    for steps in range(1, 1000):
        code = in_child(work, steps=steps)
        check()
        if code == 0:
            return steps
        assert code == -signal.SIGKILL
    raise AssertionError("it never ends")


@pytest.mark.slow
def test_a_publisher_that_is_killed_leaves_a_whole_feed(feed: Feed, tmp_path: Path) -> None:
    """Whatever the moment, a subscriber finds the old version or the new one, and the next publish
    goes on."""
    feed.publish(bloom(range(900)))
    feed.publish(bloom(range(1000)))
    begun, follower = tmp_path / "begun", tmp_path / "follower"
    shutil.copytree(feed.folder, begun)
    feed.subscriber(copy=follower).update()
    found: set[int] = set()

    def work() -> None:
        feed.publish(bloom(range(1010)))

    def check() -> None:
        late = tmp_path / "late"
        shutil.copytree(follower, late, symlinks=True)
        for copy in (late, tmp_path / "new"):
            subscriber = feed.subscriber(copy=copy)
            version = subscriber.update().version
            assert all(subscriber.contains_many(range(1000 if version == 2 else 1010)))
            found.add(version)
            shutil.rmtree(copy)
        after = feed.publish(bloom(range(1020)))
        assert after.version == version + 1
        shutil.rmtree(feed.folder)
        shutil.copytree(begun, feed.folder)

    assert kills(work, check) > 20
    assert found == {2, 3}


@pytest.mark.slow
@pytest.mark.parametrize("by", ["full", "deltas"])
def test_a_fetcher_that_is_killed_leaves_a_whole_copy(feed: Feed, tmp_path: Path, by: str) -> None:
    """Whatever the moment, the copy answers as one version or the other, and the next fetch ends
    with the newest and leaves nothing behind."""
    begun = tmp_path / "begun"
    feed.publish(bloom(range(1000)))
    if by == "deltas":
        feed.subscriber(copy=begun).update()
    else:
        begun.mkdir()
    for n in (1005, 1010):
        feed.publish(bloom(range(n)))
    found: set[int] = set()

    def restart() -> None:
        shutil.rmtree(feed.copy, ignore_errors=True)
        shutil.copytree(begun, feed.copy, symlinks=True)

    def check() -> None:
        reader = feed.subscriber(None)
        assert reader.problem is None
        try:
            version = reader.update().version
            assert all(reader.contains_many(range({1: 1000, 3: 1010}[version])))
            found.add(version)
        except FeedUnavailable:
            assert by == "full"
        subscriber = feed.subscriber(served.url)
        subscriber.update()
        assert all(subscriber.contains_many(range(1010)))
        names = {path.name for path in feed.copy.iterdir()}
        (data,) = names - {"lock", "feed.manifest", "seen.json", "etag.json", "current"}
        assert (feed.copy / "current").resolve().name == data
        restart()

    with site(feed.folder) as served:

        def work() -> None:
            assert feed.subscriber(served.url).update().by == by

        restart()
        assert kills(work, check) > 30
    assert found == ({1, 3} if by == "deltas" else {3})


def test_a_kill_loses_no_memory_of_what_was_seen(feed: Feed) -> None:
    """A fetcher that is killed as soon as it knows of version 2 takes version 1 no more."""
    feed.publish(bloom(range(10)))
    old = feed.folder.parent / "old"
    shutil.copytree(feed.folder, old)
    feed.publish(bloom(range(20)))

    def die_at_the_file() -> None:
        def hook(event: str, arguments: tuple[object, ...]) -> None:
            if event == "open" and str(arguments[0]).endswith(".bloom"):
                die()

        sys.addaudithook(hook)
        feed.subscriber().update()

    assert in_child(die_at_the_file) == -signal.SIGKILL
    with pytest.raises(FeedUnavailable):
        Subscriber(None, feed.copy, feed.key.public).update()
    shutil.rmtree(feed.folder)
    shutil.copytree(old, feed.folder)
    from bloomery.errors import FeedRefused

    with pytest.raises(FeedRefused, match="version 1, though 2 was seen before"):
        feed.subscriber().update()
