"""What a reader should know before believing a report: signs of a wrong prompt, of lost requests, of a slow client."""

from collections.abc import Iterable, Iterator

from equipoise_evals.gsm8k.summary import PassSummary
from equipoise_evals.judge.latency import clock_names
from equipoise_evals.model import ROLE_NAMES, ROLES, LaunchRecord, TreatmentInactive, Verdict
from equipoise_service.report.outputs import Outputs

NO_ANSWER = 0.5
"""Share of answers without a final number from which the prompt is more suspect than the model: asked well, even a weak
model ends most answers with one (open case A1-23)."""
EMPTY = 0.01
"""Share of empty answers from which they are no accident: a model that was asked well says something to nearly all."""
TRUNCATED = 0.1
"""Share of answers cut short from which the token limit, not the model, can decide the difference of the arms."""
CLIENT_GAP = 0.2
"""Relative gap between the client's time per token and the engine's period from which the client is the bottleneck."""


def warnings_of(verdict: Verdict, outputs: Outputs | None) -> tuple[str, ...]:
    """Sentences, the gravest first; none where nothing is odd."""
    passes = outputs.passes if outputs else ()
    return (*_of_treatment(verdict), *(line for one in passes for line in _of_pass(one)), *_of_client(verdict))


def attached_warnings(launches: Iterable[LaunchRecord]) -> tuple[str, ...]:
    """One sentence an arm whose engine ran already: what nobody here knows of it, and whether it attests anything."""
    attached = [launch for launch in launches if launch.attached]
    sentences = []
    for role in ROLES:
        of_role = [launch for launch in attached if launch.role == role]
        if not of_role:
            continue
        silent = any(not launch.attestation for launch in of_role)
        proof = "it shows no attestation, so nobody has shown what it runs" if silent else "it attests its arm"
        sentences.append(
            f"the {ROLE_NAMES[role]}'s engine ran already: its flags and environment are not recorded, and {proof}"
        )
    return tuple(sentences)


def _of_treatment(verdict: Verdict) -> Iterator[str]:
    """Arms that ran the same and yet took different times: the difference has another cause."""
    evidence = verdict.latency.evidence if verdict.latency else None
    if not isinstance(verdict.overall, TreatmentInactive) or evidence is None or evidence.busy.interval is None:
        return
    busy, timed = evidence.busy, clock_names(evidence)[0]
    if evidence.busy.interval.low > 0 or evidence.busy.interval.high < 0:
        yield (
            f"both arms ran the same fills and allocations, yet their {timed}s differ by {100 * busy.effect:+.2f} %: "
            "something other than the treatment differs between them, or the change is one that fills do not show"
        )


def _of_pass(one: PassSummary) -> Iterator[str]:
    answered = one.asked - one.states["error"]
    if one.states["error"]:
        yield (
            f"{one.states['error']} of {one.asked} requests of pass {one.name} failed "
            f"({one.states['error'] / one.asked:.1%}): they are errors, not wrong answers, and their questions are "
            "left out of the comparison"
        )
    if answered and one.states["no_answer"] > NO_ANSWER * answered:
        yield (
            f"{one.states['no_answer']} of {answered} answers of pass {one.name} hold no final number: prompt or chat "
            "template are probably wrong for this model"
        )
    if one.empty > EMPTY * answered:
        yield f"{one.empty} of {answered} answers of pass {one.name} are empty"
    if one.states["truncated"] > TRUNCATED * answered:
        yield (
            f"the token limit cut {one.states['truncated']} of {answered} answers of pass {one.name} before a final "
            "number; max_new_tokens may be too small"
        )


def _of_client(verdict: Verdict) -> Iterator[str]:
    evidence = verdict.latency.evidence if verdict.latency else None
    if evidence is None or evidence.client is None or evidence.clock == "client":
        return
    for arm, client_us, period_us in (
        ("baseline", evidence.client.baseline_us, evidence.period.baseline_us),
        ("candidate", evidence.client.candidate_us, evidence.period.candidate_us),
    ):
        if abs(client_us / period_us - 1) > CLIENT_GAP:
            yield (
                f"the client saw {client_us:.0f} us a token of the {arm} where the engine took {period_us:.0f} us a "
                "step: the client's figure does not measure the attention backend"
            )
