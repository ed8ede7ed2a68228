"""The command `penstock infer`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import asdict

from penstock.cli.verbs import VERBS
from penstock.cli.verbs.connection import client_parser
from penstock.cli.verbs.output import print_json, print_table, tensor_json, tensor_text
from penstock.cli.verbs.running import run_command
from penstock.cli.verbs.values import assignment, option_value, read_inputs
from penstock.client import Client, Result

_EPILOG = (
    "VALUE is JSON, numbers between commas, or a text; @FILE reads it from a file (.npy, .json, or"
    " anything as one string), @- from standard input. Without a NAME=VALUE the model's inputs and"
    " outputs are printed."
)


def parser() -> ArgumentParser:
    """The parser of the command line."""
    made = client_parser("infer", VERBS["infer"], _EPILOG)
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
        "--parameter",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        type=assignment,
        help="a parameter of the request; may be given several times",
    )
    made.add_argument("--id", default="", help="an id for the request")
    made.add_argument(
        "--stream", action="store_true", help="print every response, of a decoupled model"
    )
    return made


def run(arguments: Sequence[str]) -> int:
    """Run the command; the exit status."""
    return run_command("infer", _infer, parser().parse_args(arguments))


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
    parameters = {name: option_value(text) for name, text in options.parameter}
    version, id, outputs = options.model_version, options.id, options.output
    if options.stream:
        responses = client.stream(
            options.model, inputs, outputs=outputs, version=version, id=id, parameters=parameters
        )
        async with aclosing(responses):
            async for response in responses:
                _print(response, as_json=options.json)
        return
    result = await client.infer(
        options.model, inputs, outputs=outputs, version=version, id=id, parameters=parameters
    )
    _print(result, as_json=options.json)


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
