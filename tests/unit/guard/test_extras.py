"""What the guard needs beside the plain install, and only when it is used."""

import subprocess
import sys
from collections.abc import Callable

import pytest

from bloomery.errors import MissingExtra
from bloomery.guard import AsyncRedisCache, LocalCache, RedisCache, SqlSource

pytestmark = pytest.mark.slow


def test_importing_the_guard_brings_no_optional_package() -> None:
    """`import bloomery.guard` works where none of them is installed."""
    program = "import sys, bloomery.guard; print(*{m.partition('.')[0] for m in sys.modules})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert not set(done.stdout.decode().split()) & {"sqlalchemy", "redis", "cachetools", "psycopg"}


@pytest.mark.parametrize(
    ("package", "make", "extra"),
    [
        ("cachetools", LocalCache, "guard"),
        ("redis", lambda: RedisCache("redis://localhost", "users:"), "guard"),
        ("redis", lambda: AsyncRedisCache("redis://localhost", "users:"), "guard"),
        ("sqlalchemy", lambda: SqlSource("sqlite:///x", table="t", key="k"), "guard"),
        ("psycopg", lambda: SqlSource("postgresql://h/d", table="t", key="k"), "postgresql"),
    ],
)
def test_a_missing_package_is_named(
    monkeypatch: pytest.MonkeyPatch, package: str, make: Callable[[], object], extra: str
) -> None:
    """What needs a package that is not installed says which, and how to get it."""
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=rf"needs {package}: pip install 'bloomery\[{extra}\]'"):
        make()


def test_a_missing_driver_of_another_database_is_named() -> None:
    """No extra of ours brings it, so none is offered."""
    with pytest.raises(
        MissingExtra, match=r"mysql://… needs \w+: install it, no extra of bloomery"
    ):
        SqlSource("mysql://user@host/shop", table="t", key="k")
