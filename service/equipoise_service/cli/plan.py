"""``equipoise plan``: what a comparison would take, before anything runs."""

from typing import Annotated

import typer

from equipoise_service.cli.exit_codes import CommandError, ExitCode

ENOUGH = 0.8


def plan(  # noqa: PLR0913, PLR0917 - one parameter an option
    effect: Annotated[str, typer.Option(help="Expected change of the step time, as -1.64%; 0 for none.")] = "-1.64%",
    margin: Annotated[str, typer.Option(help="Loss of accuracy that counts, as 1pp.")] = "1pp",
    margin_latency: Annotated[str, typer.Option(help="Change of the step time that counts, as 0.5%.")] = "0.5%",
    launch_sd: Annotated[str, typer.Option(help="SD of a launch pair's ratio, as 0.05%.")] = "0.05%",
    questions: Annotated[int, typer.Option(min=1, help="Questions asked.")] = 1_319,
    discordance: Annotated[str, typer.Option(help="Questions that differ between two passes, as 2%.")] = "2%",
    pairs_max: Annotated[int, typer.Option(min=3, max=100, help="Launch pairs at most.")] = 10,
    start_s: Annotated[float, typer.Option(min=0, help="Seconds of one engine start.")] = 70.0,
    blocks_s: Annotated[float, typer.Option(min=0, help="Seconds of all blocks of one launch pair.")] = 20.0,
    pass_s: Annotated[float, typer.Option(min=0, help="Seconds of one pass of one arm.")] = 30.0,
) -> int:
    """Print pairs, passes and device seconds for an aim. The defaults are one H200 and an effect of -1.64 %."""
    from rich.console import Console
    from rich.table import Table

    from equipoise_evals.planning import Aim, Costs, plan_looks

    aim = Aim(
        effect=share(effect, "--effect"),
        launch_sd=share(launch_sd, "--launch-sd"),
        margin_latency=share(margin_latency, "--margin-latency"),
        questions=questions,
        discordance=share(discordance, "--discordance"),
        margin_pp=100 * share(margin, "--margin"),
        pairs_max=pairs_max,
        passes_max=pairs_max,
    )
    looks = plan_looks(aim, Costs(start_s=start_s, blocks_s=blocks_s, pass_s=pass_s))
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
    enough = next((look for look in looks if min(look.latency, look.accuracy) >= ENOUGH), None)
    typer.echo(
        f"{enough.pairs} launch pairs, {enough.pairs} passes per arm, about {enough.device_seconds:.0f} device seconds "
        f"decide both with at least {ENOUGH:.0%} chance."
        if enough
        else f"No look up to {pairs_max} pairs decides both with {ENOUGH:.0%} chance: more pairs, more questions or a "
        "wider margin are needed."
    )
    return 0


def share(text: str, option: str) -> float:
    """A share out of ``1.64%``, ``1pp`` or ``0.0164``."""
    stripped = text.strip().lower().replace(" ", "")
    divisor = 100.0 if stripped.endswith(("%", "pp")) else 1.0
    try:
        return float(stripped.removesuffix("%").removesuffix("pp")) / divisor
    except ValueError as wrong:
        raise CommandError(f"{option} needs a share like 1.64%, 1pp or 0.0164, not {text!r}", ExitCode.USAGE) from wrong
