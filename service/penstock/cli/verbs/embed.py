"""The command `penstock embed`."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

import numpy as np

from penstock.cli.verbs import VERBS
from penstock.cli.verbs.connection import client_parser
from penstock.cli.verbs.output import print_json, print_table
from penstock.cli.verbs.running import run_command
from penstock.client import Client

_SHOWN = 6
"""Numbers of a vector that are printed."""


def parser() -> ArgumentParser:
    """The parser of the command line."""
    epilog = (
        "Without a TEXT each line of standard input is one. With --json each line of the output is"
        " a text with its vector; else the vectors' beginnings are printed, and the similarity"
        " (cosine) of each text to the first."
    )
    made = client_parser("embed", VERBS["embed"], epilog)
    made.add_argument("model", metavar="MODEL")
    made.add_argument("texts", metavar="TEXT", nargs="*")
    made.add_argument("--model-version", metavar="VERSION", default="", help="of the model")
    return made


def run(arguments: Sequence[str]) -> int:
    """Run the command; the exit status."""
    return run_command("embed", _embed, parser().parse_args(arguments))


async def _embed(client: Client, options: Namespace) -> None:
    texts = options.texts or [line.rstrip("\n") for line in sys.stdin if line.strip()]
    vectors = await client.embed(options.model, texts, version=options.model_version)
    if options.json:
        for text, vector in zip(texts, vectors, strict=True):
            print_json({"text": text, "vector": vector.tolist()})
        return
    lengths = np.linalg.norm(vectors, axis=1) if len(texts) else np.empty(0)
    rows = [
        (
            text,
            vector.size,
            " ".join(f"{number:+.3f}" for number in vector[:_SHOWN]) + " ...",
            float(vector @ vectors[0] / (length * lengths[0] or 1.0)),
        )
        for text, vector, length in zip(texts, vectors, lengths, strict=True)
    ]
    print_table(["TEXT", "NUMBERS", "VECTOR", "SIMILARITY"], rows)
