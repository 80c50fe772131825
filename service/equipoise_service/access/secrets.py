"""Tokens as text: made, recognised, digested, and taken out of whatever is written down.

A token is ``eqp_``, an id that may be shown, and a secret of 256 random bits. Secrets of that size are stored as one
SHA-256: nobody can try them out, so a slow password hash would only slow every request.
"""

import hashlib
import hmac
import re
import secrets
from typing import NamedTuple

FORM = re.compile(r"eqp_([0-9a-f]{12})_[A-Za-z0-9_-]{43}")
WEBHOOK_PREFIX = "whsec_"
"""Of Standard Webhooks: base64 of the key follows."""
REDACTED = "[redacted]"
_NOBODY = "0" * 64

_SECRETS = re.compile(
    r"""(?P<kind>
          (?:eqp_(?:[0-9a-f]{12}_)?|whsec_|(?:[Bb]earer|[Bb]asic)\s+)(?=[A-Za-z0-9_+/=.~-]{16})
        | (?:Bearer|Basic)[ ]+(?=[A-Za-z0-9_+/=.~-]{8})
        | hf_(?:oauth_|jwt_)?(?=[A-Za-z0-9]{16})  # a module such as hf_transformers_utils is none
        | (?:ghp_|glpat-)(?=[A-Za-z0-9_-]{16})
        | (?:(?<![A-Za-z0-9])|(?<=\\[nrt]))sk-(?=[A-Za-z0-9_-]{16})  # not in task-…, but after an escape of JSON
    )[A-Za-z0-9_+/=.~-]+""",
    re.VERBOSE,
)
"""What a secret begins with, which stays, and the rest: ours, HuggingFace's, GitHub's, GitLab's and OpenAI's."""


class NewToken(NamedTuple):
    """A token in the one moment in which its secret is known: ``text`` is shown once, ``sha256`` is kept."""

    id: str
    text: str
    sha256: str


def new_token() -> NewToken:
    """A fresh token."""
    token_id = secrets.token_hex(6)
    text = f"eqp_{token_id}_{secrets.token_urlsafe(32)}"
    return NewToken(token_id, text, digest(text))


def token_id_of(text: str) -> str | None:
    """The id inside a token's text; None if it has not the form of one."""
    match = FORM.fullmatch(text)
    return match[1] if match else None


def digest(text: str) -> str:
    """What is kept of a token."""
    return hashlib.sha256(text.encode()).hexdigest()


def is_right(text: str, kept: str | None) -> bool:
    """Whether a text is the token that was kept, in a time that tells nothing; nothing matches None."""
    same = hmac.compare_digest(digest(text), kept or _NOBODY)
    return same and kept is not None


def redacted(text: str) -> str:
    """A text without what has the form of a token, a webhook's secret or an authorisation header."""
    return _SECRETS.sub(lambda found: f"{found['kind']}{REDACTED}", text)
