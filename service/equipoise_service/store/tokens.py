"""Tokens: their names, scopes and digests. What a token is by itself is in ``access.secrets``."""

from datetime import UTC, datetime
from typing import Any, NamedTuple, Self

from sqlalchemy import RowMapping, Select, insert, select, update

from equipoise_service.access.scopes import Scope
from equipoise_service.access.secrets import is_right, new_token, token_id_of
from equipoise_service.store.database import Database
from equipoise_service.store.tables import tokens


class Token(NamedTuple):
    """One token without its secret."""

    id: str
    name: str
    scope: Scope
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None

    @classmethod
    def from_row(cls, row: RowMapping) -> Self:
        """Read one row of the table."""
        return cls(**{name: row[name] for name in cls._fields} | {"scope": Scope(row["scope"])})

    def valid_at(self, now: datetime) -> bool:
        """Whether it may be used."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


class Tokens:
    """The tokens of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, name: str, scope: Scope, expires_at: datetime | None = None) -> tuple[Token, str]:
        """Make a token; its text is returned here and never again."""
        fresh = new_token()
        token = Token(fresh.id, name, scope, datetime.now(UTC), expires_at, None)
        with self._database.write() as connection:
            connection.execute(insert(tokens).values(**token._asdict(), sha256=fresh.sha256))
        return token, fresh.text

    def every(self) -> list[Token]:
        """All tokens, oldest first, with those that are no longer valid."""
        return [Token.from_row(row) for row in self._rows(select(tokens).order_by(tokens.c.created_at, tokens.c.id))]

    def any_valid(self) -> bool:
        """Whether anybody could show a token that is accepted."""
        now = datetime.now(UTC)
        return any(token.valid_at(now) for token in self.every())

    def holder(self, text: str) -> Token | None:
        """The valid token that this text is; None for anything else, in the same time whatever is wrong with it."""
        row = next(iter(self._rows(select(tokens).where(tokens.c.id == (token_id_of(text) or "")))), None)
        if not is_right(text, row["sha256"] if row else None) or row is None:
            return None
        token = Token.from_row(row)
        return token if token.valid_at(datetime.now(UTC)) else None

    def revoke(self, token_id: str) -> bool:
        """Make a token invalid from now on; False if there is none with this id. Revoking again changes nothing."""
        valid = tokens.c.revoked_at.is_(None)
        with self._database.write() as connection:
            known = connection.scalar(select(tokens.c.id).where(tokens.c.id == token_id)) is not None
            connection.execute(
                update(tokens).where(tokens.c.id == token_id, valid).values(revoked_at=datetime.now(UTC))
            )
        return known

    def _rows(self, query: Select[Any]) -> list[RowMapping]:
        with self._database.read() as connection:
            return list(connection.execute(query).mappings())
