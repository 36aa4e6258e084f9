"""A SeenStore beside a plain dict of when each article was marked, whatever the clock does."""

from __future__ import annotations

import shutil
import tempfile

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from bloomery.apps import SeenStore
from conftest import effort
from unit.clocks import Clock

USERS = st.sampled_from(["ada", "bob", 7])
ARTICLES = st.lists(st.integers(0, 20), max_size=5)
MANY = list(range(21))


class SeenMachine(RuleBasedStateMachine):
    """Marks, restarts, and a clock that goes on, jumps and goes back."""

    @initialize(window=st.integers(4, 100), generations=st.integers(1, 4), on_disk=st.booleans())
    def begin(self, window: int, generations: int, on_disk: bool) -> None:
        self.folder = tempfile.mkdtemp(prefix="bloomery-seen-") if on_disk else None
        self.window, self.generations = float(window), generations
        self.clock = Clock(1_700_000_000.0)
        self.marked: dict[tuple[object, int], float] = {}
        self.went_back = 0.002  # times are kept in milliseconds
        self.latest = self.clock.now  # what the clock has shown at most
        self.store = self.opened()

    def opened(self) -> SeenStore:
        return SeenStore(
            self.folder,
            window=self.window,
            generations=self.generations,
            articles_per_user=10,
            error_rate=1e-6,
            clock=self.clock,
        )

    @rule(user=USERS, articles=ARTICLES)
    def mark(self, user: object, articles: list[int]) -> None:
        self.store.mark(user, articles)  # type: ignore[arg-type]
        self.marked.update(dict.fromkeys(((user, each) for each in articles), self.clock.now))

    @rule(seconds=st.floats(0, 60))
    def pass_time(self, seconds: float) -> None:
        self.clock.now += seconds
        self.latest = max(self.latest, self.clock.now)

    @rule(seconds=st.floats(0, 300))
    def set_back(self, seconds: float) -> None:
        self.clock.now -= seconds
        self.went_back += seconds

    @rule()
    def restart(self) -> None:
        if self.folder is not None:
            self.store.close()
            self.store = self.opened()

    @rule(user=USERS)
    def forget(self, user: object) -> None:
        self.store.forget(user)  # type: ignore[arg-type]
        self.marked = {key: at for key, at in self.marked.items() if key[0] != user}

    @invariant()
    def nothing_of_the_window_is_fresh(self) -> None:
        if not hasattr(self, "store"):
            return
        for user in ("ada", "bob", 7):
            fresh = set(self.store.fresh(user, MANY))
            for article in MANY:
                at = self.marked.get((user, article))
                if at is None:
                    assert article in fresh
                elif self.latest - at < self.window:
                    assert article not in fresh, (user, article)
                elif self.clock.now == self.latest and at <= self.latest - self.longest():
                    assert article in fresh, "forgotten, a generation after the window"

    def longest(self) -> float:
        """The window and a generation; and as long as the clock was behind, since a mark goes into
        the generation that the clock had reached before."""
        return self.window + self.window / self.generations + self.went_back

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            if self.folder is not None:
                shutil.rmtree(self.folder)


TestSeenMachine = SeenMachine.TestCase
TestSeenMachine.settings = settings(
    max_examples=effort(10, 40, 1000), stateful_step_count=40, deadline=None
)
