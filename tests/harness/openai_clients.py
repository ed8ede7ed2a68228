"""Runs the clients of OpenAI's API that people use against a server."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from programs import openai_clients
from programs.places import find

_PROGRAM = Path(openai_clients.__file__)
OTHERS = find("openai-clients")
"""The Python of clients that are no dependency of the tests, and of an older one of OpenAI's; empty
without it."""
MISSING = "" if OTHERS else "there is no openai-clients: `make tools` says why"

EXPECTED = {
    "openai": {
        *("models", "chat", "completion", "with_streaming_response", "stream helper"),
        *("responses", "parse", "tools", "async"),
    },
    "litellm": {"chat", "async", "tools"},
    "langchain": {"chat", "tools", "async"},
}
"""What each client is asked for."""
NEEDS_TOOLS = {"parse", "tools"}
"""What of it a model from text to text has not."""


def asked_by_the_official_client(
    address: str, model: str, parameters: Any = openai_clients.PARITY
) -> set[str]:
    """What OpenAI's client of this environment was seen to do; a tool has these `parameters`.

    With `None` for them, it asks for no tools.
    """
    tool = None if parameters is None else openai_clients.parity_tool(parameters)
    return set(openai_clients.openai_client(f"http://{address}/v1", model, tool))


def asked_by(client: str, address: str, model: str, *options: str) -> set[str]:
    """What a client of the other environment was seen to do; `client` is a key of `EXPECTED`."""
    done = subprocess.run(
        [OTHERS, _PROGRAM, f"http://{address}/v1", model, client, *options],
        env={**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True"},  # it would fetch a newer one
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {line.removeprefix(f"ok {client}: ") for line in done.stdout.splitlines()}
