"""The registry on SQLite and on a real PostgreSQL: the same SQL, the same answers."""

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from bloomery.errors import RegistryUnavailable
from bloomery.names import printable
from bloomery.service.registry import tables
from bloomery.service.registry.registry import Registry
from bloomery.service.sampling.sample import RAW
from conftest import require
from docs.pages import DOCS, blocks
from unit.service.rows import NOW, row, sample

Ask = Callable[[str], list[tuple[Any, ...]]]


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of either sort."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/registry.sqlite"
    require("psycopg")
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def ask(url: str) -> Ask:
    """SQL as it stands, by the plain driver; the rows."""

    def run(sql: str) -> list[tuple[Any, ...]]:
        if url.startswith("sqlite"):
            with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection, connection:
                return connection.execute(sql).fetchall()
        with require("psycopg").connect(url) as connection:
            cursor = connection.execute(sql)
            return list(cursor.fetchall()) if cursor.description else []

    return run


@pytest.fixture
def open_registry(url: str) -> Iterator[Callable[[str], Registry]]:
    """A registry for a server, at that URL."""
    opened = []

    def make(server: str) -> Registry:
        opened.append(Registry(url, server))
        return opened[-1]

    yield make
    for one in opened:
        one.close()


@pytest.fixture
def registry(open_registry: Callable[[str], Registry]) -> Registry:
    """The registry of one server, with its tables made."""
    made = open_registry("here")
    made.migrate()
    return made


def test_sql_that_people_write(registry: Registry, ask: Ask) -> None:
    """Names without quotes, joins, the latest sample by filter: all run as they stand."""
    registry.put([row(1, b"users"), row(2, b"urls", error_rate=0.001)])
    registry.add_samples([sample(1, NOW, 5), sample(1, NOW + 60, 9, 0.25), sample(2, NOW, 7)])
    assert ask("SELECT name, fp_rate FROM BloomFilterConfig ORDER BY name") == [
        ("urls", 0.001),
        ("users", 0.01),
    ]
    columns = "name, expected_elements, fp_rate, m_bits, k_hashes"
    assert ask(f"SELECT {columns} FROM bloomfilterconfig WHERE name = 'users'") == [
        ("users", 1_000_000, 0.01, 9_585_059, 7)
    ]
    latest = """
        SELECT c.name, s.estimated_elements, s.false_positive_estimate
        FROM BloomFilterConfig c JOIN BloomFilterStats s ON s.filter_id = c.id
        WHERE s.sampled_at = (SELECT MAX(sampled_at) FROM BloomFilterStats WHERE filter_id = c.id)
        ORDER BY c.name
    """
    assert ask(latest) == [("urls", 7, 0.001), ("users", 9, 0.25)]
    ranked = """
        SELECT name, estimated_elements FROM (
            SELECT c.name, s.estimated_elements, ROW_NUMBER() OVER
                (PARTITION BY s.filter_id ORDER BY s.sampled_at DESC) AS place
            FROM BloomFilterConfig AS c INNER JOIN BloomFilterStats AS s ON c.id = s.filter_id
        ) AS newest WHERE place = 1 ORDER BY name
    """
    assert ask(ranked) == [("urls", 7), ("users", 9)]


def test_the_documentation_shows_sql_that_runs(registry: Registry, ask: Ask) -> None:
    """Each statement in docs/registry.md runs as it stands, and finds the filter."""
    registry.put([row(1, b"users")])
    registry.add_samples([sample(1)])
    shown = [block.text for block in blocks(DOCS / "registry.md") if block.info == "sql"]
    statements = [one for text in shown for one in text.split(";") if one.strip()]
    assert len(statements) == 5
    for statement in statements:
        rows = ask(statement)
        assert "INSERT" in statement or rows[0][0] in ("users", "sessions")


def test_the_documentation_has_every_column() -> None:
    """docs/registry.md names each column of both tables, in the table's own section."""
    text = (DOCS / "registry.md").read_text("utf-8")
    for table in (tables.CONFIG, tables.STATS):
        section = text.partition(f"## {table.name}")[2].partition("\n## ")[0]
        named = {
            name for line in section.splitlines() for name in re.findall(r"`(\w+)`", line[:40])
        }
        assert named >= {column.name for column in table.c}, table.name


