"""The gallery has one picture for each overall word; ``make gallery`` itself says whether each got its word."""

from equipoise_service.cli.exit_codes import OF_VERDICT
from tests.fakes.gallery import PICTURES, QUIET
from tests.fakes.knobs import Knobs


def test_there_is_one_picture_a_word() -> None:
    assert [picture.word for picture in PICTURES] == list(OF_VERDICT)


def test_every_world_is_one_that_the_engines_know() -> None:
    """Knobs are closed: a misspelt one would leave another world than was meant."""
    effects = {picture.word: Knobs.model_validate(QUIET | picture.world).effect for picture in PICTURES}
    assert effects["ship"]["persistent"] < 0 < effects["block"]["persistent"]
    assert effects["neutral"] == {}
