"""The command `penstock embed`."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from contextlib import aclosing

import numpy as np

from penstock.core.tensor import Array
from penstock_client.client import Client, ClientError
from penstock_client.commands import EMBED
from penstock_client.commands.connection import (
    add_hedge_option,
    add_request_options,
    client_parser,
    request_parameters,
)
from penstock_client.commands.failures import Failures
from penstock_client.commands.output import print_json, print_table
from penstock_client.commands.running import run_command

_SHOWN = 6
"""Numbers of a vector that are printed."""

_Outcome = tuple[str, Array | ClientError]


def parser() -> ArgumentParser:
    """The parser of the command line."""
    epilog = (
        "Without a TEXT each line of standard input is one. With --json each line of the output is"
        " a text with its vector, or with its error, as they come; else the vectors' beginnings are"
        " printed, and the similarity (cosine) of each text to the first. A text that fails leaves"
        " the others. With --id the ids are ID-0, ID-1, and so on."
    )
    made = client_parser("embed", EMBED.summary, epilog)
    made.add_argument("model", metavar="MODEL")
    made.add_argument("texts", metavar="TEXT", nargs="*")
    made.add_argument("--model-version", metavar="VERSION", default="", help="of the model")
    add_request_options(made)
    add_hedge_option(made)
    return made


def run(arguments: Sequence[str]) -> int:
    """Run the command; the exit status."""
    return run_command("embed", _embed, parser().parse_intermixed_args(arguments))


async def _embed(client: Client, options: Namespace) -> None:
    texts = options.texts or [line.rstrip("\n") for line in sys.stdin if line.strip()]
    failures = Failures("texts")
    outcomes: list[_Outcome] = []
    answers = client.embed_each(
        options.model,
        failures.sent(texts),
        version=options.model_version,
        id=options.id,
        parameters=request_parameters(options),
        priority=options.priority,
    )
    async with aclosing(answers):
        async for answer in answers:
            if isinstance(answer, ClientError):
                failures.add(answer)
            outcomes.append((texts[len(outcomes)], answer))
            if options.json:
                print_json(_told(*outcomes[-1]))
    if not options.json:
        _print(outcomes)
    failures.raise_told()


def _told(text: str, answer: Array | ClientError) -> dict[str, object]:
    if isinstance(answer, ClientError):
        return {"text": text, "error": answer.message}
    return {"text": text, "vector": answer.tolist()}


def _print(outcomes: Sequence[_Outcome]) -> None:
    """Print a table; similarities are those to the first vector that there is."""
    vectors = [answer for _, answer in outcomes if not isinstance(answer, ClientError)]
    rows = [
        (text, "", f"failed: {answer.message}", "")
        if isinstance(answer, ClientError)
        else (text, answer.size, _beginning(answer), _similarity(answer, vectors[0]))
        for text, answer in outcomes
    ]
    print_table(["TEXT", "NUMBERS", "VECTOR", "SIMILARITY"], rows)


def _beginning(vector: Array) -> str:
    return " ".join(f"{number:+.3f}" for number in vector[:_SHOWN]) + " ..."


def _similarity(vector: Array, other: Array) -> float:
    return float(vector @ other / (np.linalg.norm(vector) * np.linalg.norm(other) or 1.0))
