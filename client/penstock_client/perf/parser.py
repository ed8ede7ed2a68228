"""The options of `penstock perf` and their help, by groups."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, RawDescriptionHelpFormatter
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from penstock_client.perf.arguments import (
    goal,
    header,
    numbers,
    parameter,
    percentage,
    positive,
    seconds,
    shape,
    shared_prefix,
    whole,
    whole_numbers,
)
from penstock_client.perf.options import GENERATE, GRPC, HTTP, INFER, OPENAI
from penstock_client.perf.requests.language import OPENAI_PATHS
from penstock_client.perf.requests.lengths import parse_lengths
from penstock_client.reading.address import URL_VARIABLE

T = TypeVar("T")

_EPILOG = """\
The load is closed (--concurrency: so many requests at a time) or open (--rate, --intervals,
--trace: at times that do not wait for answers). Names of perf_analyzer's options are understood
where the option is the same. Exit status: 0 all is well; 1 options or files are wrong; 2 no server
or model; 3 requests failed; 4 the gate was not held; 5 the rate was not reached, or no request was
answered in the time; 130 Ctrl-C.
"""


def checked(read: Callable[[str], T]) -> Callable[[str], T]:
    """The reader of an option's value, with its errors as argparse wants them."""

    def checked(text: str) -> T:
        try:
            return read(text)
        except ValueError as error:
            raise ArgumentTypeError(str(error)) from None

    return checked


