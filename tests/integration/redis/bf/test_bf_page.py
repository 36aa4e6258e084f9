"""What docs/redis.md says of the bytes that servers with BF.* are sent."""

from bloomery import _native
from bloomery.integrations.redis.bf.encoding import encoded
from docs.pages import DOCS


def test_the_bytes_of_an_int() -> None:
    """For other clients, as the page has them."""
    assert encoded(5).hex(" ").upper() in (DOCS / "redis.md").read_text("utf-8")
    assert encoded(5)[2:] == _native.canonical(5)
