"""Alembic's folder: one revision a file, run by ``store.database.migrate`` at every start."""