def command_parser() -> ArgumentParser:
    """The parser of the command line."""
    parser = ArgumentParser(
        "penstock perf",
        description="Put a load on a server of the KServe v2 protocol, or of OpenAI's, and say what"
        " came of it.",
        epilog=_EPILOG,
        formatter_class=RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    _add_target(parser)
    _add_load(parser)
    _add_sequences(parser)
    _add_inputs(parser)
    _add_prompts(parser)
    _add_process(parser)
    _add_results(parser)
    return parser


def _add_target(parser: ArgumentParser) -> None:
    parser.add_argument("named", metavar="MODEL", nargs="?", help="the model's name")
    add = parser.add_argument_group("server and model").add_argument
    add("-m", "--model", "--model-name", metavar="MODEL", help="its name, as perf_analyzer has it")
    add("-x", "--version", "--model-version", default="", metavar="N", help="its version (latest)")
    add(
        "-u", "--url", metavar="HOST:PORT",
        help=f"the server (${URL_VARIABLE}, or localhost:8001, 8000 of HTTP)",
    )  # fmt: skip
    add(
        "-i", "--wire", choices=[GRPC, HTTP, OPENAI],
        help=f"protocol (grpc, or http if -u or ${URL_VARIABLE} says so)",
    )  # fmt: skip
    add(
        "--endpoint",
        choices=[INFER, GENERATE, *OPENAI_PATHS],
        help="infer or generate of -i http; chat, completions or embeddings of -i openai (chat)",
    )
    add(
        "--streaming", action="store_true", help="answers are streams, as those of decoupled models"
    )
    add("--compare", nargs=2, metavar=("A", "B"), help="two servers instead of -u, in turns")
    add("--rounds", type=whole(2), default=10, help="measurements of each when comparing (10)")
    add("--tls-ca", default="", metavar="FILE", help="certificates to trust, with https:// in -u")
    add("--tls-cert", default="", metavar="FILE", help="the client's certificate")
    add("--tls-key", default="", metavar="FILE", help="the client's key")
    add("--tls-unverified", action="store_true", help="trust any certificate")
    add(
        "-H", "--header", action="append", default=[], type=checked(header), metavar="NAME:VALUE",
        help="send a header, or metadata of gRPC",
    )  # fmt: skip
    add("--metrics-url", metavar="HOST:PORT", help="read the server's metrics page, too")
    add(
        "--server-pid", action="append", type=whole(1), default=[], metavar="PID",
        help="measure CPU time of the server, which runs here; twice for --compare",
    )  # fmt: skip


def _add_load(parser: ArgumentParser) -> None:
    add = parser.add_argument_group("load").add_argument
    add(
        "-c", "--concurrency", "--concurrency-range", type=checked(whole_numbers),
        metavar="N|A:B[:STEP]|N,N",
        help="requests at a time; several are measured one after the other (1)",
    )  # fmt: skip
    add(
        "-r", "--rate", "--request-rate-range", type=checked(numbers),
        metavar="N|A:B[:STEP]|N,N", help="requests a second",
    )  # fmt: skip
    add(
        "--distribution", "--request-distribution", choices=["constant", "poisson"],
        default="constant", help="times between requests of --rate (constant)",
    )  # fmt: skip
    add(
        "--intervals", "--request-intervals", type=Path, metavar="FILE",
        help="microseconds between requests, one a line",
    )  # fmt: skip
    add("--trace", type=Path, metavar="FILE", help="times of requests, and lengths: lines of JSON")
    add("-d", "--duration", type=checked(seconds), default=10.0, metavar="S", help="measured (10)")
    add("--warmup", type=checked(seconds), default=1.0, metavar="S", help="before that (1)")
    add(
        "-n", "--requests", "--request-count", type=whole(1), default=0, metavar="N",
        help="end after so many instead",
    )  # fmt: skip
    add(
        "--stable", nargs="?", const=10.0, type=checked(percentage), metavar="PERCENT",
        help="measure windows until three agree so closely (10)",
    )  # fmt: skip
    add("--window", type=checked(positive), default=5.0, metavar="S", help="a window's length (5)")
    add(
        "--max-windows", "--max-trials", type=whole(3), default=10, metavar="N",
        help="windows at most (10)",
    )  # fmt: skip
    add(
        "--drain", type=checked(seconds), default=10.0, metavar="S",
        help="for answers after an open load (10)",
    )  # fmt: skip
    add("--timeout", type=checked(seconds), default=0.0, metavar="S", help="of a request (none)")
    add("--max-in-flight", type=whole(1), default=1024, metavar="N", help="of an open load (1024)")


def _add_sequences(parser: ArgumentParser) -> None:
    add = parser.add_argument_group("sequences").add_argument
    add(
        "--sequences", "--num-of-sequences", type=whole(1), default=0, metavar="N",
        help="send sequences, so many at a time",
    )  # fmt: skip
    add("--sequence-length", type=whole(1), default=20, metavar="N", help="requests of each (20)")
    add(
        "--sequence-length-variation", type=checked(percentage), default=20.0, metavar="PERCENT",
        help="how much shorter and longer they may be (20)",
    )  # fmt: skip
    add(
        "--sequence-id-range", type=_id_range, default=(1, 1 << 31), metavar="FIRST:END",
        help="their ids",
    )  # fmt: skip


def _add_inputs(parser: ArgumentParser) -> None:
    add = parser.add_argument_group("tensors").add_argument
    add("-b", "--batch", "--batch-size", type=whole(1), default=1, metavar="N", help="rows (1)")
    add(
        "--input-data",
        default="random",
        metavar="random|zero|PATH",
        help="or a file of perf_analyzer's form (random)",
    )
    add(
        "--shape",
        action="append",
        type=checked(shape),
        default=[],
        metavar="INPUT:D,D",
        help="where sizes vary",
    )
    add(
        "--input-count", type=whole(1), default=1, metavar="N",
        help="different requests that are made, sent in turns (1)",
    )  # fmt: skip
    add("--string-length", type=whole(0), default=128, metavar="N", help="of made strings (128)")
    add("--string-data", default="", metavar="TEXT", help="instead of made strings")
    add(
        "--request-parameter",
        action="append",
        type=checked(parameter),
        default=[],
        metavar="NAME:VALUE:TYPE",
        help="TYPE: bool, int, uint, double, string",
    )
    forms = ["binary", "json"]
    add("--input-tensor-format", choices=forms, help="of HTTP (binary, if the server takes it)")
    add("--output-tensor-format", choices=forms, help="of HTTP (binary, if the server has it)")
    add("--shared-memory", choices=["none", "system"], default="none", help="for tensors (none)")
    add(
        "--output-shared-memory-size",
        type=whole(1),
        default=102400,
        metavar="BYTES",
        help="(102400)",
    )


def _add_prompts(parser: ArgumentParser) -> None:
    add = parser.add_argument_group("prompts of language models").add_argument
    lengths = checked(parse_lengths)
    add("--prompt", action="append", default=[], metavar="TEXT", help="a prompt; may be repeated")
    add("--prompt-file", type=Path, metavar="FILE", help="prompts, one a line")
    add(
        "--prompt-words",
        type=lengths,
        metavar="LENGTHS",
        help="made prompts: 128, normal:128:32, lognormal:128:0.5, uniform:64:256",
    )
    add("--prompt-count", type=whole(1), default=256, metavar="N", help="how many are made (256)")
    add("--output-tokens", type=lengths, metavar="LENGTHS", help="asked for in answer")
    add(
        "--shared-prefix",
        type=checked(shared_prefix),
        metavar="WORDS[:COUNT]",
        help="with which prompts begin: one of COUNT (1)",
    )
    add("--extra-body", default="", metavar="JSON", help="further fields for -i openai")


def _add_process(parser: ArgumentParser) -> None:
    add = parser.add_argument_group("this tool").add_argument
    add("-p", "--processes", type=whole(1), default=1, metavar="N", help="that put on the load (1)")
    add(
        "--connections", type=whole(1), default=0, metavar="N",
        help="of gRPC (one for six requests at a time, 4 at most)",
    )  # fmt: skip
    add("--seed", type=whole(0), default=0, metavar="N", help="of all that is random (0)")


def _add_results(parser: ArgumentParser) -> None:
    add = parser.add_argument_group("results").add_argument
    add(
        "--goodput", action="append", type=checked(goal), default=[], metavar="METRIC:LIMIT",
        help="count what keeps to ttft, itl, latency (ms) or tokens_per_second; may be repeated",
    )  # fmt: skip
    add("--gate", type=Path, metavar="FILE", help="limits of the results, in TOML")
    add("--json", type=Path, metavar="FILE", help="write all figures; - is the standard output")
    add("-f", "--csv", type=Path, metavar="FILE", help="write a row for each load")
    add("--html", type=Path, metavar="FILE", help="write a report with plots")
    add("--requests-csv", type=Path, metavar="FILE", help="write a row for each request")
    add("-q", "--quiet", action="store_true", help="show no progress")


def _id_range(text: str) -> tuple[int, int]:
    """The first id and how many there are."""
    first, _, end = text.partition(":")
    if not first.isdigit() or (end and not end.isdigit()) or (end and int(end) <= int(first)):
        raise ArgumentTypeError(f"'{text}' is not a range: write FIRST or FIRST:END")
    return int(first), int(end) - int(first) if end else 1 << 31
