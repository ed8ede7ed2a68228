"""The command `penstock generate`."""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator, Sequence
from contextlib import aclosing
from typing import Any

from penstock_client.client import Client, ClientError
from penstock_client.commands import GENERATE
from penstock_client.commands.connection import (
    add_request_options,
    client_parser,
    request_parameters,
)
from penstock_client.commands.failures import Failures
from penstock_client.commands.output import print_json
from penstock_client.commands.running import print_error, run_command
from penstock_client.commands.values import assignment, option_value

_EPILOG = (
    "Without a PROMPT, or for -, it is read from standard input. Ctrl-C stops the generation. Of"
    " several --lines one that fails leaves the others."
)


def parser() -> ArgumentParser:
    """The parser of the command line."""
    made = client_parser("generate", GENERATE.summary, _EPILOG)
    made.add_argument("model", metavar="MODEL")
    made.add_argument("prompt", metavar="PROMPT", nargs="?", default="-")
    made.add_argument("--model-version", metavar="VERSION", default="", help="of the model")
    made.add_argument("--max-tokens", metavar="N", type=int, help="generate at most so many tokens")
    made.add_argument("--temperature", metavar="T", type=float, help="0 for the likeliest tokens")
    made.add_argument(
        "--option",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        type=assignment,
        help="any other option of the model, such as top_p=0.9; may be given several times",
    )
    made.add_argument(
        "--lines", action="store_true", help="take each line of standard input as a prompt"
    )
    made.add_argument(
        "--times", action="store_true", help="print times on standard error at the end"
    )
    add_request_options(made)
    return made


def run(arguments: Sequence[str]) -> int:
    """Run the command; the exit status."""
    return run_command("generate", _generate, parser().parse_intermixed_args(arguments))


async def _generate(client: Client, options: Namespace) -> None:
    failures = Failures("prompts")
    for prompt in failures.sent(_prompts(options.prompt, options.lines)):
        answer = _Answer(prompt)
        try:
            await _read(client, options, answer)
        except ClientError as error:
            failures.add(error)
            answer.show(options, error)
        else:
            answer.show(options)
    failures.raise_told()


async def _read(client: Client, options: Namespace, answer: _Answer) -> None:
    """Read the pieces of an answer, and print them as they come."""
    pieces = client.generate(
        options.model,
        answer.prompt,
        version=options.model_version,
        id=options.id,
        parameters=request_parameters(options),
        priority=options.priority,
        **_chosen(options),
    )
    async with aclosing(pieces):
        async for piece in pieces:
            answer.add(piece)
            if not options.json:
                sys.stdout.write(piece)
                sys.stdout.flush()


def _chosen(options: Namespace) -> dict[str, Any]:
    """The model's own options."""
    chosen: dict[str, Any] = {name: option_value(text) for name, text in options.option}
    if options.max_tokens is not None:
        chosen["max_tokens"] = options.max_tokens
    if options.temperature is not None:
        chosen["temperature"] = options.temperature
    return chosen


def _prompts(prompt: str, lines: bool) -> Iterable[str]:
    if (lines or prompt == "-") and sys.stdin.isatty():
        print("Type a prompt, then Ctrl-D.", file=sys.stderr, flush=True)
    if lines:
        return _stripped(sys.stdin)
    return [sys.stdin.read().removesuffix("\n") if prompt == "-" else prompt]


def _stripped(lines: Iterable[str]) -> Iterator[str]:
    return (line.rstrip("\n") for line in lines if line.strip())


class _Answer:
    """The answer to a prompt so far, with the times at which its pieces came."""

    def __init__(self, prompt: str) -> None:
        self.prompt = prompt
        self._began = time.perf_counter()
        self._times: list[float] = []
        self._pieces: list[str] = []

    def add(self, piece: str) -> None:
        self._times.append(time.perf_counter() - self._began)
        self._pieces.append(piece)

    def show(self, options: Namespace, error: ClientError | None = None) -> None:
        """Print what is left to print at the end, be it a failure."""
        text = "".join(self._pieces)
        if options.json:
            failed = {} if error is None else {"error": error.message}
            told = {"model": options.model, "prompt": self.prompt, "text": text}
            print_json({**told, **self._numbers(), **failed})
        elif text or error is None:
            print("" if text.endswith("\n") else "\n", end="", flush=True)
        if error is not None and options.lines and not options.json:
            print_error("generate", f"'{self.prompt}' failed: {error.message}")
        if options.times and error is None:
            self._print_times()

    def _numbers(self) -> dict[str, float]:
        first, between, last = self._seconds()
        return {
            "pieces": len(self._pieces),
            "first_seconds": round(first, 6),
            "between_seconds": round(between, 6),
            "seconds": round(last, 6),
        }

    def _print_times(self) -> None:
        first, between, last = self._seconds()
        print(
            f"{len(self._pieces)} pieces in {last:.3f} s: the first after {first * 1e3:.1f} ms,"
            f" then one in {between * 1e3:.2f} ms",
            file=sys.stderr,
            flush=True,
        )

    def _seconds(self) -> tuple[float, float, float]:
        """Until the first piece, between two, and until the last."""
        first, last = (self._times[0], self._times[-1]) if self._times else (0.0, 0.0)
        return first, (last - first) / max(1, len(self._times) - 1), last
