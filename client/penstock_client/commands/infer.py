"""The command `penstock infer`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import asdict
from typing import Any

from penstock_client.client import Client, ClientError, ModelMetadata, Result
from penstock_client.commands import INFER
from penstock_client.commands.connection import (
    add_hedge_option,
    add_request_options,
    client_parser,
    request_parameters,
)
from penstock_client.commands.output import print_json, print_table, tensor_json, tensor_text
from penstock_client.commands.running import run_command
from penstock_client.commands.values import assignment, read_inputs

_EPILOG = (
    "VALUE is JSON, numbers between commas, or a text; @FILE reads it from a file (.npy, .json, or"
    " anything as one string), @- from standard input. Without a NAME=VALUE the model's inputs and"
    " outputs are printed."
)


def parser() -> ArgumentParser:
    """The parser of the command line."""
    made = client_parser("infer", INFER.summary, _EPILOG)
    made.add_argument("model", metavar="MODEL")
    made.add_argument("inputs", metavar="NAME=VALUE", nargs="*", type=assignment)
    made.add_argument("--model-version", metavar="VERSION", default="", help="of the model")
    made.add_argument(
        "--output",
        metavar="NAME",
        action="append",
        default=[],
        help="print this output; may be given several times (default: all)",
    )
    made.add_argument(
        "--stream", action="store_true", help="print every response, of a decoupled model"
    )
    add_request_options(made)
    add_hedge_option(made)
    group = made.add_argument_group("sequence", "A request of a sequence is sent once.")
    group.add_argument("--sequence", metavar="ID", default="", help="a number or a text")
    group.add_argument("--start", action="store_true", help="it begins the sequence")
    group.add_argument("--end", action="store_true", help="it ends the sequence")
    return made


def run(arguments: Sequence[str]) -> int:
    """Run the command; the exit status."""
    made = parser()
    options = made.parse_intermixed_args(arguments)
    if options.stream and options.hedge is not None:
        made.error("--hedge is for one answer, not for --stream")
    if options.sequence and (options.hedge is not None or options.retries):
        made.error("a request of a --sequence is sent once: leave --retries and --hedge out")
    if (options.start or options.end) and not options.sequence:
        made.error("--start and --end are of a --sequence")
    return run_command("infer", _infer, options)


async def _infer(client: Client, options: Namespace) -> None:
    metadata = await client.model_metadata(options.model, options.model_version)
    if not options.inputs and metadata.inputs:
        if options.json:
            print_json(asdict(metadata))
            return
        rows = [("input", t.name, t.datatype, list(t.shape)) for t in metadata.inputs]
        rows += [("output", t.name, t.datatype, list(t.shape)) for t in metadata.outputs]
        print_table(["", "NAME", "DATATYPE", "SHAPE"], rows)
        return
    inputs = read_inputs(options.inputs, metadata)
    wanted = _wanted(options)
    if options.stream:
        responses = client.stream(options.model, inputs, **wanted)
        async with aclosing(responses):
            async for response in responses:
                _print(response, as_json=options.json)
        return
    try:
        result = await client.infer(options.model, inputs, **wanted)
    except ClientError as error:  # of another class over HTTP
        if "decoupled" in error.message:
            error.message += _other_way(metadata)
        raise
    _print(result, as_json=options.json)


def _other_way(metadata: ModelMetadata) -> str:
    """How the answers of a decoupled model can be had."""
    if "text_input" in {tensor.name for tensor in metadata.inputs}:
        generate = f"'penstock generate {metadata.name} PROMPT'"
        return f"; {generate} prints its text, --stream all its responses"
    return "; --stream prints all its responses"


def _wanted(options: Namespace) -> dict[str, Any]:
    """The keyword arguments of the call."""
    sequence = options.sequence
    return {
        "outputs": options.output,
        "version": options.model_version,
        "id": options.id,
        "parameters": request_parameters(options),
        "priority": options.priority,
        "sequence": int(sequence) if sequence.isascii() and sequence.isdigit() else sequence,
        "start": options.start,
        "end": options.end,
    }


def _print(result: Result, *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "model": result.model,
                "version": result.version,
                "id": result.id,
                "parameters": dict(result.parameters),
                "outputs": {name: tensor_json(t) for name, t in result.outputs.items()},
            }
        )
        return
    for name, tensor in result.outputs.items():
        print(f"{name}  {tensor.datatype.value} {list(tensor.shape)}", flush=True)
        print(tensor_text(tensor), flush=True)
