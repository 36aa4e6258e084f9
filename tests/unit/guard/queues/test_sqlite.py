"""A queue in a file: in order, on disk when it says so, for threads and processes, and never a
file that is not its own."""

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bloomery import BloomFilter, _native
from bloomery.errors import InvalidParameter, QueueUnavailable, UnsupportedVersion
from bloomery.guard import Guard, SqliteQueue
from bloomery.guard.protocols import Item
from bloomery.guard.queues.sqlite_file import SqliteFile
from conftest import effort
from unit.guard.flaky import Log, end_lease

pytestmark = pytest.mark.slow
TESTS = Path(__file__).parents[3]


def item(
    number: int, key: Any = "k", *, what: Literal["look", "add", "remove"] = "add", value: Any = 1
) -> Item:
    """An item with this idempotency key."""
    return Item(what, key, value, f"t{number}", float(number))


def tokens(items: list[Item]) -> list[str]:
    """Their idempotency keys."""
    return [one.idempotency_key for one in items]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a queue may be."""
    return tmp_path / "waiting.sqlite"


@pytest.fixture
def queue(path: Path) -> Iterator[SqliteQueue]:
    """An empty queue."""
    made = SqliteQueue(path, fsync=False)
    yield made
    made.close()


def test_items_come_out_as_they_went_in(queue: SqliteQueue, path: Path) -> None:
    """In order, with key, value and time, after a restart too; what is done is gone."""
    put = [
        Item("add", ("a", 1), {"x": [1, b"\xff"]}, "one", 1.5),
        Item("look", "b", None, "two", 2.5),
        Item("remove", b"\x00c", None, "three", 3.5),
    ]
    queue.put(put[:2])
    queue.put(put[2:])
    queue.close()
    again = SqliteQueue(path)
    out = again.head(10)
    assert [(i.what, i.key, i.value, i.idempotency_key, i.at) for i in out] == [
        (i.what, i.key, i.value, i.idempotency_key, i.at) for i in put
    ]
    assert (again.waiting(), again.writes(), again.keys()) == (3, 2, [("a", 1)])
    assert tokens(again.head(1)) == ["one"]
    again.done(out[:2])
    assert tokens(again.head(10)) == ["three"]
    assert (again.waiting(), again.writes(), again.keys()) == (1, 1, [])
    again.close()


def test_the_same_idempotency_key_waits_once(queue: SqliteQueue) -> None:
    """The first stays as it was; once done, it may wait again."""
    queue.put([item(1, value="first"), item(1, value="second")])
    queue.put([item(1, value="third"), item(2)])
    assert [i.value for i in queue.head(10)] == ["first", 1]
    queue.done(queue.head(1))
    queue.put([item(1, value="fourth")])
    assert [i.value for i in queue.head(10)] == [1, "fourth"]
    assert queue.writes() == 2


def test_keys_with_a_write_that_waits_are_pending(queue: SqliteQueue) -> None:
    """Not those of look-ups, nor once the last write is done; of more keys than SQL takes."""
    names = [_native.canonical(f"k{number}") for number in range(2000)]
    assert queue.pending(names) == set()
    queue.put([item(1, "k7"), item(2, "k1999", what="remove"), item(3, "k8", what="look")])
    queue.put([item(4, "k7")])
    assert queue.pending(names) == {names[7], names[1999]}
    first, second, _, third = queue.head(10)
    queue.done([first, second])
    assert queue.pending(names) == {names[7]}
    queue.done([third])
    assert queue.pending(names) == set()


def test_what_is_parked_waits_no_more(queue: SqliteQueue) -> None:
    """It is kept with its reason; put again it waits at the end, done it is gone."""
    queue.put([item(1, "a"), item(2, "b"), item(3, "c")])
    first, second, _ = queue.head(10)
    queue.park(first, "too long")
    queue.park(second, "too short")
    queue.park(second, "told twice")
    assert [(i.key, why) for i, why in queue.parked()] == [("a", "too long"), ("b", "too short")]
    assert (queue.waiting(), queue.writes()) == (1, 1)
    assert queue.pending([_native.canonical("a")]) == set()
    (again, _), (drop, _) = queue.parked()
    queue.put([again])
    queue.done([drop])
    assert queue.parked() == []
    assert [i.key for i in queue.head(10)] == ["c", "a"]


def test_one_owner_has_the_lease(queue: SqliteQueue, path: Path) -> None:
    """Until it is over or given back; one that ends later than it can is none: it was given before
    the machine was started again, or by a version that went by the wall clock. What was lost, to
    another or to nobody, cannot be renewed."""
    other = SqliteQueue(path)
    assert queue.lease("one", 60)
    assert queue.lease("one", 60)  # longer
    assert not other.lease("two", 60)
    other.release("two")  # not its own
    assert not other.lease("two", 60)
    queue.release("one")
    assert other.lease("two", -1)
    assert queue.lease("one", 60)
    assert queue.renew("one", 60)
    assert not other.renew("two", 60)
    queue.release("one")
    assert not queue.renew("one", 60)
    assert queue.lease("one", 60)
    for held in ("60.0 one", "one"):
        with closing(sqlite3.connect(path)) as file, file:
            file.execute("UPDATE lease SET owner = ?, until = until + 9e8", (held,))
        assert other.lease("two", 60)
        assert not queue.renew("one", 60)
        other.release("two")
        assert queue.lease("one", 60)
    other.close()


def test_a_full_queue_takes_nothing_more(path: Path) -> None:
    """Look-ups fill at most half of it; what does not fit is refused as a whole."""
    queue = SqliteQueue(path, max_items=4, fsync=False)
    queue.put([item(1, what="look"), item(2, what="look")])
    with pytest.raises(QueueUnavailable, match=r"full \(2 items wait, of at most 2 with look-ups"):
        queue.put([item(3, what="look")])
    queue.put([item(2, what="look"), item(1, what="look")])  # these wait already
    with pytest.raises(QueueUnavailable, match=r"full \(2 items wait, of at most 4\).*max_items"):
        queue.put([item(4), item(5), item(6)])
    assert (queue.waiting(), queue.writes()) == (2, 0)
    queue.put([item(4), item(5)])
    queue.done(queue.head(1))
    queue.put([item(6)])
    queue.close()


def test_a_closed_queue_says_so(queue: SqliteQueue) -> None:
    """Closing twice is nothing; using it afterwards is one clear error."""
    queue.close()
    queue.close()
    for use in (queue.writes, queue.waiting, queue.parked, lambda: queue.put([item(1)])):
        with pytest.raises(QueueUnavailable, match="closed: make a new one"):
            use()


def _other_sqlite(path: Path) -> None:
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE waiting (number)")
    other.close()


@pytest.mark.parametrize(
    "make",
    [_other_sqlite, lambda path: path.write_bytes(b"a letter to a friend" * 50)],
    ids=["SQLite", "text"],
)
def test_a_file_that_is_no_queue_is_not_touched(path: Path, make: Any) -> None:
    """It is refused, and neither changed nor given companions."""
    make(path)
    before = path.read_bytes()
    with pytest.raises(InvalidParameter, match="is no queue of bloomery: give a path of its own"):
        SqliteQueue(path)
    assert path.read_bytes() == before
    assert [one.name for one in path.parent.iterdir()] == [path.name]


def test_a_queue_of_another_version_is_refused(queue: SqliteQueue, path: Path) -> None:
    """The message has both versions."""
    queue.close()
    data = bytearray(path.read_bytes())
    data[60:64] = (9).to_bytes(4, "big")
    path.write_bytes(data)
    with pytest.raises(UnsupportedVersion, match="of version 9, must be 1"):
        SqliteQueue(path)


def test_tables_that_are_not_ours_are_refused(queue: SqliteQueue, path: Path) -> None:
    """A header alone does not make a queue."""
    queue.close()
    with sqlite3.connect(path) as other:
        other.execute("ALTER TABLE waiting RENAME COLUMN at TO later")
    other.close()
    with pytest.raises(QueueUnavailable, match="tables are not those of a queue"):
        SqliteQueue(path)


def test_a_damaged_file_is_an_error_with_the_next_step(queue: SqliteQueue, path: Path) -> None:
    """Whatever is damaged: opening or using it raises QueueUnavailable, and nothing else."""
    queue.put([item(number, f"k{number}") for number in range(500)])
    queue.close()
    data = bytearray(path.read_bytes())
    for start in range(4096, len(data), 4096):  # every page but the first
        data[start : start + 64] = b"\xff" * 64
    path.write_bytes(data)
    with pytest.raises(QueueUnavailable, match="damaged: set it aside"):
        SqliteQueue(path).head(1000)


def test_a_mistake_of_ours_is_not_damage(tmp_path: Path) -> None:
    """Nobody restores a backup over a good file, since SQLite did not understand a query."""
    file = SqliteFile(tmp_path / "queue", "CREATE TABLE t(x)", fsync=False)
    for query, told in (("SELEKT 1", r"syntax error$"), ("SELECT y FROM t", "file is damaged")):
        with pytest.raises(QueueUnavailable, match=told), file.reading() as connection:
            connection.execute(query)
    file.close()


@pytest.mark.parametrize(
    ("where", "message"),
    [("no/such/folder.sqlite", "No such file or directory"), (".", "Is a directory")],
)
def test_a_path_that_cannot_be_a_file_says_why(tmp_path: Path, where: str, message: str) -> None:
    """The path and what is wrong with it."""
    with pytest.raises(QueueUnavailable, match=message):
        SqliteQueue(tmp_path / where)


@pytest.mark.parametrize("most", [1, 0, 2.5, True])
def test_max_items_must_be_a_number_of_items(path: Path, most: Any) -> None:
    """Anything else is refused before a file is made."""
    with pytest.raises(InvalidParameter, match=r"max_items is .*, must be an integer"):
        SqliteQueue(path, max_items=most)
    assert not path.exists()


def test_a_locked_file_is_an_error_and_loses_nothing(
    queue: SqliteQueue, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading goes on; writing waits, and then says who is to be asked."""
    monkeypatch.setattr("bloomery.guard.queues.sqlite_file._BUSY_SECONDS", 0.05)
    waiting = SqliteQueue(path)
    queue.put([item(1)])
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(QueueUnavailable, match="locked: another process holds it"):
        waiting.put([item(2)])
    assert tokens(waiting.head(9)) == ["t1"]
    other.execute("ROLLBACK")
    other.close()
    waiting.put([item(2)])
    assert tokens(queue.head(9)) == ["t1", "t2"]
    waiting.close()


