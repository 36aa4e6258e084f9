"""The error rate that look-ups see: in samples, in metrics, and as an alert."""

from typing import Any

from bloomery import Client
from bloomery.client import RemoteFilter
from integration.http.asking import Http
from integration.lookup.places import ROWS, url
from integration.servers import wait_until


def test_look_ups_raise_the_alert(client: Client, http: Http) -> None:
    """An overfull filter errs; from a thousand absent keys on the samples have what look-ups saw,
    the alert is raised by it, and /metrics has both."""
    seen = client.create("overfull", 200, 0.01, kind="bloom", on_full="alert", source="urls")
    seen.update([url(number) for number in range(ROWS // 2)])
    seen.lookup_many([f"absent {number}" for number in range(900)])
    sample = _sampled(seen)
    assert sample["observed_by"] == "canary"
    answers = seen.lookup_many([f"absent {number}" for number in range(4000)])
    wrong = sum(answer.by != "filter" for answer in answers)
    looked_up = seen.info()["lookups"]
    # Distinct keys, but for the few that the two small filters of the window take for known.
    assert 0.95 * wrong <= looked_up["false_positives"] <= wrong
    observed = ("observed_error_rate", "observed_low", "observed_high")

    def sampled_since() -> bool:
        """Whether the last sample was taken after the last look-up, not amid them."""
        last = _sampled(seen)
        return last["observed_by"] == "lookups" and all(
            last[at] == looked_up[at] for at in observed
        )

    assert wait_until(sampled_since), (_sampled(seen), looked_up)
    sample = _sampled(seen)
    assert sample["observed_low"] > 0.01
    metrics = http.client.get("/metrics").text
    rate = sample["observed_error_rate"]
    assert f'bloomery_filter_observed_error_rate{{filter="overfull"}} {rate!r}' in metrics
    assert 'bloomery_alert_active{alert="error-rate",filter="overfull"} 1.0' in metrics
    seen.clear()
    assert wait_until(lambda: _sampled(seen)["observed_by"] == "canary")


def test_look_ups_see_what_the_canary_cannot(client: Client, http: Http) -> None:
    """Keys that left the source and are in the filter still: to look-ups each is an error."""
    gone = client.create("outdated", 10_000, source="urls")
    gone.update([f"gone {number}" for number in range(1200)])
    assert not any(gone.lookup_many([f"gone {number}" for number in range(1200)]))
    alert = ("error-rate", "outdated")

    def raised() -> bool:
        found = http.ask("GET", "/alerts")["alerts"]
        return alert in [(one["kind"], one["filter"]) for one in found]

    assert wait_until(raised)
    sample = _sampled(gone)
    assert (sample["observed_error_rate"], sample["observed_by"]) == (1.0, "lookups")
    assert sample["estimated_error_rate"] < 0.01


def _sampled(filter: RemoteFilter) -> dict[str, Any]:
    """The last sample of a filter; waited for if there is none."""
    found: list[dict[str, Any]] = []

    def there() -> bool:
        found[:] = [filter.info()["sample"] or {}]
        return bool(found[0])

    assert wait_until(there)
    return found[0]
