"""Chats ask what the completion prompts ask, turn by turn."""

import hashlib

from equipoise_evals.gsm8k.chat import build_chats
from equipoise_evals.gsm8k.prompt import build_prompts
from equipoise_evals.model import Question
from equipoise_evals.ports import ChatMessage

ASKED = (
    Question(id=4, question="How many legs have 2 cats?", rationale="2*4=<<2*4=8>>8", gold="8"),
    Question(id=1, question="Und 3 Käfer?", rationale="3*6=<<3*6=18>>18", gold="18"),
)
SHOTS = (Question(id=9, question="One and one?", rationale="1+1=<<1+1=2>>2.", gold="2"),)


def test_turns() -> None:
    chat, _ = build_chats(ASKED, SHOTS)
    assert chat.question == ASKED[0]
    assert chat.asked == chat.messages
    assert chat.messages == (
        ChatMessage("user", "Question: One and one?\nAnswer:"),
        ChatMessage("assistant", "1+1=<<1+1=2>>2.\n#### 2"),
        ChatMessage("user", "Question: How many legs have 2 cats?\nAnswer:"),
    )


def test_the_words_are_those_of_the_completion_prompt() -> None:
    for chat, prompt in zip(build_chats(ASKED, SHOTS), build_prompts(ASKED, SHOTS), strict=True):
        joints = {"user": " ", "assistant": "\n\n"}
        text = "".join(message.content + joints[message.role] for message in chat.messages)
        assert text.rstrip() == prompt.text


def test_zero_shot_is_one_turn() -> None:
    assert [len(chat.messages) for chat in build_chats(ASKED, ())] == [1, 1]


def test_digest_is_the_documented_one() -> None:
    """The JSON is written out by hand here."""
    (chat,) = build_chats(ASKED[1:], ())
    documented = r'[["user","Question: Und 3 K\u00e4fer?\nAnswer:"]]'
    assert chat.sha256 == hashlib.sha256(documented.encode("ascii")).hexdigest()
    assert len({chat.sha256 for chat in build_chats(ASKED, SHOTS)}) == 2
