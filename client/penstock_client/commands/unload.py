"""The command `penstock unload`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

from penstock_client.client import Client, NotFoundError
from penstock_client.commands import UNLOAD
from penstock_client.commands.connection import client_parser
from penstock_client.commands.output import print_json
from penstock_client.commands.running import run_command


def parser() -> ArgumentParser:
    """The parser of the command line."""
    epilog = "The server must run with --model-control-mode=explicit."
    made = client_parser("unload", UNLOAD.summary, epilog)
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
