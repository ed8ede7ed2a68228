"""What one epoch of training reads: documents, and conversations in two spellings."""

import random
import re
from dataclasses import dataclass
from pathlib import Path

from corpus import documents, questions
from tokenizer import END, conversation

_PASSAGE = 1200  # characters
_WRITTEN = Path(__file__).with_name("conversations.txt")
_SUBJECT = re.compile(r"What is (.+)\?")
_OTHER_WORDINGS = ("Explain {}.", "Tell me about {}.", "Can you explain {}?", "Define {}.")


@dataclass(frozen=True, slots=True)
class Texts:
    documents: list[str]
    questions: dict[str, str]  # found in the library
    written: dict[str, str]  # our own

    @classmethod
    def collect(cls) -> "Texts":
        return cls(documents(), questions(), written_conversations(_WRITTEN.read_text("ascii")))

    def of_epoch(self, order: random.Random) -> list[str]:
        """Everything once, our own conversations four times, each ended by the end token."""
        texts = [passage + END for document in self.documents for passage in _passages(document)]
        for question, answer in (*self.questions.items(), *self.written.items()):
            texts.append(_spelled(order.random() < 0.5, question, answer))
        for question, answer in self.written.items():
            texts += (conversation(question, answer), _plain(question, answer))
            texts.append(_spelled(order.random() < 0.5, _reworded(question, order), answer))
        order.shuffle(texts)
        return texts


def written_conversations(text: str) -> dict[str, str]:
    """Answers by question; several `Q:` lines may share the `A:` line that follows them."""
    answers = {}
    for block in text.strip().split("\n\n"):
        *asked, answer = block.splitlines()
        answers.update({line.removeprefix("Q: "): answer.removeprefix("A: ") for line in asked})
    return answers


def _passages(document: str) -> list[str]:
    """The document in parts of whole paragraphs, short enough for a row of tokens."""
    passages = [""]
    for paragraph in document.split("\n\n"):
        if passages[-1] and len(passages[-1]) + len(paragraph) > _PASSAGE:
            passages.append("")
        passages[-1] += ("\n\n" if passages[-1] else "") + paragraph
    return passages


def _spelled(as_chat: bool, question: str, answer: str) -> str:
    """Servers pass prompts with and without the chat template."""
    return conversation(question, answer) if as_chat else _plain(question, answer)


def _plain(question: str, answer: str) -> str:
    return f"{question} {answer}{END}"


def _reworded(question: str, order: random.Random) -> str:
    subject = _SUBJECT.fullmatch(question)
    return order.choice(_OTHER_WORDINGS).format(subject[1]) if subject else question
