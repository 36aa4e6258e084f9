"""`bloomery serve` sends the module for browsers, to anybody."""

import httpx

from bloomery.browser import MODULE
from integration.servers import BloomeryServer


def test_the_module_is_served(server: BloomeryServer) -> None:
    """GET /bloomery.js is the file of the package, as JavaScript."""
    response = httpx.get(f"{server.url}/bloomery.js")
    assert response.status_code == 200
    assert response.content == MODULE.read_bytes()
    assert response.headers["content-type"].startswith("text/javascript")
    assert response.headers["x-content-type-options"] == "nosniff"
