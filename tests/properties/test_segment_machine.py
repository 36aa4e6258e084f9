"""A store beside a dict, whatever is done to both: put, deleted, flushed, merged, killed."""

import resource
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from bloomery.segments import SegmentStore
from conftest import effort

KEYS = st.integers(0, 60).map(lambda n: b"key %d" % n) | st.binary(max_size=3)
VALUES = st.binary(max_size=40) | st.sampled_from([b"", bytes(3000)])


class StoreMachine(RuleBasedStateMachine):
    """Memtables of a few hundred bytes, so that segments come and are merged all the time."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.model: dict[bytes, bytes] = {}
        self.generation = 0

    def open(self, fp_chance: float | None = None) -> None:
        path = self.folder / str(self.generation)
        self.store = SegmentStore(path, memtable_bytes=2000, fsync=False, fp_chance=fp_chance)

    @initialize(fp_chance=st.sampled_from([0.01, 0.5]))
    def create(self, fp_chance: float) -> None:
        self.open(fp_chance=fp_chance)

    @rule(key=KEYS, value=VALUES)
    def put(self, key: bytes, value: bytes) -> None:
        self.store.put(key, value)
        self.model[key] = value

    @rule(items=st.dictionaries(KEYS, VALUES, max_size=30))
    def put_many(self, items: dict[bytes, bytes]) -> None:
        self.store.put_many(items)
        self.model |= items

    @rule(key=KEYS)
    def delete(self, key: bytes) -> None:
        self.store.delete(key)
        self.model.pop(key, None)

    @rule(key=KEYS)
    def get(self, key: bytes) -> None:
        assert self.store.get(key) == self.model.get(key)
        told = self.store.explain(key)
        assert told.found == (key in self.model)

    @rule(keys=st.lists(KEYS, max_size=20))
    def get_many(self, keys: list[bytes]) -> None:
        assert self.store.get_many(keys) == [self.model.get(key) for key in keys]

    @rule(start=KEYS, stop=KEYS)
    def scan(self, start: bytes, stop: bytes) -> None:
        expected = sorted(item for item in self.model.items() if start <= item[0] < stop)
        assert list(self.store.scan(start, stop)) == expected

    @rule()
    def flush(self) -> None:
        self.store.flush()

    @rule()
    def compact(self) -> None:
        self.store.compact()

    @rule(fp_chance=st.sampled_from([0.001, 0.1, 0.5]))
    def change_fp_chance(self, fp_chance: float) -> None:
        self.store.fp_chance = fp_chance

    @rule(key=KEYS, value=VALUES, room=st.integers(0, 6000))
    def put_on_a_full_disk(self, key: bytes, value: bytes, room: int) -> None:
        """What is acknowledged is there; what is not, is not."""
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
        try:
            with suppress(OSError):
                self.store.put(key, value)
                self.model[key] = value
            with suppress(OSError):
                self.store.flush()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.open()

    @rule()
    def crash(self) -> None:
        """Go on with the files as they are, of which the store was told nothing."""
        old = self.folder / str(self.generation)
        self.generation += 1
        shutil.copytree(old, self.folder / str(self.generation))
        self.store.close()
        shutil.rmtree(old)
        self.open()

    @invariant()
    def same(self) -> None:
        if hasattr(self, "store"):
            assert dict(self.store.scan()) == self.model

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
        shutil.rmtree(self.folder)


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(max_examples=effort(5, 25, 1500), stateful_step_count=40)
