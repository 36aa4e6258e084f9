"""PostgreSQL without a server: what is said of a URL that cannot be meant."""

import pytest

from bloomery import building
from bloomery.errors import InvalidParameter
from conftest import require

require("psycopg")


@pytest.mark.parametrize(
    "password", ["hunter2/x", "x/hunter2", "hunter2@x", "x@hunter2", "1/hunter2"]
)
def test_a_password_that_was_not_escaped_is_not_shown(password: str) -> None:
    """Its parts would be taken for host, port and database, and be in every message."""
    with pytest.raises(InvalidParameter, match="in a password is written %40") as caught:
        building.open_rows(f"postgresql://ann:{password}@db/shop", table="t", columns=["k"])
    assert "hunter2" not in str(caught.value)
