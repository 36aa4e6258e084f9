"""What really happened to a table, and in which order: PostgreSQL itself writes it down."""

from integration.servers import PostgresServer


def log_changes(postgres: PostgresServer, table: str) -> None:
    """Write down each change of a table with the columns k and v, from now on."""
    postgres.run(
        f"CREATE TABLE {table}_log (number bigserial, k text, v int);"
        f"CREATE FUNCTION {table}_write() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        f" IF TG_OP = 'DELETE' THEN INSERT INTO {table}_log (k) VALUES (OLD.k);"
        f" ELSE INSERT INTO {table}_log (k, v) VALUES (NEW.k, NEW.v); END IF;"
        f" RETURN NULL; END $$;"
        f"CREATE TRIGGER log AFTER INSERT OR UPDATE OR DELETE ON {table}"
        f" FOR EACH ROW EXECUTE FUNCTION {table}_write()"
    )


def changes(postgres: PostgresServer, table: str) -> list[tuple[str, int | None]]:
    """The keys and values that were written, in order; None: taken out."""
    rows = postgres.run(f"SELECT k, v FROM {table}_log ORDER BY number")
    return [(key, int(value) if value else None) for key, value in rows]
