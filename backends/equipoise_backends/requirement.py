"""What the plugin requires of one internal of SGLang or FlashInfer, and whether the installed one meets it.

The list itself is `seam`'s and `seam_cuda`'s; `wheels` holds the same list against wheels without importing them.
"""

import inspect
import pkgutil
import re
from typing import NamedTuple


def release(version: str) -> tuple[int, ...]:
    """The numbers at the head of a version, for comparison: 0.5.17.post1 is (0, 5, 17)."""
    head = re.match(r"[0-9.]*", version)
    return tuple(int(part) for part in head[0].split(".") if part) if head else ()


class Requirement(NamedTuple):
    """One internal.

    Attributes:
        target: Dotted name, resolved by import.
        why: What the plugin does with it.
        parameters: Parameters that the callable must begin with, empty when it is not called or hooked by position.
        attributes: Names that must occur in the source of the class, because only instances have them.
        since: First version of SGLang that must have it.
        own: Whether the class itself must define it: a hook on an inherited method misses what the class does instead.
    """

    target: str
    why: str
    parameters: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()
    since: str = "0"
    own: bool = False

    def applies_to(self, sglang: str) -> bool:
        """Whether this version of SGLang must have it."""
        return release(sglang) >= release(self.since)


def unmet(requirement: Requirement) -> str | None:
    """Why a requirement does not hold, None when it does."""
    try:
        found = pkgutil.resolve_name(requirement.target)
    except (ImportError, AttributeError) as error:
        return f"{requirement.target}: {error} ({requirement.why})"
    if requirement.own:
        owner, _, name = requirement.target.rpartition(".")
        if name not in vars(pkgutil.resolve_name(owner)):
            return f"{requirement.target}: inherited, not its own ({requirement.why})"
    # A hooked method is wrapped; what is checked is SGLang's own.
    original = inspect.unwrap(found) if callable(found) else found
    if requirement.parameters:
        names = tuple(inspect.signature(original).parameters)
        if names[: len(requirement.parameters)] != requirement.parameters:
            wanted = ", ".join(requirement.parameters)
            return f"{requirement.target}: takes ({', '.join(names)}), not ({wanted}, …) ({requirement.why})"
    if requirement.attributes:
        source = inspect.getsource(original)
        missing = [name for name in requirement.attributes if name not in source]
        if missing:
            return f"{requirement.target}: {', '.join(missing)} not in its source ({requirement.why})"
    return None
