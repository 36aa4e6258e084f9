"""A bank beside a dict of sets: whatever is done to both, no user loses a key."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from bloomery import FilterBank
from privates import verify
from properties.strategies import HASHERS, members

# Few users, so that some of them outgrow what was planned.
users = st.sampled_from(["ada", b"ben", 0, 7, -1, ("a", 1)])
ranges = st.tuples(st.integers(-(2**63), 2**62), st.integers(1, 400))


class BankBesideSets(RuleBasedStateMachine):
    """Every rule does the same to the bank and to the sets it is measured against."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="bloomery-bank-"))
        self.path: Path | None = None
        self.held: dict[Any, set[Any]] = {}
        self.bank = FilterBank()
        self.files = 0

    def teardown(self) -> None:
        self.bank.close()
        shutil.rmtree(self.folder)

    def new_path(self) -> Path:
        self.files += 1
        return self.folder / f"{self.files}.bank"

    @initialize(
        rate=st.sampled_from([0.3, 0.01, 1e-6]),
        keys=st.sampled_from([1, 5, 40, 300]),
        hasher=st.sampled_from(HASHERS),
        in_file=st.booleans(),
    )
    def start(self, rate: float, keys: int, hasher: Any, in_file: bool) -> None:
        self.path = self.new_path() if in_file else None
        self.bank = FilterBank(rate, keys, hasher=hasher, path=self.path)

    @rule(user=users, key=members)
    def add(self, user: Any, key: Any) -> None:
        held = self.held.setdefault(user, set())
        new = self.bank.add(user, key)
        assert not (new and key in held)
        held.add(key)

    @rule(pairs=st.lists(st.tuples(users, members), max_size=30))
    def add_pairs(self, pairs: list[tuple[Any, Any]]) -> None:
        mask = self.bank.add_many([u for u, _ in pairs], [k for _, k in pairs])
        for (user, key), new in zip(pairs, mask, strict=True):
            held = self.held.setdefault(user, set())
            assert not (new and key in held)
            held.add(key)

    @rule(user=users, span=ranges)
    def add_array(self, user: Any, span: tuple[int, int]) -> None:
        first, count = span
        self.bank.update(user, np.arange(first, first + count))
        self.held.setdefault(user, set()).update(range(first, first + count))

    @rule(user=users)
    def drop(self, user: Any) -> None:
        assert self.bank.drop(user) == bool(self.held.pop(user, None))

    @rule()
    def clear(self) -> None:
        self.bank.clear()
        self.held.clear()

    @rule(user=users, keys=st.lists(members, max_size=30))
    def ask(self, user: Any, keys: list[Any]) -> None:
        mask = [self.bank.contains(user, key) for key in keys]
        assert self.bank.contains_many(user, keys) == mask
        assert self.bank.contains_many([user] * len(keys), keys) == mask
        unseen = self.bank.unseen(user, keys)
        assert unseen == [key for key, seen in zip(keys, mask, strict=True) if not seen]
        assert not self.held.get(user, set()) & set(unseen)

    @rule()
    def flush(self) -> None:
        self.bank.flush()

    @rule(how=st.sampled_from(["reopen", "copy", "bytes", "into a file"]))
    def travel(self, how: str) -> None:
        before = self.bank
        if how == "into a file":
            self.path = self.new_path()
            before.save(self.path)
            self.bank = FilterBank.open(self.path)
        elif how == "reopen" and self.path is not None:
            before.close()
            self.bank = FilterBank.open(self.path)
            return
        else:
            self.path = None
            self.bank = (
                FilterBank.from_bytes(before.to_bytes()) if how == "bytes" else before.copy()
            )
        assert self.bank == before
        before.close()

    @invariant()
    def nothing_is_lost(self) -> None:
        for user, keys in self.held.items():
            assert all(self.bank.contains_many(user, list(keys)))
        assert len(self.bank) == len(self.held)

    @invariant()
    def the_bank_is_whole(self) -> None:
        verify(self.bank)


TestBankBesideSets = BankBesideSets.TestCase
TestBankBesideSets.settings = settings(stateful_step_count=25)
