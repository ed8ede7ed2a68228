"""The tables of docs/reference/openai-fields.md: requests, and what each engine answers."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from backends.exchanging import begin, whole
from penstock.core.application import BackendApplication

_PAGE = Path(__file__).parents[2] / "docs" / "reference" / "openai-fields.md"
_LINE = re.compile(r"\| `(\{.*\})` \| (works|refused|no effect) \| (works|refused|no effect) \|")
_PATH = re.compile(r"`POST (/\S+)`")

_ASKED: Final[dict[str, dict[str, Any]]] = {
    "/v1/chat/completions": {
        "messages": [{"role": "user", "content": "How do I open a file?"}],
        "max_tokens": 4,
    },
    "/v1/completions": {"prompt": "The file is", "max_tokens": 4},
    "/v1/responses": {"input": "How do I open a file?", "max_output_tokens": 4},
}


@dataclass(frozen=True, slots=True)
class Row:
    """Members of a request to a path, and what the page says of each engine."""

    path: str
    members: dict[str, Any]
    openvino_genai: str
    vllm: str

    def __str__(self) -> str:
        return f"{self.path} {json.dumps(self.members)[:80]}"

    async def answered(self, application: BackendApplication) -> str:
        """How an application answers: `works`, `refused`, or else its status and body."""
        body = {"model": "m", **_ASKED[self.path], **self.members}
        status, text = await whole(begin(application, self.path, body))
        if status == 200 and '"error":{' not in text.replace(" ", ""):
            return "works"
        if status in (400, 404) and json.loads(text)["error"]["message"]:
            return "refused"
        return f"{status}: {text[:500]}"


def rows() -> list[Row]:
    """All lines of the page."""
    found: list[Row] = []
    path = ""
    for line in _PAGE.read_text().splitlines():
        if one := _PATH.fullmatch(line):
            path = one[1]
        elif one := _LINE.fullmatch(line):
            found.append(Row(path, json.loads(one[1]), one[2], one[3]))
    return found


def said(outcome: str) -> str:
    """What is seen where the page says this: that something has no effect is not."""
    return "works" if outcome == "no effect" else outcome
