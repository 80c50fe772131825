"""Tokens over HTTP, for who has scope admin. The first is made with ``equipoise token`` on the machine itself."""

from datetime import UTC, datetime
from typing import Self

from fastapi import APIRouter, Response
from pydantic import AwareDatetime, model_validator

from equipoise_evals.model import Frozen
from equipoise_service.access.names import TokenName
from equipoise_service.access.scopes import Scope
from equipoise_service.api.dependencies import TheService
from equipoise_service.api.problems import document
from equipoise_service.errors import TokenNotFound
from equipoise_service.store import Token

router = APIRouter(tags=["tokens"], responses=document(422))


class TokenRequest(Frozen):
    """A token to make; ``expires_at`` is RFC 3339, null for ever."""

    name: TokenName
    scope: Scope
    expires_at: AwareDatetime | None = None

    @model_validator(mode="after")
    def _lies_ahead(self) -> Self:
        if self.expires_at is not None and self.expires_at <= datetime.now(UTC):
            raise ValueError("expires_at lies in the past")
        return self


class TokenView(Frozen):
    """A token without its secret."""

    id: str
    name: str
    scope: Scope
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None

    @classmethod
    def of(cls, token: Token) -> Self:
        """The view of a stored token."""
        return cls(**token._asdict())


class MadeToken(Frozen):
    """A token and its text, which nobody can see a second time."""

    token: TokenView
    text: str


class TokenList(Frozen):
    """Every token, oldest first."""

    items: tuple[TokenView, ...]


@router.post("/tokens", status_code=201, responses=document(400, 408, 413))
def make_token(body: TokenRequest, service: TheService) -> MadeToken:
    """Make a token. Its text is in this answer and nowhere else."""
    token, text = service.store.tokens.add(body.name, body.scope, body.expires_at)
    return MadeToken(token=TokenView.of(token), text=text)


@router.get("/tokens")
def list_tokens(service: TheService) -> TokenList:
    """Every token that was made, revoked and expired ones too."""
    return TokenList(items=tuple(TokenView.of(token) for token in service.store.tokens.every()))


@router.delete("/tokens/{token_id}", status_code=204, responses=document(404, 408, 413))
def revoke_token(token_id: str, service: TheService) -> Response:
    """Make a token invalid from now on."""
    if not service.store.tokens.revoke(token_id):
        raise TokenNotFound(token_id)
    return Response(status_code=204)