def test_times_are_utc(registry: Registry, ask: Ask) -> None:
    """SQL compares times with text in UTC, whatever the zone of the machine."""
    registry.put([row(1, expires_at=float("inf"))])
    registry.add_samples([sample(1, NOW)])
    inside = "sampled_at > '2023-11-14 22:13:19' AND sampled_at < '2023-11-14 22:13:21'"
    if registry.is_postgresql:
        inside = inside.replace("19'", "19+00'").replace("21'", "21+00'")
    assert ask(f"SELECT count(*) FROM BloomFilterStats WHERE {inside}") == [(1,)]
    assert "9999" in str(ask("SELECT expires_at FROM BloomFilterConfig")[0][0])


def test_a_row_is_written_over(registry: Registry, ask: Ask) -> None:
    """A filter that is put again keeps its id and its samples, and shows what it is now."""
    registry.put([row(1, b"old")])
    registry.add_samples([sample(1)])
    before = ask("SELECT id FROM BloomFilterConfig")
    registry.put([row(1, b"new", items=99)])
    assert ask("SELECT name, items FROM BloomFilterConfig") == [("new", 99)]
    assert ask("SELECT filter_id FROM BloomFilterStats") == before


def test_replace_is_exact(registry: Registry, ask: Ask) -> None:
    """After `replace` there are the rows given, no others; those that stay keep their samples."""
    registry.put(row(number) for number in range(1200))
    registry.add_samples(sample(number) for number in range(1200))
    assert registry.replace(row(number) for number in range(600, 1800)) == {}
    assert ask("SELECT min(number), max(number), count(*) FROM BloomFilterConfig") == [
        (600, 1799, 1200)
    ]
    assert ask("SELECT count(*) FROM BloomFilterStats") == [(600,)]
    registry.replace([])
    assert ask("SELECT count(*) FROM BloomFilterConfig") == [(0,)]


def test_a_dropped_filter_takes_its_samples_along(registry: Registry, ask: Ask) -> None:
    """Neither its row nor a sample stays, and its id is not given to the next."""
    registry.put([row(1), row(2)])
    registry.add_samples([sample(1), sample(2), sample(2)])
    ((gone,),) = ask("SELECT id FROM BloomFilterConfig WHERE number = 2")
    registry.drop([2, 77])
    assert ask("SELECT number FROM BloomFilterConfig") == [(1,)]
    assert ask("SELECT count(*) FROM BloomFilterStats") == [(1,)]
    registry.put([row(3)])
    assert ask("SELECT max(id) FROM BloomFilterConfig")[0][0] > gone


def test_samples_of_no_filter_are_left_out(registry: Registry, ask: Ask) -> None:
    """A sample that comes after its filter has gone is not an error."""
    registry.add_samples([sample(7)])
    assert ask("SELECT count(*) FROM BloomFilterStats") == [(0,)]


def test_prune_keeps_what_is_newer(registry: Registry, ask: Ask) -> None:
    """Samples from before the time go; the others, and other servers', stay."""
    registry.put([row(1)])
    registry.add_samples([sample(1, NOW - 10), sample(1, NOW), sample(1, NOW + 10)])
    registry.prune({RAW: NOW})
    assert ask("SELECT count(*) FROM BloomFilterStats") == [(2,)]


def test_two_filters_may_change_names(registry: Registry, ask: Ask) -> None:
    """Renames that pass a name on, round in a circle even, come out right."""
    registry.put([row(1, b"a"), row(2, b"b"), row(3, b"c")])
    assert registry.put([row(1, b"b"), row(2, b"c"), row(3, b"a")]) == {}
    named = "SELECT number, name FROM BloomFilterConfig ORDER BY number"
    assert ask(named) == [(1, "b"), (2, "c"), (3, "a")]
    assert registry.put([row(1, b"c")]) == {}  # the filter that had it is renamed in a later batch
    assert registry.put([row(2, b"d")]) == {}
    assert ask(named) == [(1, "c"), (2, "d"), (3, "a")]


def test_servers_share_a_registry(
    registry: Registry, open_registry: Callable[[str], Registry], ask: Ask
) -> None:
    """A server's `replace`, `drop` and `prune` never touch the rows of another."""
    other = open_registry("there")
    registry.put([row(1, b"mine"), row(2, b"mine too")])
    other.put([row(1, b"theirs")])
    registry.add_samples([sample(1)])
    other.add_samples([sample(1)])
    registry.drop([1])
    registry.replace([row(2, b"mine too")])
    registry.prune({RAW: NOW + 1000})
    registry.replace([])
    assert ask("SELECT server, number, name FROM BloomFilterConfig") == [("there", 1, "theirs")]
    assert ask("SELECT count(*) FROM BloomFilterStats") == [(1,)]