def test_a_full_disk_is_an_error_and_loses_nothing(queue: SqliteQueue, path: Path) -> None:
    """What was written before stays, and there is a next time."""
    queue.put([item(1)])
    with closing(sqlite3.connect(path)) as other:
        (pages,) = other.execute("PRAGMA page_count").fetchone()
    writer = queue._file._connections[0]
    writer.execute(f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(QueueUnavailable, match="full: make room on the disk"):
        queue.put([item(2, value="x" * 100_000)])
    writer.execute("PRAGMA max_page_count = 1000000")
    queue.put([item(2)])
    assert tokens(queue.head(9)) == ["t1", "t2"]


def test_the_file_is_for_its_owner_alone(queue: SqliteQueue, path: Path) -> None:
    """Keys and values are nobody else's business; the same for what SQLite puts beside it."""
    queue.put([item(1)])
    assert {one.stat().st_mode & 0o777 for one in path.parent.iterdir()} == {0o600}


def test_threads_lose_nothing_to_each_other(queue: SqliteQueue) -> None:
    """Eight threads put, each in its order, while another takes out."""

    def put(thread: int) -> None:
        for number in range(50):
            queue.put([Item("add", f"{thread}", number, f"{thread}-{number}", 0.0)])

    threads = [threading.Thread(target=put, args=(thread,)) for thread in range(8)]
    for thread in threads:
        thread.start()
    seen: list[Item] = []
    while len(seen) < 400:
        some = queue.head(7)
        queue.done(some)
        seen += some
    for thread in threads:
        thread.join()
    assert (queue.waiting(), queue.writes()) == (0, 0)
    for number in range(8):
        mine = [one.value for one in seen if one.key == f"{number}"]
        assert mine == list(range(50))


@settings(max_examples=effort(10, 30, 1000))
@given(st.lists(st.sampled_from(["look", "add", "remove", "done", "park", "put parked"])))
def test_the_counts_are_those_of_the_rows(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Any]
) -> None:
    """Whatever happened, `writes` and `waiting` say what `head` has."""
    queue = SqliteQueue(tmp_path_factory.mktemp("queue") / "q", fsync=False)
    for number, step in enumerate(steps):
        if step == "done":
            queue.done([*queue.head(2), *queue.head(1)])
        elif step == "park":
            for one in queue.head(1):
                queue.park(one, "no")
        elif step == "put parked":
            queue.put([one for one, _ in queue.parked()])
        else:
            queue.put([item(number % 7, f"k{number % 3}", what=step)])
        rows = queue.head(1000)
        names = {_native.canonical(one.key) for one in rows if one.what != "look"}
        assert queue.waiting() == len(rows)
        assert queue.writes() == sum(one.what != "look" for one in rows)
        assert queue.pending([_native.canonical(f"k{n}") for n in range(3)]) == names
        assert not set(tokens(rows)) & {one.idempotency_key for one, _ in queue.parked()}
    queue.close()


