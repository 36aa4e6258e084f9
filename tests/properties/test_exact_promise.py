"""ExactSet's promise: of all keys that it was built with none is answered wrong, by any door."""

from __future__ import annotations

import io
import math
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bloomery import ExactSet, _native
from bloomery.errors import ConflictingKeys
from properties.strategies import HASHERS, keys


def apart(members: list[Any], others: list[Any]) -> list[Any]:
    """The others that are no members."""
    held = {_native.canonical(key) for key in members}
    return [key for key in others if _native.canonical(key) not in held]


@given(
    st.lists(keys, max_size=200),
    st.lists(keys, max_size=200),
    st.sampled_from([None, None, 0.5, 0.01, 2**-32]),
    st.sampled_from(HASHERS),
    st.sampled_from([0, 1, 2**64 - 1]),
)
def test_no_known_key_is_wrong(
    members: list[Any], others: list[Any], error_rate: float | None, hasher: Any, seed: int
) -> None:
    """Any keys on either side, of any kind and number, are right, also when read again."""
    others = apart(members, others)
    exact = ExactSet.build(members, others, error_rate=error_rate, hasher=hasher, seed=seed)
    for one in (exact, pickle.loads(pickle.dumps(exact)), ExactSet.from_bytes(exact.to_bytes())):
        assert one == exact
        assert all(key in one for key in members)
        assert not any(key in one for key in others)
        assert all(one.contains_many(members))
        assert not any(one.contains_many(others))
    assert exact.member_count == len({exact.hash_of(key) for key in members})
    assert exact.non_member_count == len({exact.hash_of(key) for key in others})
    assert error_rate is None or exact.estimated_error_rate <= error_rate


@given(
    st.sets(st.integers(-(2**63), 2**63 - 1), max_size=1000),
    st.sets(st.integers(-(2**63), 2**63 - 1), max_size=1000),
    st.randoms(),
)
def test_the_bytes_are_those_of_the_sets(a: set[int], b: set[int], random: Any) -> None:
    """Neither order nor copies nor the door change a byte."""
    members, others = list(a), list(b - a)
    exact = ExactSet.build(members, others)
    shuffled = [*members, *members[::2]]
    random.shuffle(shuffled)
    assert ExactSet.build(np.array(shuffled, np.int64), iter(others[::-1])) == exact
    assert np.all(exact.contains_many(np.array(members, np.int64)))
    assert not np.any(exact.contains_many(np.array(others, np.int64)))


@given(st.lists(keys, min_size=1, max_size=30), st.lists(keys, max_size=30), st.data())
def test_a_key_on_both_sides_is_always_refused(
    members: list[Any], others: list[Any], data: st.DataObject
) -> None:
    """One key on both sides, anywhere, and no set is made."""
    both = data.draw(st.sampled_from(members))
    others = apart(members, others)
    others.insert(data.draw(st.integers(0, len(others))), both)
    with pytest.raises(ConflictingKeys, match="1 key is among"):
        ExactSet.build(members, others)


@given(st.lists(st.text("abc\r\t", max_size=5), max_size=50), st.lists(st.text("xyz", max_size=5)))
def test_lines_are_keys(members: list[str], others: list[str]) -> None:
    """Lines of text are the keys that their bytes are."""
    others = apart(members, others)
    exact = ExactSet.build(members, others)
    text = "".join(f"{line}\n" for line in [*members, *others]).encode()
    kept, used, lines, chosen = exact.contains_lines(text)
    assert (used, lines, chosen) == (len(text), len(members) + len(others), len(members))
    assert kept == "".join(f"{line}\n" for line in members).encode()
    assume(members)
    assert io.BytesIO(kept).readline() == f"{members[0]}\n".encode()


@pytest.mark.parametrize(("members", "others"), [(1000, 100_000), (20_000, 20_000), (50_000, 500)])
@pytest.mark.parametrize("error_rate", [None, 0.01])
def test_other_keys_err_as_often_as_it_says(
    members: int, others: int, error_rate: float | None
) -> None:
    """The share of keys of neither side that is a yes is the estimated one within 5 sigma."""
    exact = ExactSet.build(np.arange(members), -1 - np.arange(others), error_rate=error_rate)
    probes = 10**6
    observed = np.count_nonzero(exact.contains_many(np.arange(probes) + 2**40)) / probes
    expected = exact.estimated_error_rate
    sigma = math.sqrt(expected * (1 - expected) / probes)
    assert observed == pytest.approx(expected, abs=5 * sigma)
