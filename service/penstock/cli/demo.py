"""The command `penstock demo`."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path


def parser() -> ArgumentParser:
    """The parser of the command line."""
    made = ArgumentParser("penstock demo", description="Write a repository of small models.")
    made.add_argument("directory", metavar="DIR", type=Path)
    made.add_argument(
        "--llm",
        choices=["openvino_genai", "vllm"],
        default="openvino_genai",
        help="backend of the language model (default: %(default)s)",
    )
    made.add_argument(
        "--examples",
        action="store_true",
        help="write the models that the examples of Triton's client libraries ask instead",
    )
    return made


def run(arguments: Sequence[str]) -> int:
    """Write the models; the exit status."""
    chosen = parser().parse_args(arguments)
    from penstock.demo import DemoError

    try:
        if chosen.examples:
            from penstock.demo import write_examples

            write_examples(chosen.directory, report=print)
        else:
            from penstock.demo import write_demo

            write_demo(chosen.directory, llm=chosen.llm, report=print)
    except (DemoError, OSError) as error:
        print(f"penstock demo: {error}", file=sys.stderr, flush=True)
        return 1
    return 0
