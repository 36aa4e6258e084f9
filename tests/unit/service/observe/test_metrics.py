"""`/metrics`: Prometheus can read it, and it shows what there is to whom it may be shown."""

import asyncio
import json
import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse

from bloomery.service.access.permissions import ANYBODY, Role, User
from bloomery.service.network.tls import Tls
from bloomery.service.observe.metrics import STORE
from bloomery.service.server import Server
from docs.pages import DOCS, TREE
from unit.service.certificates import Pairs
from unit.service.inside import running
from unit.service.sampling.test_sampler import filled

HOSTILE = [
    b'quo"te',
    b"back\\slash",
    b"new\nline",
    b"\x00\xff",
    "größe €".encode(),
    b"",
    b"x" * 900,
]

Values = dict[tuple[str, str], float]


def values(text: bytes) -> Values:
    """Every value, by its name and its filter."""
    return {
        (one.name, one.labels.get("filter", "")): one.value
        for family in parse(text.decode())
        for one in family.samples
    }


def looked_at(server: Server) -> None:
    """Take a sample of each filter."""
    for entry in list(server.parts.engine.state.filters.values()):
        server.parts.sampler.take(entry)


def test_the_figures_of_a_filter(tmp_path: Path) -> None:
    """What it holds, what was done to it, how often it errs; what is not known is left out."""

    async def main() -> None:
        async with running(tmp_path, sample_seconds=0) as server:
            await filled(server)
            server.parts.commands.contains(b"users", [b"key 1", b"key 2", b"absent"])
            before = values(server.metrics.render(ANYBODY))
            assert before["bloomery_filter_items", "users"] == 500
            assert ("bloomery_filter_fill_ratio", "users") not in before
            looked_at(server)
            found = values(server.metrics.render(ANYBODY))
            assert found["bloomery_filter_capacity", "users"] == 1000
            assert found["bloomery_filter_error_rate", "users"] == 0.01
            assert 0.2 < found["bloomery_filter_fill_ratio", "users"] < 0.4
            assert found["bloomery_filter_adds_total", "users"] == 500
            assert found["bloomery_filter_checks_total", "users"] == 3
            assert found["bloomery_filter_maybes_total", "users"] >= 2
            assert found["bloomery_filter_observed_error_rate_high", "users"] > 0
            assert found["bloomery_filter_bytes", "users"] == 1280
            assert ("bloomery_filter_full_in_seconds", "users") not in found
            assert found["bloomery_ready", ""] == 1
            assert found["bloomery_filters", ""] == 1
            assert found["bloomery_filters_not_shown", ""] == 0
            assert found["bloomery_filters_bytes", ""] >= 1280
            assert found["process_cpu_seconds_total", ""] > 0

    asyncio.run(main())


@pytest.mark.slow
def test_only_some_are_shown(tmp_path: Path) -> None:
    """Filters that one may not read are not there, nor those past the limit; how many is told."""

    async def main() -> None:
        async with running(tmp_path, sample_seconds=0, metrics_filters=3) as server:
            for number in range(6):
                await filled(server, b"a%d" % number, keys=1)
                await filled(server, b"b%d" % number, keys=1)
            looked_at(server)
            found = values(server.metrics.render(User("ann", Role.READ, (b"b*",))))
            shown = {name for metric, name in found if metric == "bloomery_filter_items"}
            assert shown == {"b0", "b1", "b2"}
            assert not [name for _, name in found if name.startswith("a")]
            assert found["bloomery_filters", ""] == 6
            assert found["bloomery_filters_not_shown", ""] == 3
            nothing = values(server.metrics.render(User("ann", Role.READ, (b"nothing",))))
            assert not [name for name, _ in nothing if name.startswith("bloomery_filter_")]

    asyncio.run(main())


@pytest.mark.slow
def test_any_name_is_a_label(tmp_path: Path) -> None:
    """Names are any bytes; each is its own label, as it is printed elsewhere."""

    async def main() -> None:
        async with running(tmp_path, sample_seconds=0) as server:
            for name in HOSTILE:
                await filled(server, name, keys=1)
            looked_at(server)
            found = values(server.metrics.render(ANYBODY))
            shown = {name for metric, name in found if metric == "bloomery_filter_items"}
            assert len(shown) == len(HOSTILE)
            assert {'quo"te', "back\\\\slash", "new\\x0aline", "\\x00\\xff", "größe €"} < shown

    asyncio.run(main())


