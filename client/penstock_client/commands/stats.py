"""The command `penstock stats`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import asdict

from penstock_client.client import Client, ModelStatistics
from penstock_client.commands import STATS
from penstock_client.commands.connection import client_parser
from penstock_client.commands.output import print_json, print_table
from penstock_client.commands.running import run_command

_HEAD = ["MODEL", "VERSION", "OK", "FAILED", "BATCH", "REQUEST ms", "QUEUE ms", "COMPUTE ms"]


def parser() -> ArgumentParser:
    """The parser of the command line."""
    epilog = (
        "Counted since the load of a model. BATCH is the mean number of inferences of an execution;"
        " times are means of a request."
    )
    made = client_parser("stats", STATS.summary, epilog)
    made.add_argument("model", metavar="MODEL", nargs="?", default="", help="default: all")
    made.add_argument("--model-version", metavar="VERSION", default="", help="of the model")
    return made


def run(arguments: Sequence[str]) -> int:
    """Run the command; the exit status."""
    return run_command("stats", _stats, parser().parse_args(arguments))


async def _stats(client: Client, options: Namespace) -> None:
    found = await client.statistics(options.model, options.model_version)
    if options.json:
        print_json([asdict(each) for each in found])
    else:
        print_table(_HEAD, map(_row, found))


def _row(one: ModelStatistics) -> tuple[object, ...]:
    requests = max(1, one.succeeded)
    compute = one.input_ns + one.infer_ns + one.output_ns
    return (
        one.name,
        one.version,
        one.succeeded,
        one.failed,
        one.inferences / max(1, one.executions),
        one.request_ns / requests / 1e6,
        one.queue_ns / requests / 1e6,
        compute / requests / 1e6,
    )
