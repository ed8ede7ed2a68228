"""The command `penstock models`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import asdict

from penstock_client.client import Client
from penstock_client.commands import MODELS
from penstock_client.commands.connection import client_parser
from penstock_client.commands.output import print_json, print_table
from penstock_client.commands.running import run_command


def parser() -> ArgumentParser:
    """The parser of the command line."""
    made = client_parser("models", MODELS.summary)
    made.add_argument("--ready", action="store_true", help="only those that are ready")
    made.add_argument("--names", action="store_true", help="print the names, and nothing else")
    return made


def run(arguments: Sequence[str]) -> int:
    """Run the command; the exit status."""
    return run_command("models", _models, parser().parse_args(arguments))


async def _models(client: Client, options: Namespace) -> None:
    entries = await client.models(ready_only=options.ready)
    if options.names:
        print("\n".join(dict.fromkeys(entry.name for entry in entries)), flush=True)
    elif options.json:
        print_json([asdict(entry) for entry in entries])
    else:
        rows = [(e.name, e.version, e.state or "not loaded", e.reason) for e in entries]
        print_table(["MODEL", "VERSION", "STATE", "REASON"], rows)
