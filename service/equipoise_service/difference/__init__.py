"""Two finished comparisons beside each other: what differs in set-up and in result, or why they cannot be compared."""

from equipoise_service.difference.changes import Change, changes
from equipoise_service.difference.compare import Difference, EffectShift, NumberChange, Side, difference_of
from equipoise_service.difference.markdown import to_markdown

__all__ = ["Change", "Difference", "EffectShift", "NumberChange", "Side", "changes", "difference_of", "to_markdown"]
