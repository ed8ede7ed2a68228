"""The command `penstock load`."""

from __future__ import annotations

import json
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Sequence
from pathlib import Path

from penstock_client.client import Client
from penstock_client.commands import LOAD
from penstock_client.commands.connection import client_parser
from penstock_client.commands.output import print_json
from penstock_client.commands.running import run_command
from penstock_client.commands.values import Assignment, assignment


def parser() -> ArgumentParser:
    """The parser of the command line."""
    epilog = "The server must run with --model-control-mode=explicit."
    made = client_parser("load", LOAD.summary, epilog)
    made.add_argument("model", metavar="MODEL")
    made.add_argument(
        "--config",
        metavar="JSON|@FILE",
        type=_config,
        help="a configuration, as JSON, in place of the repository's",
    )
    made.add_argument(
        "--file",
        metavar="PATH=LOCAL",
        action="append",
        default=[],
        type=assignment,
        help="a file of the model, such as 1/model.py=model.py; may be given several times",
    )
    return made


def run(arguments: Sequence[str]) -> int:
    """Run the command; the exit status."""
    return run_command("load", _load, parser().parse_args(arguments))


async def _load(client: Client, options: Namespace) -> None:
    await client.load(options.model, config=options.config, files=_files(options.file))
    if options.json:
        print_json({"model": options.model, "loaded": True})
    else:
        print(f"{options.model} is loaded", flush=True)


def _files(named: Sequence[Assignment]) -> dict[str, bytes]:
    return {path: Path(local).read_bytes() for path, local in named}


def _config(text: str) -> str:
    """JSON, from a file behind `@`."""
    try:
        found = Path(text[1:]).read_text("utf-8") if text.startswith("@") else text
        json.loads(found)
    except OSError as error:
        raise ArgumentTypeError(str(error)) from None
    except ValueError as error:
        raise ArgumentTypeError(f"the configuration is not JSON: {error}") from None
    return found
