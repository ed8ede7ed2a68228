"""The command `penstock wait`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

from penstock_client.client import Client
from penstock_client.commands import WAIT
from penstock_client.commands.connection import client_parser
from penstock_client.commands.output import print_json
from penstock_client.commands.running import run_command

_SECONDS = 60.0


def parser() -> ArgumentParser:
    """The parser of the command line."""
    epilog = (
        f"Without --timeout it waits for {_SECONDS:g} seconds. The exit status is 0 when ready."
    )
    made = client_parser("wait", WAIT.summary, epilog)
    made.add_argument("models", metavar="MODEL", nargs="*")
    return made


def run(arguments: Sequence[str]) -> int:
    """Run the command; the exit status."""
    options = parser().parse_intermixed_args(arguments)
    options.patience, options.timeout = options.timeout or _SECONDS, 5.0
    return run_command("wait", _wait, options)


async def _wait(client: Client, options: Namespace) -> None:
    await client.wait_ready(*options.models, timeout=options.patience)
    if options.json:
        print_json({"ready": True, "models": options.models})
