"""The file of users: what it keeps, what it refuses, and that nobody can log in from it."""

import json
import multiprocessing
import os
import stat
import time
from pathlib import Path

import pytest

from bloomery import errors
from bloomery.service.access import users
from bloomery.service.access.permissions import Role
from bloomery.service.access.users import Account, Token, changing, load, users_file


def test_what_is_changed_is_read_again(tmp_path: Path) -> None:
    """Users, with all that is known of them, are in the file afterwards as they were put there."""
    with changing(tmp_path) as found:
        found.add(Account("ann", Role.ADMIN, password=users.hash_password("a long secret")))
        found.add(Account("bob", Role.READ, ("a:*", "\udcff\\*")))
        text = found.add_token("bob", "for the crawler", 2e9)
    again = load(tmp_path)
    assert again == found
    assert again["bob"].user.patterns == (b"a:*", b"\xff\\*")
    number, secret = users.split_token(text) or ("", "")
    assert again["bob"].tokens[0].id == number
    assert again["bob"].tokens[0].digest == users.digest_of(secret)
    assert len(secret) * 4 == 256


def test_no_file_means_no_users(tmp_path: Path) -> None:
    """A folder without the file has no users, and asking makes none."""
    assert load(tmp_path) == {}
    assert list(tmp_path.iterdir()) == []


def test_the_file_is_its_owners_alone(tmp_path: Path) -> None:
    """Nobody else can read it, also where it was more open before."""
    before = os.umask(0)
    try:
        for _ in range(2):
            with changing(tmp_path) as found:
                found.add(Account(f"user{len(found)}", Role.READ))
            assert stat.S_IMODE(users_file(tmp_path).stat().st_mode) == 0o600
            users_file(tmp_path).chmod(0o644)
    finally:
        os.umask(before)


def _add(folder: Path, *names: str) -> None:
    with changing(folder) as found:
        for name in names:
            found.add(Account(name, Role.READ))


def test_a_failure_changes_nothing(tmp_path: Path) -> None:
    """If something is wrong on the way, the file is as it was."""
    with changing(tmp_path) as found:
        found.add(Account("ann", Role.ADMIN))
    before = users_file(tmp_path).read_bytes()
    with pytest.raises(errors.InvalidParameter):
        _add(tmp_path, "bob", "ann")
    assert users_file(tmp_path).read_bytes() == before


def _add_ten(folder: Path, first: int) -> None:
    for number in range(first, first + 10):
        with changing(folder) as found:
            found.add(Account(f"user{number}", Role.READ))


@pytest.mark.slow
def test_changes_wait_for_each_other(tmp_path: Path) -> None:
    """Processes that change the users at the same time lose nothing of each other's."""
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_add_ten, args=(tmp_path, 10 * n)) for n in range(4)]
    for one in workers:
        one.start()
    for one in workers:
        one.join()
    assert len(load(tmp_path)) == 40


@pytest.mark.parametrize("name", ["", "a b", "a:b", "-a", "ü", "a" * 65, "a\n"])
def test_names_that_cannot_be(tmp_path: Path, name: str) -> None:
    """A name that HTTP or CLIENT LIST could not carry is refused."""
    with pytest.raises(errors.InvalidParameter, match="must be up to 64"), changing(tmp_path) as u:
        u.add(Account(name, Role.READ))


@pytest.mark.parametrize("password", ["", "seven77", "x" * 1025])
def test_passwords_that_cannot_be(password: str) -> None:
    """A short password is found by guessing, and one of more than a kilobyte is a mistake."""
    with pytest.raises(errors.InvalidParameter, match="must have 8 to 1,024") as found:
        users.hash_password(password)
    assert password == "" or password not in str(found.value)


def test_passwords_are_kept_as_argon2id() -> None:
    """What is kept of a password is argon2's, and differs each time."""
    one, other = users.hash_password("a long secret"), users.hash_password("a long secret")
    assert one != other
    assert one.startswith("$argon2id$")
    assert "secret" not in one
    assert users.hasher().verify(one, b"a long secret")


