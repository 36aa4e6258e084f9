"""What `bloomery serve` has for browsers: the module, for anybody, and exact sets, as files."""

import httpx

from bloomery import ExactSet
from bloomery.browser import MODULE
from integration.servers import BloomeryServer

OCTETS = {"Content-Type": "application/octet-stream"}


def test_the_module_is_served(server: BloomeryServer) -> None:
    """GET /bloomery.js is the file of the package, as JavaScript."""
    response = httpx.get(f"{server.url}/bloomery.js")
    assert response.status_code == 200
    assert response.content == MODULE.read_bytes()
    assert response.headers["content-type"].startswith("text/javascript")
    assert response.headers["x-content-type-options"] == "nosniff"


def test_an_exact_set_is_served_as_every_file_is(server: BloomeryServer) -> None:
    """A server takes one in, answers by it, adds nothing to it, and gives it back as it was."""
    data = ExactSet.build([f"t{n}" for n in range(50)], [f"v{n}" for n in range(900)]).to_bytes()
    with httpx.Client(base_url=f"{server.url}/filters/revoked%20tokens") as client:
        assert client.put("/file", content=data, headers=OCTETS).status_code in (200, 201)
        keys = [*(f"t{n}" for n in range(50)), *(f"v{n}" for n in range(900))]
        answers = client.post("/contains", json={"keys": keys}).json()
        assert str(answers).count("True") == 50
        assert client.get(f"{server.url}/filters/revoked%20tokens").json()["kind"] == "exact"
        assert client.post("/add", json={"key": "x"}).json()["code"] == "read-only-filter"
        assert client.get("/file").content == data
