"""Policies by the other door."""

from collections.abc import Iterator

import httpx
import pytest

from integration.servers import BloomeryServer

KEYS = [f"key {number}" for number in range(300)]


@pytest.fixture
def http(server: BloomeryServer) -> Iterator[httpx.Client]:
    """A client of a server that tests share."""
    with httpx.Client(base_url=f"http://127.0.0.1:{server.http_port}", timeout=60) as client:
        yield client


@pytest.mark.parametrize(
    ("on_full", "kind"),
    [("grow", "scalable"), ("rotate", "rotating"), ("reject", "bloom"), ("alert", "bloom")],
)
def test_the_policy_chooses_the_kind(http: httpx.Client, on_full: str, kind: str) -> None:
    """POST /filters with a policy and no kind makes the kind that can; what it shows has both."""
    name = f"http {on_full}"
    made = http.post("/filters", json={"name": name, "capacity": 100, "on_full": on_full})
    assert made.status_code == 201, made.text
    shown = http.get(f"/filters/{name}").json()
    assert shown["kind"] == kind
    assert shown["policy"]["on_full"] == on_full


def test_a_refusal_says_which_policy_refused(http: httpx.Client) -> None:
    """A key too many is a problem whose text names the filter, its keys and its policy; after a
    PATCH to `alert` it is taken, and the alert is in the metrics before anybody is told."""
    http.post("/filters", json={"name": "http full", "capacity": 100, "on_full": "reject"})
    refused = http.post("/filters/http full/add", json={"keys": KEYS})
    assert refused.status_code == 409, refused.text
    problem = refused.json()
    assert problem["code"] == "filter-full"
    assert problem["detail"] == (
        "'http full' holds 100 keys, its capacity, and its policy is reject: make a larger one, or "
        "one that grows"
    )
    lines = "\n".join(f'"{key}"' for key in KEYS)
    kind = {"Content-Type": "application/x-ndjson"}
    streamed = http.post("/filters/http full/add", content=lines, headers=kind)
    assert "policy is reject" in streamed.text
    wrong = http.patch("/filters/http full", json={"on_full": "grow"})
    assert wrong.status_code == 422, wrong.text
    assert "scalable or cuckoo" in wrong.json()["detail"]
    changed = http.patch("/filters/http full", json={"on_full": "alert", "warn_at": 0.5})
    assert changed.status_code == 200, changed.text
    assert http.post("/filters/http full/add", json={"keys": KEYS}).status_code == 200
    metrics = http.get("/metrics").text
    assert 'bloomery_alert_active{alert="full",filter="http full"} 1.0' in metrics
    assert 'bloomery_alert_active{alert="nearly-full",filter="http full"} 1.0' in metrics