@pytest.mark.parametrize(
    "text",
    [
        *("", "bloomery_", "bloomery_0123456789abcdef_", "x_0123456789abcdef_" + "0" * 64),
        "bloomery_0123456789ABCDEF_" + "0" * 64,
        "bloomery_0123456789abcdef_" + "0" * 64 + "\n",
    ],
)
def test_what_is_no_token(text: str) -> None:
    """Only what has the form of a token is taken for one."""
    assert users.split_token(text) is None


def test_a_token_ends(tmp_path: Path) -> None:
    """A token is good until its time, and is gone when it is revoked."""
    with changing(tmp_path) as found:
        found.add(Account("ann", Role.ADMIN))
        found.add_token("ann", expires=time.time() + 60)
    (token,) = load(tmp_path)["ann"].tokens
    assert not token.expired(time.time())
    assert token.expired(time.time() + 61)
    with changing(tmp_path) as found:
        assert found.revoke(token.id).name == "ann"
    assert load(tmp_path)["ann"].tokens == ()
    with pytest.raises(errors.InvalidParameter, match="no token"), changing(tmp_path) as found:
        found.revoke(token.id)


def test_who_may_do_everything() -> None:
    """An admin counts as one who may do everything if all names are theirs and they can log in."""
    for account, right in (
        (Account("a", Role.ADMIN), True),
        (Account("a", Role.ADMIN, ("b*", "*")), True),
        (Account("a", Role.ADMIN, ("b*",)), False),
        (Account("a", Role.WRITE), False),
        (Account("a", Role.ADMIN, disabled=True), False),
    ):
        found = users.Users()
        found.add(account)
        assert found.has_admin() is right, account


def _whole(folder: Path) -> bytes:
    with changing(folder) as found:
        found.add(Account("ann", Role.ADMIN, password="$argon2id$hash"))
        found.add(Account("bob", Role.READ, tokens=(Token("1", "", 0.0, None, "aa"),)))
    return users_file(folder).read_bytes()


def test_a_damaged_file_is_told(tmp_path: Path) -> None:
    """A file that was cut anywhere is refused with its name, and nothing of it is shown."""
    raw = _whole(tmp_path)
    for cut in range(len(raw) - 2):
        users_file(tmp_path).write_bytes(raw[:cut])
        with pytest.raises(errors.CorruptData, match=r"users\.json") as found:
            load(tmp_path)
        assert "argon2" not in str(found.value)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("users", 0, "role"), "root"),
        (("users", 0, "role"), "nobody"),
        (("users", 0, "name"), "bob"),
        (("users", 0, "name"), 7),
        (("users", 0, "patterns"), [7]),
        (("users", 0, "password"), 7),
        (("users", 0, "disabled"), 0),
        (("users", 0, "tokens"), [{}]),
        (("users", 1, "tokens", 0, "expires"), "never"),
        (("users", 1, "tokens", 0, "digest"), None),
        (("users",), {"ann": {}}),
    ],
)
def test_a_wrong_field_is_told(tmp_path: Path, path: tuple[str | int, ...], value: object) -> None:
    """Whatever field is not as it has to be, the file is refused: nobody gets more than meant."""
    whole = json.loads(_whole(tmp_path))
    inner = whole
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    users_file(tmp_path).write_text(json.dumps(whole))
    with pytest.raises(errors.CorruptData):
        load(tmp_path)


def test_a_newer_file_is_told(tmp_path: Path) -> None:
    """A file of a later version is not guessed at."""
    users_file(tmp_path).write_text('{"version": 2, "users": []}')
    with pytest.raises(errors.UnsupportedVersion, match="version 2"):
        load(tmp_path)


def test_a_file_that_is_gone_is_missed(tmp_path: Path) -> None:
    """A folder that had users is not open to all when their file is gone; nor are users added to
    nothing. Without the lock too, there are none."""
    with pytest.raises(errors.InvalidParameter), changing(tmp_path) as found:
        found.find("nobody")  # which makes no file, and there never was one
    assert load(tmp_path) == {}
    with changing(tmp_path) as found:
        found.add(Account("ann", Role.ADMIN))
    users_file(tmp_path).unlink()
    with pytest.raises(errors.CorruptData, match=r"users\.json: gone"):
        load(tmp_path)
    with pytest.raises(errors.CorruptData), changing(tmp_path) as found:
        found.add(Account("bob", Role.ADMIN))
    (tmp_path / "users.lock").unlink()
    assert load(tmp_path) == {}
