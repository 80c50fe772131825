"""Which part of a model's output answers the question that was asked.

Reasoning blocks are taken out, and everything after the end of the turn or the beginning of another question is cut
off. What the remaining text says is not decided here.
"""

import re
from collections.abc import Iterator

from equipoise_evals.gsm8k.plain_text import plain

READ_WHOLE = 32_768
"""Characters up to which a text is read whole; of a longer one the two ends and the last marks between are read.

A pass's answers are far shorter. The limit is what lets any text of a megabyte be graded in milliseconds.
"""

_END = 16_384
_SNIPPET = 400
_SEAM = "\n…\n"
_OF_NUMBERS = "0123456789.,"

_REASONING = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("<analysis>", "</analysis>"),
    ("<reflection>", "</reflection>"),
    ("<scratchpad>", "</scratchpad>"),
    ("<seed:think>", "</seed:think>"),
    ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
)
_REASONING_HINTS = ("think", "thought", "reasoning", "analysis", "reflection", "scratchpad", "THINK")
"""Words of the tags above: seven searches of a text tell that it has none of the twenty-four tags."""
_BLOCKS_TRIED = 1_000
_FINAL_CHANNEL = "<|channel|>final<|message|>"
_TURN_ENDS = (
    "</s>",
    "<eos>",
    "<pad>",
    "<end_of_turn>",
    "<start_of_turn>",
    "[INST]",
    "[/INST]",
    "[EOS]",
)
_PIPE_TOKEN = re.compile(r"<[|｜][^<>|｜\s]{1,40}[|｜]>")
_NOT_AN_END = re.compile(
    r"<[|｜](?:begin_of_\w+|end_of_thought|START_\w+|END_THINKING|channel|message|begin▁of▁sentence)[|｜]>"
)
_PIPE_TOKENS_TRIED = 1_000

_ASKER = (
    r"(?:new |next |another |follow-?up )?(?:question|problem|exercise)\s*(?:\#?\s*[0-9]{1,4})?"
    r"|q\s?[0-9]{0,4}|user|human|student|instruction|prompt|input"
    r"|问题|問題|질문|вопрос|задача|pregunta|frage|domanda|pergunta|soru"
)
_RUN_ON = re.compile(
    rf"\n[ \t>*_#-]{{0,8}}(?:(?:{_ASKER})[*_ ]{{0,4}}[:：]|\#\#\#?\ ?(?:instruction|user|question|problem)\b"
    rf"|(?:user|human|assistant|(?:question|problem)(?: ?[0-9]{{1,4}})?)[*_ \t]{{0,4}}(?=\n)|assistant[ \t]*:"
    rf"|example\ ?[0-9]{{1,4}}\ ?[:：])",
    re.IGNORECASE,
)
_RUN_ON_LITERALS = ("\nQuestion:", "\nQ:", "\nProblem:", "\nUser:", "\nHuman:")
_HEADER = re.compile(r"\s{0,20}(?:assistant|model)\s*(?::|\n)", re.IGNORECASE)


def answer_text(output: str) -> str | None:
    """The text that answers the asked question, with plain characters; None where reasoning never ended.

    Args:
        output: What the model wrote, unedited.
    """
    turn = _first_turn(_final_channel(output))
    spoken = _without_reasoning(turn) if turn is not None else None
    if spoken is None:
        return None
    header = _HEADER.match(spoken)
    read = _reduced(spoken[header.end() :] if header else spoken)
    return _before_next_question(plain(_PIPE_TOKEN.sub("\n", read)))


def _final_channel(output: str) -> str | None:
    """The final channel of a text in channels; the whole of any other; None where a final channel never began."""
    if "<|" in output and "|>" in output:
        at = output.find(_FINAL_CHANNEL)
        if at >= 0:
            return output[at + len(_FINAL_CHANNEL) :]
        if "<|channel|>analysis" in output:
            return None
    if output.startswith("analysis") and (joint := output.find("assistantfinal")) >= 0:
        return output[joint + len("assistantfinal") :]
    return output


def _first_turn(text: str | None) -> str | None:
    """The text before the first end-of-turn token that has anything before it."""
    if text is None:
        return None
    begin = len(text) - len(text.lstrip())
    if text.startswith(("<s>", "<bos>"), begin):
        text = text[text.index(">", begin) + 1 :]
    ends = [
        at
        for token in _TURN_ENDS
        if token[0] in text and token[-1] in text and (at := text.find(token)) >= 0 and _says_something(text, at)
    ]
    ends.extend(_first_pipe_token(text))
    return text[: min(ends)] if ends else text


def _says_something(text: str, end: int) -> bool:
    return bool(text[: min(end, READ_WHOLE)].strip())


def _first_pipe_token(text: str) -> Iterator[int]:
    if "<" not in text or ">" not in text:
        return
    at = -1
    for _ in range(_PIPE_TOKENS_TRIED):
        at = min((found for mark in ("<|", "<｜") if (found := text.find(mark, at + 1)) >= 0), default=-1)
        if at < 0:
            return
        token = _PIPE_TOKEN.match(text, at)
        if token and not _NOT_AN_END.match(text, at) and _says_something(text, at):
            yield at
            return


def _without_reasoning(text: str) -> str | None:
    """The text outside reasoning blocks, None where one never closes.

    A closing tag without an opening one ends a block that the prompt opened, so all before it was reasoning.
    """
    if not any(bracket in text for bracket in ">]▷"):
        return text
    lacking = [hint for hint in _REASONING_HINTS if hint not in text]
    for opening, closing in _REASONING:
        if any(hint in opening for hint in lacking) or (opening not in text and closing not in text):
            continue
        outside = _outside(text, opening, closing)
        if outside is None:
            return None
        text = outside
    return text


def _outside(text: str, opening: str, closing: str) -> str | None:
    kept: list[str] = []
    position = 0
    opened = text.find(opening)
    for _ in range(_BLOCKS_TRIED):
        closed = text.find(closing, position)
        if 0 <= opened < position:
            opened = text.find(opening, position)
        if closed < 0:
            return None if opened >= 0 else "\n".join([*kept, text[position:]])
        if opened < 0:
            # No further block opens: everything up to the last closing tag was reasoning.
            return text[text.rfind(closing) + len(closing) :]
        if closed < opened:
            kept.clear()
        else:
            kept.append(text[position:opened])
        position = closed + len(closing)
    return text[text.rfind(closing) + len(closing) :]


def _reduced(text: str) -> str:
    """A long text as its beginning, the last marks in its middle and its end; a number cut at a seam is dropped."""
    if len(text) <= READ_WHOLE:
        return text
    run_ons = [at for literal in _RUN_ON_LITERALS if (at := text.find(literal)) >= 0 and _says_something(text, at)]
    if run_ons:
        text = text[: min(run_ons)]
        if len(text) <= READ_WHOLE:
            return text
    middle = sorted(
        at for mark in ("####", "\\boxed{", "nswer is") if (at := text.rfind(mark, _END, len(text) - _END)) >= 0
    )
    pieces = [text[:_END], *(text[at : at + _SNIPPET] for at in middle)]
    return _SEAM.join([*(piece.rstrip(_OF_NUMBERS) for piece in pieces), text[-_END:].lstrip(_OF_NUMBERS)])


def _before_next_question(text: str) -> str:
    """The text before the first line that asks another question or begins another turn.

    Only what follows a line break is another question: a text that opens with ``Question:`` repeats the one it got.
    """
    found = _RUN_ON.search(text)
    return text[: found.start()] if found else text
