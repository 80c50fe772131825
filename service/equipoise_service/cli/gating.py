"""What ``equipoise gate`` does: measure or fetch a comparison, decide, write the documents, end with the code."""

import asyncio
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from equipoise_evals.model import Verdict
from equipoise_service.cli.comparing import compared, error_text, fetched
from equipoise_service.cli.exit_codes import CommandError, ExitCode, code_of
from equipoise_service.errors import EquipoiseError
from equipoise_service.gate import Policy, PolicyError, decide, load_policy
from equipoise_service.gate.documents import GateDocument, annotations, gate_json, junit, summary

CODES = {"pass": ExitCode.PASS, "block": ExitCode.BLOCK, "undecided": ExitCode.UNDECIDED}


@dataclass(frozen=True)
class Gate:
    """One run of the gate; whatever ends it, ``gate.json`` says so with the exit code."""

    model: str
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
            body = policy.request_for(self.model)
            view = asyncio.run(
                compared(body, self.url, Console(stderr=True))
                if comparison_id is None
                else fetched(comparison_id, self.url)
            )
        except (CommandError, EquipoiseError, PolicyError) as refused:
            return self._leave(self._without_verdict(_code_of(refused), policy, str(refused)))
        if view["verdict"] is None:
            return self._leave(self._without_verdict(ExitCode.ERROR, policy, error_text(view), view))
        return self._leave(self._decided(policy, view))

    def _decided(self, policy: Policy, view: dict[str, Any]) -> GateDocument:
        now = datetime.now(UTC)
        result = decide(Verdict.model_validate(view["verdict"]), policy, now.date())
        return GateDocument(
            exit_code=CODES[result.decision],
            at=now.isoformat("T", "seconds"),
            model=str(view["model_name"]),
            comparison_id=view["id"],
            report=f"/comparisons/{view['id']}/report.md",
            policy=policy,
            result=result,
            error=None,
        )

    def _without_verdict(
        self, code: ExitCode, policy: Policy | None, error: str, view: dict[str, Any] | None = None
    ) -> GateDocument:
        return GateDocument(
            exit_code=code,
            at=datetime.now(UTC).isoformat("T", "seconds"),
            model=self.model,
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


def _code_of(refused: CommandError | EquipoiseError | PolicyError) -> ExitCode:
    if isinstance(refused, PolicyError):
        return ExitCode.USAGE
    return refused.code if isinstance(refused, CommandError) else code_of(refused)