def test_a_name_belongs_to_one_server(
    registry: Registry, open_registry: Callable[[str], Registry], ask: Ask
) -> None:
    """A name that another server has is refused in words; the other rows are written."""
    other = open_registry("there")
    registry.put([row(1, b"shared")])
    refused = other.put([row(1, b"first"), row(2, b"shared"), row(3, b"last")])
    assert refused == {2: "filter shared of server there is left out: server here has that name"}
    named = "SELECT server, name FROM BloomFilterConfig ORDER BY name"
    assert ask(named) == [("there", "first"), ("there", "last"), ("here", "shared")]
    assert other.replace([row(1, b"first"), row(3, b"shared")]).keys() == {3}
    assert ask(named) == [("there", "first"), ("here", "shared")]
    registry.drop([1])
    assert other.put([row(3, b"shared")]) == {}


HOSTILE = [
    b"",
    b"\0",
    b"\0" * 5000,
    b"\xff\xfe\xed\xa0\x80",
    b"'; DROP TABLE BloomFilterConfig; --",
    b"%s %(name)s :name ? $1 {}",
    b"\\renamed here 1",
    "\u202ename\u2066 \U0001f600".encode(),
    b"x" * 1_000_000,
    b"x" * 1_000_001,
]


def test_hostile_names(registry: Registry, ask: Ask) -> None:
    """Any bytes are a name: each has its row, and the table is as it was."""
    assert registry.put(row(n, name) for n, name in enumerate(HOSTILE, 1)) == {}
    assert registry.replace(row(n, name) for n, name in enumerate(HOSTILE, 1)) == {}
    texts = [text for (text,) in ask("SELECT name FROM BloomFilterConfig ORDER BY number")]
    assert texts == [printable(name) for name in HOSTILE]


def test_extreme_numbers(registry: Registry, ask: Ask) -> None:
    """Numbers past SQL's are the largest it has; the row is written all the same."""
    assert registry.put([row(2**63 - 1, capacity=2**80, nbytes=2**64, seed=2**64 - 1)]) == {}
    registry.add_samples([sample(2**63 - 1, float("inf"), float("inf"), 1.0)])
    most = 2**63 - 1
    assert ask("SELECT expected_elements, nbytes, seed FROM BloomFilterConfig") == [
        (most, most, str(2**64 - 1))
    ]
    assert ask("SELECT estimated_elements FROM BloomFilterStats") == [(most,)]


def test_a_secret_seed_is_not_shown(registry: Registry, ask: Ask) -> None:
    """The seed of siphash, which keeps adversaries out, is nowhere in the registry."""
    registry.put([row(1, hasher="siphash", seed=123_456_789), row(2, hasher="xxh3", seed=5)])
    assert ask("SELECT seed FROM BloomFilterConfig ORDER BY number") == [(None,), ("5",)]


def shape_of(engine: Any) -> dict[str, Any]:
    """All that a database says of the two tables, names in lower case."""
    inspector = sa.inspect(engine)
    return {
        name.lower(): {
            "columns": [
                (c["name"], str(c["type"]), c["nullable"], c["default"])
                for c in inspector.get_columns(name)
            ],
            "key": inspector.get_pk_constraint(name)["constrained_columns"],
            "unique": sorted(u["column_names"] for u in inspector.get_unique_constraints(name)),
            "indexes": sorted(
                (i["name"].lower(), i["column_names"], str(i.get("column_sorting")))
                for i in inspector.get_indexes(name)
            ),
            "foreign": [
                (f["constrained_columns"], f["referred_table"].lower(), f["options"])
                for f in inspector.get_foreign_keys(name)
            ],
        }
        for name in inspector.get_table_names()
        if name.lower().startswith("bloomfilter")
    }


def test_migrations_make_the_schema(registry: Registry, url: str, ask: Ask) -> None:
    """From the first revision on, migrating gives exactly the tables that the code describes."""
    engine = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    migrated = shape_of(engine)
    assert set(migrated) == {"bloomfilterconfig", "bloomfilterstats"}
    ask("DROP TABLE BloomFilterStats")
    ask("DROP TABLE BloomFilterConfig")
    tables.METADATA.create_all(engine)
    assert shape_of(engine) == migrated
    engine.dispose()


def test_migrating_again_keeps_everything(registry: Registry, ask: Ask) -> None:
    """Every start migrates: what is up to date stays as it is."""
    registry.put([row(1)])
    registry.migrate()
    assert ask("SELECT count(*) FROM BloomFilterConfig") == [(1,)]
    assert ask("SELECT version_num FROM bloomery_version") == [("0004",)]


