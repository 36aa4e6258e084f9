"""Alembic's entry: runs revisions on the connection, and in the transaction, of the registry."""

from alembic import context

from bloomery.service.registry.tables import METADATA

# A table of our own: the database may hold an application that uses Alembic too.
context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    version_table="bloomery_version",
)
with context.begin_transaction():
    context.run_migrations()
