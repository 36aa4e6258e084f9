"""The figures of `bloomery top`, read from metrics."""

from typing import Any

import pytest

from bloomery.cli.server.live import LiveReader, parse_metrics
from bloomery.cli.terminal import bar

METRICS = """\
# HELP bloomery_filters filters
bloomery_filters_not_shown 3.0
bloomery_filters_bytes 4096.0
bloomery_connections{door="http"} 2.0
process_open_fds 12.0
bloomery_filter_items{filter="a \\"b\\" \\\\ c"} 90
bloomery_filter_capacity{filter="a \\"b\\" \\\\ c"} 100
bloomery_filter_error_rate{filter="a \\"b\\" \\\\ c"} 0.01
bloomery_filter_adds_total{filter="a \\"b\\" \\\\ c"} %d
bloomery_filter_checks_total{filter="a \\"b\\" \\\\ c"} 7
%s"""
NAME = 'a "b" \\ c'


class Server:
    """What a server answers, in turn."""

    def __init__(self, *metrics: str) -> None:
        self.metrics, self.asked = list(metrics), [0.0]
        self.transport = self

    def send(self, request: Any) -> Any:
        """Answer a request."""
        if request.path == "/metrics":
            return request.read(self.metrics.pop(0).encode())
        row = b'{"filters": [{"name": "a \\"b\\" \\\\ c", "kind": "cuckoo"}], "cursor": null}'
        return request.read(row)

    def clock(self) -> float:
        """Two seconds from each to the next."""
        self.asked[0] += 2.0
        return self.asked[0]


def read(*metrics: str) -> Any:
    """The last of several readings."""
    server = Server(*metrics)
    reader = LiveReader(server, server.clock)  # type: ignore[arg-type]
    return [reader.read() for _ in metrics][-1]


def test_metrics_are_parsed() -> None:
    """Figures of filters by their names, whatever is in those; others' lines are passed over."""
    server, filters = parse_metrics(METRICS % (5, "nonsense {\n"))
    assert server == {"filters_not_shown": 3.0, "filters_bytes": 4096.0}
    assert filters[NAME]["items"] == 90.0


def test_rates_are_those_between_two_readings() -> None:
    """None at first, and after a restart, when totals begin anew."""
    [first] = read(METRICS % (5, "")).filters
    assert (first.name, first.kind, first.adds_per_second) == (NAME, "cuckoo", None)
    [second] = read(METRICS % (5, ""), METRICS % (25, "")).filters
    assert (second.adds_per_second, second.checks_per_second) == (10.0, 0.0)
    [restarted] = read(METRICS % (5, ""), METRICS % (3, "")).filters
    assert restarted.adds_per_second is None


@pytest.mark.parametrize(
    ("more", "state"),
    [
        ({}, "healthy"),
        ({"full_in_seconds": 1e6}, "filling"),  # nine tenths are there
        ({"full_in_seconds": 60.0}, "filling"),
        ({"observed_error_rate_low": 0.02}, "saturated"),
        ({"items": 101.0, "estimated_error_rate": 0.02}, "saturated"),
        ({"items": 101.0, "estimated_error_rate": 0.009}, "healthy"),
    ],
)
def test_states(more: dict[str, float], state: str) -> None:
    """A filter's state in a word."""
    lines = (
        f'bloomery_filter_{name}{{filter="a \\"b\\" \\\\ c"}} {value}\n'
        for name, value in more.items()
    )
    [row] = read(METRICS % (5, "".join(lines))).filters
    assert row.state == state


@pytest.mark.parametrize(
    ("alert", "state"),
    [("full", "saturated"), ("error-rate", "saturated"), ("full-soon", "filling")],
)
def test_alerts_of_the_server_count(alert: str, state: str) -> None:
    """What the server has raised an alert about is not healthy."""
    line = f'bloomery_alert_active{{alert="{alert}",filter="a \\"b\\" \\\\ c"}} 1.0\n'
    [row] = read(METRICS % (5, line)).filters
    assert row.state == state
    [well] = read(METRICS % (5, 'bloomery_alert_active{alert="clock",filter=""} 1.0\n')).filters
    assert well.state == "healthy"


def test_a_node_that_is_behind() -> None:
    """All of its filters are lagging."""
    [row] = read(METRICS % (5, "bloomery_store_behind_seconds 4.5\n")).filters
    assert row.state == "lagging"


@pytest.mark.parametrize(
    ("share", "drawn"),
    [(0.0, "····"), (0.5, "██··"), (1.0, "████"), (7.0, "████"), (0.0313, "▏···"), (-1, "····")],
)
def test_bars(share: float, drawn: str) -> None:
    """A share as a bar, by eighths of a character."""
    assert bar(share, 4) == drawn