@pytest.mark.slow
def test_names_and_units_follow_the_conventions(tmp_path: Path) -> None:
    """Each metric has a type and a help; counters end in _total; times are in seconds."""

    async def main() -> bytes:
        async with running(tmp_path, sample_seconds=0) as server:
            await filled(server)
            looked_at(server)
            return server.metrics.render(ANYBODY)

    families = list(parse(asyncio.run(main()).decode()))
    assert len({family.name for family in families}) == len(families)
    for family in families:
        assert family.documentation
        assert re.fullmatch(r"(bloomery|process)_[a-z_]+", family.name), family.name
        assert family.type in {"gauge", "counter", "histogram"}
        names = {one.name for one in family.samples}
        if family.type == "histogram":
            assert names == {f"{family.name}_{end}" for end in ("bucket", "sum", "count")}
            assert family.name.endswith("_seconds")
            continue
        assert all(name.endswith("_total") == (family.type == "counter") for name in names), names
        assert not re.search(r"_(ms|millis|percent|kb|mb)\b", family.name)


def everything(tmp_path: Path) -> str:
    """What `/metrics` says of a server that has all there can be, but for a store."""

    async def main() -> bytes:
        async with running(tmp_path, sample_seconds=0, maxmemory="1gb") as server:
            entry = await filled(server)
            server.certificate = Tls(*Pairs(tmp_path).make("server"), server.say)
            await server.parts.snapshots.save()
            server.parts.sampler.take(entry)
            await server.parts.commands.add(b"users", [b"one more"])
            server.parts.sampler.take(entry)
            return server.metrics.render(ANYBODY)

    return asyncio.run(main()).decode()


@pytest.mark.slow
def test_the_page_and_the_dashboard_have_metrics_that_exist(tmp_path: Path) -> None:
    """docs/monitoring.md lists the metrics that there are, and no others; the dashboard of Grafana
    asks for some of them only, in panels that do not overlap."""
    shown = everything(tmp_path)
    told = {line.split()[2] for line in shown.splitlines() if "HELP" in line}
    text = (DOCS / "monitoring.md").read_text("utf-8").partition("## Metrics")[2]
    listed = set(re.findall(r"^\| `(bloomery_\w+)` \|", text, re.M))
    of_nodes = {f"bloomery_store_{name}" for name in STORE}  # tests of nodes see these
    assert {name for name in told if not name.startswith("process_")} | of_nodes == listed
    exist = told | of_nodes
    for name in re.findall(r"^# TYPE (\w+) histogram$", shown, re.M):
        exist |= {f"{name}_bucket", f"{name}_sum", f"{name}_count"}
    board = json.loads((TREE / "deploy" / "grafana-dashboard.json").read_text("utf-8"))
    panels = [panel for panel in board["panels"] if panel["type"] != "row"]
    asked = [target["expr"] for panel in panels for target in panel["targets"]]
    asked += [one["definition"] for one in board["templating"]["list"] if "definition" in one]
    for expression in asked:
        names = set(re.findall(r"\b(?:bloomery|process)_\w+", expression))
        assert names, expression
        assert names <= exist, names - exist
        assert expression.count("(") == expression.count(")"), expression
        assert set(re.findall(r"\$(\w+)", expression)) <= {"instance", "filter", "__rate_interval"}
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    places: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not places & cells, panel["title"]
        places |= cells
        assert at["x"] + at["w"] <= 24
        assert panel["datasource"]["uid"] == "${datasource}"


def test_how_long_requests_and_commits_take(tmp_path: Path) -> None:
    """Every command of a pipeline and every request of HTTP is counted once, by its door, in the
    bucket of its time; and every commit."""

    async def main() -> dict[tuple[str, str], float]:
        async with running(tmp_path, sample_seconds=0) as server:
            port = int(server.parts.resp_address.rpartition(":")[2])
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            commands = b"BF.RESERVE f 0.01 100\r\n" + b"BF.ADD f key\r\nPING\r\nDBSIZE\r\n" * 10
            writer.write(commands[:-5])  # the last one comes in two
            for _ in range(30):
                assert await reader.readline()
            writer.write(commands[-5:])
            assert await reader.readline()
            writer.close()
            host, _, port_text = server.http_address.rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(port_text))
            for _ in range(3):
                writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                await reader.readuntil(b"ok\n")
            writer.close()
            figures = parse(server.metrics.render(ANYBODY).decode())
            return {
                (one.name, one.labels.get("door", "")): one.value
                for family in figures
                if family.type == "histogram"
                for one in family.samples
                if one.labels.get("le", "10.0") == "10.0"
            }

    found = asyncio.run(main())
    request = "bloomery_request_duration_seconds"
    assert found[f"{request}_count", "resp"] == found[f"{request}_bucket", "resp"] == 31
    assert found[f"{request}_count", "http"] == found[f"{request}_bucket", "http"] == 3
    assert 0 < found[f"{request}_sum", "resp"] < 31 * 10
    assert found["bloomery_log_commit_duration_seconds_count", ""] >= 1
