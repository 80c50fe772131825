"""The same questions as turns of a chat, for models that are asked through their chat template.

It owns the turns and nothing else. The template is the model's and is applied by whoever has its tokenizer; a template
writes its own BOS, so what it gives must be sent as token ids or tokenized without special tokens, or there are two.
The turns are those of lm-evaluation-harness with ``--apply_chat_template --fewshot_as_multiturn``: each worked example
is a user's question and the assistant's answer, in the words of the completion prompt.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from equipoise_evals.gsm8k.prompt import Prompt, worked_example
from equipoise_evals.model import Question
from equipoise_evals.ports import ChatMessage

ANSWER = "Answer:"


@dataclass(frozen=True)
class Chat:
    """One question as a chat that ends in the user's turn.

    Attributes:
        question: What is asked.
        messages: All turns, worked examples first.
        sha256: Hexadecimal digest of the turns as JSON: a list of ``[role, content]``, ASCII, no spaces.
    """

    question: Question
    messages: tuple[ChatMessage, ...]
    sha256: str

    @property
    def asked(self) -> tuple[ChatMessage, ...]:
        """What an engine is asked."""
        return self.messages


AnyPrompt = Prompt | Chat
"""A question as it is asked, in either mode."""


def build_chats(asked: Sequence[Question], shots: Sequence[Question]) -> tuple[Chat, ...]:
    """The chats of the asked questions, in the order given, each after the same worked examples.

    Args:
        asked: Questions from the test file.
        shots: Worked examples from the train file, in the order shown; none is zero-shot.
    """
    examples = tuple(turn for shot in shots for turn in _example(shot))
    return tuple(_chat(question, examples) for question in asked)


def _example(shot: Question) -> tuple[ChatMessage, ChatMessage]:
    asked = _asks(shot)
    answer = worked_example(shot).removeprefix(asked.content).removeprefix(" ")
    return asked, ChatMessage("assistant", answer)


def _asks(question: Question) -> ChatMessage:
    return ChatMessage("user", f"Question: {question.question}\n{ANSWER}")


def _chat(question: Question, examples: tuple[ChatMessage, ...]) -> Chat:
    messages = (*examples, _asks(question))
    turns = json.dumps([[message.role, message.content] for message in messages], separators=(",", ":"))
    return Chat(question, messages, hashlib.sha256(turns.encode()).hexdigest())
