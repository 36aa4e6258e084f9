"""Who may do what: roles in their order, patterns as KEYS has them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bloomery import errors
from bloomery.service.access.glob import glob
from bloomery.service.access.permissions import ANYBODY, OPERATIONS, Role, User, check
from bloomery.service.resp import dispatch
from bloomery.service.resp.table import COMMANDS, CONTAINERS, command


def may(user: User | None, operation: str, *names: bytes) -> bool:
    """Whether `check` lets them."""
    try:
        check(user, operation, *names)
    except (errors.NotAllowed, errors.NotLoggedIn):
        return False
    return True


@pytest.mark.parametrize("operation", OPERATIONS)
def test_each_role_may_what_those_before_it_may(operation: str) -> None:
    """An operation is allowed from its role on, and to nobody below it."""
    allowed = [may(User("a", role), operation, b"x") for role in Role]
    assert allowed == sorted(allowed)
    assert allowed[OPERATIONS[operation].role]
    assert may(None, operation) is (OPERATIONS[operation].role is Role.NOBODY)
    assert may(ANYBODY, operation, b"x")


def test_every_name_must_be_covered() -> None:
    """One name that no pattern covers is enough to be refused."""
    user = User("a", Role.ADMIN, (b"a:*", b"b"))
    assert may(user, "change", b"a:1", b"b", b"a:")
    assert not may(user, "change", b"a:1", b"c")
    assert not may(user, "change", b"bb")
    assert not may(user, "server")
    assert may(user, "look")


@given(
    st.lists(
        st.sampled_from([b"*", b"?", b"[a-b]", b"a", b"b", b":", b"\\*", b"\xff"]), max_size=6
    ),
    st.lists(st.sampled_from([b"a", b"b", b":", b"*", b"\xff"]), max_size=6),
)
def test_patterns_are_those_of_keys(pattern: list[bytes], name: list[bytes]) -> None:
    """A user's pattern covers what KEYS would list for it, also by the short way."""
    whole, wanted = b"".join(pattern), b"".join(name)
    assert User("a", Role.READ, (whole,)).covers(wanted) is glob(whole)(wanted)


def test_every_command_says_which_operation_it_is() -> None:
    """No command is without an operation, and none can be entered without one."""
    assert dispatch.HANDLERS
    own = [*COMMANDS.values(), *(one for each in CONTAINERS.values() for one in each.values())]
    assert {one.does for one in own} <= OPERATIONS.keys()
    with pytest.raises(TypeError):
        command("NEW")  # type: ignore[call-arg]
    with pytest.raises(AssertionError):
        command("NEW", does="whatever")


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("BF.ADD a k", ["a"]),
        ("BF.MADD a k l", ["a"]),
        ("BF.MERGE a b c", ["a", "b", "c"]),
        ("DEL a b c", ["a", "b", "c"]),
        ("COPY a b REPLACE", ["a", "b"]),
        ("RENAME a b", ["a", "b"]),
        ("OBJECT ENCODING a", ["a"]),
        ("MEMORY USAGE a SAMPLES 5", ["a"]),
        ("WATCH a b", ["a", "b"]),
        ("KEYS *", []),
        ("CONFIG GET a", []),
    ],
)
def test_names_in_a_request(words: str, names: list[str]) -> None:
    """Every name of a filter in a request is found, and nothing else is taken for one."""
    from bloomery.service.resp import table

    request = [word.encode() for word in words.split()]
    assert table.find(request).names(request) == [name.encode() for name in names]
