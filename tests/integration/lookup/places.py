"""A table to look keys up in, and servers whose configuration has it as sources."""

from pathlib import Path

from integration.servers import BloomeryServer, PostgresServer

DATABASE = "lookups"
ROWS = 2000
TABLE = f"""
CREATE TABLE urls (
    url text PRIMARY KEY, title text, number bigint, price numeric, at timestamptz, data bytea,
    more jsonb
);
INSERT INTO urls
    SELECT 'url ' || i, 'title ' || i, i, i + 0.50, '2026-01-31 12:00:00+00', '\\x00ff', '[1, null]'
    FROM generate_series(0, {ROWS - 1}) AS i;
UPDATE urls SET title = NULL WHERE url = 'url 9';
CREATE TABLE numbers (id bigint PRIMARY KEY);
INSERT INTO numbers VALUES (42), (43);
"""
PLAIN = 'table = "urls"\nkey = "url"\nvalue = "title"\n'
QUERY = "SELECT url, title FROM urls, (SELECT pg_sleep({})) AS slow WHERE url IN :keys"
# Look-ups by this one wait for whoever has the advisory lock.
LOCKED = (
    "SELECT url, title FROM urls"
    " WHERE (SELECT count(*) FROM pg_advisory_xact_lock_shared(7)) = 1 AND url IN :keys"
)


def url(number: int) -> str:
    """A key that is in the table, if it is below ROWS."""
    return f"url {number}"


def prepare(postgres: PostgresServer) -> None:
    """Make the table, in a database of its own: other tests empty theirs."""
    postgres.run(f"CREATE DATABASE {DATABASE}")
    postgres.run(TABLE, DATABASE)


def configuration(folder: Path, postgres: PostgresServer, **sources: str) -> Path:
    """A file that has sources by these names, each with these further lines."""
    (folder / "password").write_text(postgres.password + "\n")
    place = f"{postgres.user}@127.0.0.1:{postgres.port}/{DATABASE}"
    head = f'url = "postgresql://{place}"\npassword-file = "password"\n'
    sections = [f"[sources.{name}]\n{head}{lines}" for name, lines in sources.items()]
    file = folder / "bloomery.toml"
    file.write_text("sample-seconds = 1\n" + "\n".join(sections))
    return file


def server(folder: Path, config: Path) -> BloomeryServer:
    """A server of that configuration, which is to be started."""
    return BloomeryServer(folder, "--config", str(config))