def start(script: str, *arguments: object) -> subprocess.Popen[str]:
    """Run a script in a process of its own, which prints what it has done."""
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])},
    )


_PUT = """
import sys
from bloomery.guard import SqliteQueue
from bloomery.guard.protocols import Item
queue = SqliteQueue(sys.argv[1])
for number in range(1_000_000):
    queue.put([Item("add", f"{sys.argv[2]}-{number}", number, f"{sys.argv[2]}-{number}", 0.0)])
    print(number, flush=True)
"""


def test_processes_killed_while_they_put_lose_nothing(path: Path) -> None:
    """Two write to one file and are killed: all that was acknowledged is there, in order."""
    processes = [start(_PUT, path, name) for name in "ab"]
    acknowledged = {}
    for process in processes:
        assert process.stdout is not None
        for _ in range(100):
            process.stdout.readline()
    for name, process in zip("ab", processes, strict=True):
        process.send_signal(signal.SIGKILL)
        assert process.stdout is not None
        acknowledged[name] = 99 + len(process.stdout.read().split("\n")) - 1
        process.wait()
        process.stdout.close()
    queue = SqliteQueue(path)
    items = queue.head(10_000_000)
    assert queue.writes() == queue.waiting() == len(items)
    for name, last in acknowledged.items():
        numbers = [one.value for one in items if one.key.startswith(name)]
        assert numbers == list(range(len(numbers)))
        assert last <= len(numbers) - 1 <= last + 1
    queue.close()


