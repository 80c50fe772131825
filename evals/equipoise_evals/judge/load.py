"""Foreign load beside blocks, arm by arm: what both arms had widens the interval, what one had alone shifts it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from scipy.stats import fisher_exact

from equipoise_evals.model import ROLES, BlockRecord, Role

ONE_SIDED_P = 0.05
"""Fisher's exact p from which load is taken to have been beside one arm more than beside the other."""
SHOWN = 2


@dataclass(frozen=True)
class ForeignLoad:
    """Blocks that count, and those of them that ran beside foreign load, also when repeated.

    Attributes:
        blocks: Blocks of each arm.
        disturbed: How many of them it was beside.
        said: What load there was, each text once.
    """

    blocks: Mapping[Role, int] = field(default_factory=lambda: dict.fromkeys(ROLES, 0))
    disturbed: Mapping[Role, int] = field(default_factory=lambda: dict.fromkeys(ROLES, 0))
    said: tuple[str, ...] = ()

    def plus(self, other: "ForeignLoad") -> "ForeignLoad":
        """Both together."""
        return ForeignLoad(
            blocks={role: self.blocks[role] + other.blocks[role] for role in ROLES},
            disturbed={role: self.disturbed[role] + other.disturbed[role] for role in ROLES},
            said=tuple(sorted({*self.said, *other.said})),
        )

    @property
    def one_sided(self) -> bool:
        """Whether chance would rarely have put so much more of it beside one arm (Fisher's exact test)."""
        table = np.array([[self.disturbed[role], self.blocks[role] - self.disturbed[role]] for role in ROLES])
        return float(fisher_exact(table).pvalue) < ONE_SIDED_P

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know of it; nothing where there was none."""
        if not any(self.disturbed.values()):
            return ()
        what = "; ".join(self.said[:SHOWN])
        if self.one_sided:
            a, b = (f"{self.disturbed[role]} of the {{}}'s {self.blocks[role]} blocks" for role in ROLES)
            return (
                f"{a.format('baseline')} and {b.format('candidate')} ran beside foreign load, also when repeated "
                f"({what}): load beside one arm looks like an effect, so that nothing is decided.",
            )
        return (
            f"{sum(self.disturbed.values())} of {sum(self.blocks.values())} blocks ran beside foreign load, also when "
            f"repeated ({what}): the spread between launch pairs contains it.",
        )


def foreign_load(blocks: Iterable[BlockRecord]) -> ForeignLoad:
    """The load beside these blocks."""
    every = list(blocks)
    loaded = [(block.role, block.disturbed) for block in every if block.disturbed is not None]
    return ForeignLoad(
        blocks={role: sum(block.role == role for block in every) for role in ROLES},
        disturbed={role: sum(one == role for one, _ in loaded) for role in ROLES},
        said=tuple(sorted({said for _, said in loaded})),
    )
