"""What ``equipoise gate`` does: measure or fetch a comparison, decide, write the documents, end with the code."""

import asyncio
import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import typer
from pydantic import ValidationError
from rich.console import Console

from equipoise_evals.judge import judge
from equipoise_evals.model import Plan, Verdict
from equipoise_service.cli.comparing import compared, error_text, fetched
from equipoise_service.cli.documents import RECORDS, report_of
from equipoise_service.cli.exit_codes import CommandError, ExitCode, code_of
from equipoise_service.errors import EquipoiseError
from equipoise_service.gate import Policy, PolicyError, decide, load_policy
from equipoise_service.gate.documents import GateDocument, annotations, gate_json, junit, summary
from equipoise_service.gate.finished import held_to, judged_again, refusals, unsaid
from equipoise_service.interchange import RecordsDocument
from equipoise_service.requests import CompareRequest
from equipoise_service.store import Status

EMBEDDED = "embedded"
CODES = {"pass": ExitCode.PASS, "block": ExitCode.BLOCK, "undecided": ExitCode.UNDECIDED}


@dataclass(frozen=True)
class Gate:
    """One run of the gate; whatever ends it, ``gate.json`` says so with the exit code."""

    model: str | None
    policy_path: Path | None
    output: Path
    url: str | None

    def run(self, comparison_id: str | None) -> int:
        """Decide about one comparison, made now or named, and return the exit code."""
        policy: Policy | None = None
        # Whoever reads gate.json after a crash or an interruption must not find an older answer.
        self._write(self._without_verdict(ExitCode.ERROR, policy, "the gate did not finish"))
        try:
            policy = load_policy(self.policy_path)
            return self._leave(
                self._of_fresh(policy) if comparison_id is None else self._of_finished(policy, comparison_id)
            )
        except (CommandError, EquipoiseError, PolicyError) as refused:
            return self._leave(self._without_verdict(_code_of(refused), policy, str(refused)))
        except ValidationError as unlike:
            first = unlike.errors()[0]
            reason = f"the comparison cannot be read: {'.'.join(map(str, first['loc']))}: {first['msg']}"
            return self._leave(self._without_verdict(ExitCode.ERROR, policy, reason))

    def _of_fresh(self, policy: Policy) -> GateDocument:
        view = asyncio.run(compared(policy.request_for(self.model or EMBEDDED), self.url, Console(stderr=True)))
        if not _is_judged(view):
            return self._without_verdict(ExitCode.ERROR, policy, error_text(view), view)
        plan = Plan.model_validate(view["plan"])
        return self._decided(policy, view, plan, Verdict.model_validate(view["verdict"]))

    def _of_finished(self, policy: Policy, comparison_id: str) -> GateDocument:
        """Hold it to the policy's margins, whatever its own were; what cannot be made good by that is refused."""
        view = asyncio.run(fetched(comparison_id, self.url))
        asked, plan = CompareRequest.model_validate(view["request"]), Plan.model_validate(view["plan"])
        if unlike := refusals(policy, asked, plan, self.model):
            reason = f"comparison {comparison_id} is not what the policy asks for: {'; '.join(unlike)}"
            return self._without_verdict(ExitCode.USAGE, policy, reason, view)
        if not _is_judged(view):
            return self._without_verdict(ExitCode.ERROR, policy, error_text(view), view)
        told, wanted = unsaid(policy, asked, plan), held_to(policy, plan)
        if wanted == plan:
            return self._decided(policy, view, plan, Verdict.model_validate(view["verdict"]), told)
        document = RecordsDocument.model_validate_json(report_of(comparison_id, RECORDS, self.url))
        again = judge(document.observed, wanted)
        return self._decided(policy, view, wanted, again, (judged_again(plan), *told))

    def _decided(
        self, policy: Policy, view: dict[str, Any], plan: Plan, verdict: Verdict, told: tuple[str, ...] = ()
    ) -> GateDocument:
        now = datetime.now(UTC)
        result = decide(verdict, policy, now.date(), plan)
        return GateDocument(
            exit_code=CODES[result.decision],
            at=now.isoformat("T", "seconds"),
            model=str(view["model_name"]),
            comparison_id=view["id"],
            report=f"/comparisons/{view['id']}/report.md",
            policy=policy,
            result=result.model_copy(update={"warnings": (*told, *result.warnings)}),
            error=None,
        )

    def _without_verdict(
        self, code: ExitCode, policy: Policy | None, error: str, view: dict[str, Any] | None = None
    ) -> GateDocument:
        return GateDocument(
            exit_code=code,
            at=datetime.now(UTC).isoformat("T", "seconds"),
            model=str(view["model_name"]) if view else self.model or EMBEDDED,
            comparison_id=view["id"] if view else None,
            report=None,
            policy=policy,
            result=None,
            error=error,
        )

    def _write(self, document: GateDocument) -> None:
        try:
            self.output.mkdir(parents=True, exist_ok=True)
            (self.output / "gate.json").write_text(gate_json(document), encoding="utf-8")
            (self.output / "gate.xml").write_text(junit(document), encoding="utf-8")
        except OSError as unwritable:
            reason = f"gate.json cannot be written to {self.output}: {unwritable.strerror}"
            raise CommandError(reason, ExitCode.USAGE) from unwritable

    def _leave(self, document: GateDocument) -> int:
        self._write(document)
        typer.echo(summary(document), nl=False)
        if os.environ.get("GITHUB_ACTIONS") == "true":
            typer.echo("\n".join(annotations(document)))
        step_summary = os.environ.get("GITHUB_STEP_SUMMARY")
        if step_summary:
            with Path(step_summary).open("a", encoding="utf-8") as file:
                file.write(summary(document))
        typer.echo(f"gate: exit code {document.exit_code}; {self.output / 'gate.json'} says why", err=True)
        return document.exit_code


def leave_misused(arguments: Sequence[str], said: str) -> None:
    """Leave documents of a gate whose options are wrong: whoever reads them must not find an older answer."""
    outputs = [after for before, after in pairwise(arguments) if before in {"--output", "-o"}]
    outputs += [one.partition("=")[2] for one in arguments if one.startswith("--output=")]
    gate = Gate(None, None, Path(outputs[-1] if outputs else ""), None)
    with contextlib.suppress(CommandError):  # wrong use is told all the same
        gate._write(gate._without_verdict(ExitCode.USAGE, None, said))


def _is_judged(view: dict[str, Any]) -> bool:
    return view["status"] == Status.SUCCEEDED and view["verdict"] is not None


def _code_of(refused: CommandError | EquipoiseError | PolicyError) -> ExitCode:
    if isinstance(refused, PolicyError):
        return ExitCode.USAGE
    return refused.code if isinstance(refused, CommandError) else code_of(refused)