_DRAIN = """
import sys, time
from pathlib import Path
from bloomery import BloomFilter
from bloomery.guard import Guard, SqliteQueue
from conftest import effort
from unit.guard.flaky import Log
class Told(Log):
    def change(self, *args):
        super().change(*args)
        print("done", flush=True)
guard = Guard(BloomFilter(1000), Told(Path(sys.argv[2])), queue=SqliteQueue(sys.argv[1]),
              on_outage="queue", timeout=None)
time.sleep(600)
"""


def test_a_process_killed_while_it_drains_loses_nothing(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between the source and the queue, again and again: the source has each write once, in
    order."""
    log = tmp_path / "log"
    queue = SqliteQueue(path, fsync=False)
    queue.put([item(number, f"k{number}") for number in range(1000)])
    for lines in (3, 250):
        process = start(_DRAIN, path, log)
        assert process.stdout is not None
        for _ in range(lines):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        end_lease(path)
    done = log.read_text().splitlines()
    assert len(done) + queue.waiting() > 1000  # some were done, and the queue was not told
    source = Log(log)
    with Guard(
        BloomFilter(2000), source, queue=queue, on_outage="queue", timeout=None, retry=60
    ) as guard:
        guard.drain()
        assert queue.waiting() == 0
    assert log.read_text().splitlines() == [f"t{number}" for number in range(1000)]
    assert source.calls  # the rest, and those again that the queue was not told of


_FORK = """
import os, sys
from bloomery.guard import SqliteQueue
from bloomery.guard.protocols import Item
queue = SqliteQueue(sys.argv[1])
def put(name):
    for number in range(50):
        queue.put([Item("add", name, number, f"{name}{number}", 0.0)])
put("before")
child = os.fork()
put("child" if child == 0 else "parent")
if child == 0:
    queue.close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert queue.writes() == 150
put("after")
"""


def test_a_forked_child_opens_the_file_anew(path: Path) -> None:
    """Parent and child write at the same time, and neither loses anything."""
    process = start(_FORK, path)
    assert process.wait() == 0
    assert process.stdout is not None
    process.stdout.close()
    queue = SqliteQueue(path)
    items = queue.head(1000)
    for name in ("before", "child", "parent", "after"):
        assert [one.value for one in items if one.key == name] == list(range(50))
    queue.close()


def test_an_empty_queue_answers_at_once(queue: SqliteQueue) -> None:
    """`pending` and `writes` are asked on the way to the source: 15 us, here less than 500."""
    names = [_native.canonical("k")]
    began = time.process_time()  # not others' time: the machine may be busy
    for _ in range(1000):
        queue.pending(names)
        queue.writes()
    assert time.process_time() - began < 1.0


@pytest.mark.parametrize("damage", ["value = x'ff00'", "what = 'ADD'", "key = 'text'", "at = 'no'"])
def test_a_damaged_item_is_named_and_not_guessed_at(path: Path, damage: str) -> None:
    """Nothing is done out of order, and an add that can no longer be read is not a remove."""
    queue = SqliteQueue(path)
    queue.put([Item("add", "a", 1, "t1", 0.0), Item("add", "b", 1, "t2", 0.0)])
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"UPDATE waiting SET {damage} WHERE idempotency_key = 't1'")
    with pytest.raises(QueueUnavailable, match="item 1 is damaged"):
        queue.head(10)
    queue.close()


def test_many_open_a_new_file_at_once(tmp_path: Path) -> None:
    """Each has the queue: none is told that another holds it."""
    for attempt in range(40):
        path, ready = tmp_path / f"queue {attempt}", threading.Barrier(4)

        def opened(path: Path = path, ready: threading.Barrier = ready) -> None:
            ready.wait()
            SqliteQueue(path).close()

        with ThreadPoolExecutor(4) as pool:
            for one in [pool.submit(opened) for _ in range(4)]:
                one.result()