@pytest.mark.parametrize(
    "dropped",
    [["BloomFilterStats"], ["BloomFilterStats", "BloomFilterConfig"]],
    ids=["one", "both"],
)
def test_a_table_that_somebody_dropped(registry: Registry, ask: Ask, dropped: list[str]) -> None:
    """Tables that are gone, though the schema's number stays, are made anew; others stay."""
    registry.put([row(1)])
    for table in dropped:
        ask(f"DROP TABLE {table}")
    registry.migrate()
    kept = 2 - len(dropped)
    assert ask("SELECT count(*) FROM BloomFilterConfig") == [(kept,)]
    assert ask("SELECT count(*) FROM BloomFilterStats") == [(0,)]


INSERT = (
    "INSERT INTO BloomFilterConfig (name, expected_elements, fp_rate, m_bits, k_hashes)"
    " VALUES ('{}', 1000, 0.01, 9586, 7)"
)


def test_an_older_schema_keeps_its_rows(registry: Registry, url: str, ask: Ask) -> None:
    """Tables of the release before come to this schema with every filter and sample, and with the
    ids that were ever given."""
    for table in ("BloomFilterStats", "BloomFilterConfig", "bloomery_version"):
        ask(f"DROP TABLE {table}")
    registry.migrate("0003")
    joined = "SELECT c.name FROM BloomFilterConfig c JOIN BloomFilterStats s ON s.filter_id = c.id"
    config = "name, expected_elements, fp_rate, m_bits, k_hashes, created_at, kind, nbytes, items"
    for number, rate in (("1", "0.01"), ("2", "NULL"), ("3", "0.5")):
        ask(
            f"INSERT INTO BloomFilterConfig ({config}, updated_at, server, number) VALUES"
            f" ('name {number}', 1000, {rate}, 9586, NULL, '2023-11-14 22:13:20+00', 'bloom', 1, 2,"
            f" '2023-11-14 22:13:20+00', 'here', {number})"
        )
    ask(
        "INSERT INTO BloomFilterStats (filter_id, estimated_elements, false_positive_estimate,"
        " sampled_at) SELECT id, 5, 0.001, '2023-11-14 22:13:20+00' FROM BloomFilterConfig"
    )
    ask("DELETE FROM BloomFilterConfig WHERE number = 3")
    ask(f"CREATE VIEW somebodys AS {joined}")
    registry.migrate()
    rows = "SELECT name, fp_rate, k_hashes, number, problem FROM BloomFilterConfig ORDER BY id"
    assert ask(rows) == [("name 1", 0.01, 0, 1, None), ("name 2", 1.0, 0, 2, None)]
    assert (
        sorted(ask(joined))
        == sorted(ask("SELECT * FROM somebodys"))
        == [
            ("name 1",),
            ("name 2",),
        ]
    )
    assert ask("SELECT count(*) FROM BloomFilterStats") == [(2,)]
    ask(INSERT.format("new"))
    assert ask("SELECT max(id) FROM BloomFilterConfig") == [(4,)]
    registry.drop([1])
    assert ask("SELECT count(*) FROM BloomFilterStats") == [(1,)]
    assert registry.replace([row(2, b"name 2")]) == {}
    ask("DROP VIEW somebodys")


def test_the_schema_to_the_letter(registry: Registry, url: str, ask: Ask) -> None:
    """What must be given and what need not, and the index: as people expect it by name."""
    engine = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    shape = shape_of(engine)
    engine.dispose()
    config = {name: nullable for name, _, nullable, _ in shape["bloomfilterconfig"]["columns"]}
    stats = {name: nullable for name, _, nullable, _ in shape["bloomfilterstats"]["columns"]}
    given = ("name", "expected_elements", "fp_rate", "m_bits", "k_hashes", "created_at")
    assert not any(config[name] for name in given)
    assert stats["estimated_elements"]
    assert stats["false_positive_estimate"]
    assert not stats["sampled_at"]
    indexes = {name: columns for name, columns, _ in shape["bloomfilterstats"]["indexes"]}
    assert indexes["idx_bfs_filter_sampled"] == ["filter_id", "sampled_at"]
    ask(INSERT.format("users"))
    ask("INSERT INTO BloomFilterStats (filter_id) SELECT id FROM BloomFilterConfig")
    recent = "-1 minute" if url.startswith("sqlite") else ""
    since = f"datetime('now', '{recent}')" if recent else "now() - interval '1 minute'"
    for table, column in (("Config", "created_at"), ("Stats", "sampled_at")):
        asked = f"SELECT count(*) FROM BloomFilter{table} WHERE {column} >= {since}"
        assert ask(asked) == [(1,)]


