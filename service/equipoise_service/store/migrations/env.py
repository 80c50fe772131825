"""Alembic's entry: migrates over the connection that it is handed. There is no offline mode and no ini file."""

from alembic import context

from equipoise_service.store.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,  # SQLite changes a table by copying it
    compare_type=True,
)
with context.begin_transaction():
    context.run_migrations()
