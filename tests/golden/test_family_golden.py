"""Every kind, saved last year and loaded today: bytes and wrong answers are the golden ones."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

import bloomery
from bloomery.filters import COMMON_KINDS
from golden.make import ABSENT
from golden.make_family import ANSWERS, BUILD, HELD, NOW, path_of

GOLDEN: dict[str, list[int]] = json.loads(ANSWERS.read_text("ascii"))
every_golden = pytest.mark.parametrize("name", BUILD)


def opened(name: str, **how: Any) -> Any:
    """The golden filter; one that forgets is told the time at which it was saved."""
    filter: Any = bloomery.open(path_of(name), **how)
    if hasattr(filter, "set_clock"):
        filter.set_clock(lambda: NOW + 5 * 3600)
    return filter


@every_golden
def test_a_fresh_build_is_the_golden_file(name: str) -> None:
    """The same keys in the same order give the same file, byte for byte."""
    golden = path_of(name).read_bytes()
    assert BUILD[name]().to_bytes() == golden
    assert opened(name).to_bytes() == golden
    assert opened(name, mmap=True, verify=True).to_bytes() == golden


@every_golden
def test_a_golden_file_answers_as_ever(name: str) -> None:
    """It holds its keys and errs on exactly the absent keys that it always erred on."""
    for filter in (opened(name), opened(name, mmap=True)):
        assert all(filter.contains_many(HELD))
        assert [i for i, key in enumerate(ABSENT) if key in filter][:40] == GOLDEN[name]
    assert len(GOLDEN[name]) >= 10 or opened(name).error_rate < 0.01


@every_golden
def test_a_golden_file_knows_what_it_is(name: str) -> None:
    """Kind and parameters come back from the file, and go on through pickle."""
    filter = opened(name)
    assert filter.kind == name.partition("-")[0]
    copy = pickle.loads(pickle.dumps(filter))
    assert type(copy) is type(filter)
    assert (copy.capacity, copy.error_rate, copy.seed) == (
        *(filter.capacity, filter.error_rate, filter.seed),
    )


def test_every_kind_has_a_golden_file() -> None:
    """No kind is without one, no file is without a kind, and all of them are small."""
    assert {name.partition("-")[0] for name in BUILD} >= set(COMMON_KINDS) - {"bloom"}
    files = list(path_of("x").parent.glob("*.bloom"))
    assert {file.stem for file in files} == set(BUILD)
    assert sum(file.stat().st_size for file in files) < 50 * 1024
