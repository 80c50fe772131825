"""``equipoise plan``: what a comparison would take, before anything runs."""

from typing import TYPE_CHECKING, Annotated

import typer

from equipoise_service.cli.options import points, share

if TYPE_CHECKING:
    from equipoise_evals.planning import Aim

ENOUGH = 0.8
LONGEST_S = 1e6


def _seconds(value: float) -> float:
    if not 0 <= value <= LONGEST_S:  # which no comparison with what is no number holds
        raise typer.BadParameter(f"needs seconds between 0 and {LONGEST_S:,.0f}, not {value:g}")
    return value


def plan(  # noqa: PLR0913, PLR0917 - one parameter an option
    effect: Annotated[
        str, typer.Option(help="Expected change of the step time: -1.64% is faster, 1.64% slower, 0 none.")
    ] = "-1.64%",
    margin: Annotated[
        str, typer.Option("--margin", "--margin-accuracy-pp", help="Loss of accuracy that counts, in points: 1 or 1pp.")
    ] = "1pp",
    margin_latency: Annotated[
        str, typer.Option(help="Change of the step time that counts, as 0.5%; matters where the effect is 0.")
    ] = "0.5%",
    launch_sd: Annotated[
        str, typer.Option(help="SD of a launch pair's ratio, as 0.3%. One H200 host showed 0.05%, another 1%.")
    ] = "0.3%",
    questions: Annotated[int, typer.Option(min=1, help="Questions asked.")] = 1_319,
    discordance: Annotated[str, typer.Option(help="Questions that differ between two passes, as 2%.")] = "2%",
    pairs_max: Annotated[int, typer.Option(min=3, max=100, help="Launch pairs at most.")] = 10,
    start_s: Annotated[float, typer.Option(callback=_seconds, help="Seconds of one engine start.")] = 70.0,
    blocks_s: Annotated[
        float, typer.Option(callback=_seconds, help="Seconds of all blocks of one launch pair.")
    ] = 20.0,
    pass_s: Annotated[float, typer.Option(callback=_seconds, help="Seconds of one pass of one arm.")] = 30.0,
) -> int:
    """Print pairs, passes and device seconds for an aim, and what they rest on. Seconds are one H200's by default."""
    from rich.console import Console
    from rich.table import Table

    from equipoise_evals.planning import Aim, Costs, plan_looks

    aim = Aim(
        effect=share(effect, "--effect", "-1.64%", least=-0.9, most=0.9),
        launch_sd=share(launch_sd, "--launch-sd", "0.3%", least=1e-6, most=0.9),
        margin_latency=share(margin_latency, "--margin-latency", "0.5%", least=1e-6, most=0.9),
        questions=questions,
        discordance=share(discordance, "--discordance", "2%", least=0.0, most=1.0),
        margin_pp=points(margin, "--margin"),
        pairs_max=pairs_max,
        passes_max=pairs_max,
    )
    looks = plan_looks(aim, Costs(start_s=start_s, blocks_s=blocks_s, pass_s=pass_s))
    typer.echo(
        f"Step time {aim.effect:+.2%}, launches that differ by {aim.launch_sd:.2%} (SD of a pair's ratio: take yours "
        f"from a declared A/A), margin {aim.margin_latency:.2%}; {aim.questions} questions of which "
        f"{aim.discordance:.1%} differ by chance, margin {aim.margin_pp:g} pp."
    )
    word = "faster" if aim.effect < 0 else "a difference" if aim.effect > 0 else "equivalent"
    table = Table("launch pairs", f"chance of {word}", "passes per arm", "chance of non-inferior", "device seconds")
    for look in looks:
        table.add_row(
            str(look.pairs),
            f"{look.latency:.0%}",
            str(look.pairs),
            f"{look.accuracy:.0%}",
            f"{look.device_seconds:.0f}",
        )
    Console().print(table)
    typer.echo(
        f"Seconds for {start_s:g} s an engine start, {blocks_s:g} s of blocks and {pass_s:g} s a pass of one arm (an "
        "H200's by default; --start-s, --blocks-s and --pass-s set yours)."
    )
    typer.echo(_why_these([look.pairs for look in looks]))
    enough = next((look for look in looks if min(look.latency, look.accuracy) >= ENOUGH), None)
    typer.echo(
        f"{enough.pairs} launch pairs, {enough.pairs} passes per arm, about {enough.device_seconds:.0f} device seconds "
        f"decide both with at least {ENOUGH:.0%} chance."
        if enough
        else _what_else(aim, looks[-1].accuracy)
    )
    return 0


def _why_these(looks: list[int]) -> str:
    """Why a run can end at these numbers of pairs and at no others."""
    *earlier, last = map(str, looks)
    at = f"{', '.join(earlier)} and {last}" if earlier else last
    return (
        f"A run may stop at {at} pairs only: the allowed error is spent over exactly these looks, the last the maximum."
    )


def _what_else(aim: "Aim", accuracy: float) -> str:
    """What would decide where no look of this plan does."""
    from equipoise_evals.planning import pairs_that_decide

    needed = pairs_that_decide(aim, ENOUGH)
    advice = [] if accuracy >= ENOUGH else ["accuracy needs more questions or a wider margin"]
    if needed is None:
        advice.append("latency needs launches that differ less (a quieter machine, longer blocks)")
    elif needed > aim.pairs_max:
        advice.append(f"latency needs about {needed} launch pairs (--pairs-max {needed})")
    return f"No look up to {aim.pairs_max} pairs decides both with {ENOUGH:.0%} chance: {'; '.join(advice)}."
