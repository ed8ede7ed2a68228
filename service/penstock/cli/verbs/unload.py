"""The command `penstock unload`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

from penstock.cli.verbs import VERBS
from penstock.cli.verbs.connection import client_parser
from penstock.cli.verbs.output import print_json
from penstock.cli.verbs.running import run_command
from penstock.client import Client, NotFoundError


def parser() -> ArgumentParser:
    """The parser of the command line."""
    epilog = "The server must run with --model-control-mode=explicit."
    made = client_parser("unload", VERBS["unload"], epilog)
    made.add_argument("model", metavar="MODEL")
    made.add_argument(
        "--dependents", action="store_true", help="unload the models of an ensemble too"
    )
    return made


def run(arguments: Sequence[str]) -> int:
    """Run the command; the exit status."""
    return run_command("unload", _unload, parser().parse_args(arguments))


async def _unload(client: Client, options: Namespace) -> None:
    # The protocol takes what was never there for unloaded, a name that is misspelt, too.
    if options.model not in {each.name for each in await client.models()}:
        raise NotFoundError(f"there is no model '{options.model}'")
    await client.unload(options.model, dependents=options.dependents)
    if options.json:
        print_json({"model": options.model, "loaded": False})
    else:
        print(f"{options.model} is unloaded", flush=True)