def test_an_inserted_row_is_claimed_by_one(
    registry: Registry,
    open_registry: Callable[[str], Registry],
    ask: Ask,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of two servers one gets it, and again until it is a filter; no pass of either deletes it, and
    when it is a filter it has the same id and the truth."""
    other = open_registry("there")
    ask(INSERT.format("users"))
    ((before,),) = ask("SELECT id FROM BloomFilterConfig")
    assert registry.replace([]) == other.replace([]) == {}
    (wish,) = registry.claim()
    assert (wish["id"], wish["name"], wish["fp_rate"]) == (before, "users", 0.01)
    assert other.claim() == []
    registry.replace([])
    monkeypatch.setattr("bloomery.service.registry.registry.TRY_AGAIN", 0.0)
    assert registry.claim() == [wish]
    registry.put([row(7, b"users", num_bits=10_240, num_hashes=6)])
    rows = "SELECT id, server, number, m_bits, k_hashes FROM BloomFilterConfig"
    assert ask(rows) == [(before, "here", 7, 10_240, 6)]
    assert registry.claim() == []


def test_a_row_may_name_its_server(
    registry: Registry, open_registry: Callable[[str], Registry], ask: Ask
) -> None:
    """A row that says which server is to make it waits for that one."""
    ask(
        "INSERT INTO BloomFilterConfig (name, expected_elements, fp_rate, server)"
        " VALUES ('users', 1000, 0.01, 'there')"
    )
    assert registry.claim() == []
    assert [wish["name"] for wish in open_registry("there").claim()] == ["users"]


def test_a_problem_stays_in_the_row(
    registry: Registry, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that is no filter says why, whatever the text has; it is tried again after a while, or
    at once when somebody clears that, and the filter that comes of it has none."""
    ask(INSERT.format("users"))
    (wish,) = registry.claim()
    registry.note_problems({wish["id"]: "no\0room \udcff" + "x" * 5000})
    ((problem,),) = ask("SELECT problem FROM BloomFilterConfig")
    assert problem.startswith("no\\x00room \\udcff")
    assert len(problem) == 1000
    assert registry.claim() == []
    monkeypatch.setattr("bloomery.service.registry.registry.TRY_AGAIN", -60.0)
    assert registry.claim() == [wish]
    monkeypatch.undo()
    ask("UPDATE BloomFilterConfig SET problem = NULL")
    assert registry.claim() == [wish]
    registry.put([row(1, b"users")])
    assert ask("SELECT number, problem FROM BloomFilterConfig") == [(1, None)]


def test_a_filter_that_is_renamed_onto_an_inserted_row(registry: Registry, ask: Ask) -> None:
    """The filter keeps its own row and samples under the new name, and there is one row of it."""
    registry.put([row(1, b"old")])
    registry.add_samples([sample(1)])
    ask(INSERT.format("new"))
    assert registry.put([row(1, b"new")]) == {}
    assert ask("SELECT name, number FROM BloomFilterConfig") == [("new", 1)]
    assert ask("SELECT count(*) FROM BloomFilterStats") == [(1,)]


def test_a_newer_schema_is_left_alone(registry: Registry, ask: Ask) -> None:
    """Tables that a newer bloomery has migrated are not touched, and the message says so."""
    ask("UPDATE bloomery_version SET version_num = '9999'")
    with pytest.raises(RegistryUnavailable, match="a newer one made it"):
        registry.migrate()
    assert ask("SELECT version_num FROM bloomery_version") == [("9999",)]


def test_the_index_serves_the_latest_sample(registry: Registry, ask: Ask) -> None:
    """The newest sample of a filter is found by the index, without going through all."""
    registry.put([row(1)])
    registry.add_samples(sample(1, NOW + second) for second in range(2000))
    newest = (
        "SELECT estimated_elements FROM BloomFilterStats WHERE filter_id = 1"
        " ORDER BY sampled_at DESC LIMIT 1"
    )
    if registry.is_postgresql:
        ask("ANALYZE")
    how = "EXPLAIN" if registry.is_postgresql else "EXPLAIN QUERY PLAN"
    plan = str(ask(f"{how} {newest}")).lower()
    assert "idx_bfs_filter_sampled" in plan
    assert "sort" not in plan
    assert "temp b-tree" not in plan
