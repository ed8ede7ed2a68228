"""The options of `penstock tune` and their help, by groups."""

from __future__ import annotations

from argparse import ArgumentParser, RawDescriptionHelpFormatter
from pathlib import Path

from penstock_client.perf.arguments import goal, positive, whole
from penstock_client.perf.arguments import seconds as perf_seconds
from penstock_client.perf.parser import checked
from penstock_client.reading.address import URL_VARIABLE
from penstock_client.tune.choice import OBJECTIVES
from penstock_client.tune.options import MODES, QUICK
from penstock_client.tune.values import (
    assignment,
    first_and_last,
    milliseconds,
    named_values,
    rate,
    seconds,
    size,
    weight,
    weighted_objective,
)

_EPILOG = """\
Words behind -- are options of penstock perf: penstock tune MODEL -- --shape INPUT:3,224,224
Exit status: 0 the best settings were written; 1 results are in the way; 2 wrong options, no such
model, or it cannot be measured as it is; 3 nothing could be measured; 4 no variant keeps the
limits; 130 Ctrl-C, with a report of what was measured until then.
"""


def command_parser() -> ArgumentParser:
    """The parser of the command line."""
    parser = ArgumentParser(
        "penstock tune",
        description="Search settings of models: each variant is served, put under loads by"
        " penstock perf, and the best is written with a report.",
        epilog=_EPILOG,
        formatter_class=RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    _add_models(parser)
    _add_settings(parser)
    _add_loads(parser)
    _add_aims(parser)
    _add_search(parser)
    return parser


def _add_models(parser: ArgumentParser) -> None:
    parser.add_argument(
        "models", metavar="MODEL", nargs="*", help="models, tuned one after the other"
    )
    add = parser.add_argument_group("models").add_argument
    add(
        "--model-repository", "--model-store", action="append", default=[], type=Path,
        metavar="DIR", help="where the models are; may be repeated. Nothing in it is changed",
    )  # fmt: skip
    add(
        "--composing", action="append", default=[], metavar="MODEL",
        help="a model that this one calls, whose settings are searched too; those of an ensemble's"
        " steps are found. May be repeated",
    )  # fmt: skip
    add(
        "--together", action="store_true",
        help="measure all models at the same time, each under its load, and search their settings"
        " as one",
    )  # fmt: skip
    add(
        "--weight", action="append", default=[], type=checked(weight), metavar="MODEL=N",
        help="how much a model counts of those that are measured --together (1)",
    )  # fmt: skip
    add(
        "-u", "--url", "--remote", dest="remote", metavar="HOST:PORT",
        help="load variants into this server, which runs with explicit model control (gRPC;"
        f" ${URL_VARIABLE} where no --model-repository is given)",
    )  # fmt: skip
    add("--remote-http", metavar="HOST:PORT", help="its HTTP endpoint (port 8000 of its host)")
    add("--remote-metrics", metavar="HOST:PORT", help="its metrics page (port 8002 of its host)")
    add("--config-file", "-f", type=Path, metavar="FILE", help="a YAML file of Model Analyzer")
    add(
        "--output", type=Path, metavar="DIR",
        help="where results go, a folder for each model (tuned)",
    )  # fmt: skip


def _add_settings(parser: ArgumentParser) -> None:
    add = parser.add_argument_group(
        "settings", "without any of these they are chosen by what the model is"
    ).add_argument
    add("--instances", nargs="+", metavar="N|A-B", help="instances in each instance group")
    add("--batch-sizes", nargs="+", metavar="N|A-B", help="values of max_batch_size")
    add(
        "--queue-delays", nargs="+", metavar="US|off",
        help="microseconds that the dynamic batcher may wait; off is without it",
    )  # fmt: skip
    add("--cache", nargs="+", metavar="on|off", help="the response cache")
    pairs = checked(named_values)
    add(
        "--parameter", action="append", default=[], type=pairs, metavar="NAME=V,V",
        help="values of a parameter in config.pbtxt; may be repeated",
    )  # fmt: skip
    add(
        "--field", action="append", default=[], type=pairs, metavar="PATH=V,V",
        help="values of any field, such as dynamic_batching.preferred_batch_size=[4],[8]; of a"
        " composing model MODEL/instances=1,2",
    )  # fmt: skip
    add(
        "--engine", action="append", default=[], type=pairs, metavar="NAME=V,V",
        help="values of a key in model.json, such as max_num_seqs=16,64",
    )  # fmt: skip


def _add_loads(parser: ArgumentParser) -> None:
    add = parser.add_argument_group("loads").add_argument
    add(
        "--concurrency", "-c", nargs="+", metavar="N|A-B",
        help="requests at a time; without it 1, 2, 4 and so on while throughput grows",
    )  # fmt: skip
    add(
        "--sweep", type=checked(first_and_last), metavar="A-B",
        help="bounds of these powers of two (1-256)",
    )  # fmt: skip
    add("--rate", "-r", nargs="+", metavar="N|A-B", help="requests a second")
    add("--client-batch-sizes", nargs="+", metavar="N|A-B", help="rows in a request (1)")
    add("--duration", "-d", type=checked(positive), metavar="S", help="of each load (5)")
    add("--warmup", type=checked(perf_seconds), metavar="S", help="before that (1)")


def _add_aims(parser: ArgumentParser) -> None:
    add = parser.add_argument_group("what is best").add_argument
    add(
        "--objective", action="append", default=[], type=checked(weighted_objective),
        metavar="NAME[:WEIGHT]",
        help=f"{', '.join(OBJECTIVES)}; several count by weight (throughput, with --goodput that,"
        " of language models tokens)",
    )  # fmt: skip
    time, memory = checked(milliseconds), checked(size)
    add("--max-p99", type=time, metavar="TIME", help="p99 of latency, such as 20ms")
    add("--max-ttft", type=time, metavar="TIME", help="p99 of the time to the first response")
    add("--max-itl", type=time, metavar="TIME", help="p99 of the time for each further token")
    add("--max-memory", type=memory, metavar="SIZE", help="of the server's processes: 1GiB")
    add("--max-gpu-memory", type=memory, metavar="SIZE", help="of all GPUs that it uses")
    add("--min-throughput", type=checked(rate), metavar="N", help="inferences a second")
    add("--min-goodput", type=checked(rate), metavar="N", help="good requests a second")
    add(
        "--goodput", action="append", default=[], type=checked(goal), metavar="METRIC:LIMIT",
        help="which requests are good: ttft, itl, latency (ms), tokens_per_second",
    )  # fmt: skip
    add("--limits", type=Path, metavar="FILE", help="limits of any figures, as perf's --gate has")


def _add_search(parser: ArgumentParser) -> None:
    add = parser.add_argument_group("search").add_argument
    add(
        "--mode", choices=MODES,
        help=f"a hill climb, all variants, or proposals of Optuna ({QUICK})",
    )  # fmt: skip
    add("--variants", type=whole(1), metavar="N", help="measure so many at most")
    add("--budget", type=checked(seconds), metavar="TIME", help="begin none after 10m or 2h")
    add(
        "--trials", type=checked(first_and_last), metavar="A-B",
        help="variants that Optuna tries (5 to 10 %% of all, 5 and 20 at least)",
    )  # fmt: skip
    add("--patience", type=whole(1), metavar="N", help="Optuna ends after N without gain (10)")
    add(
        "--rounds", type=whole(0), metavar="N",
        help="measure the best and the original once more, in turns (3)",
    )  # fmt: skip
    add(
        "--top", type=whole(0), metavar="N",
        help="write files and a page of so many of the best variants (3)",
    )  # fmt: skip
    add("--resume", action="store_true", help="go on where the last search with --output stopped")
    add(
        "--server-flag", action="append", default=[], type=checked(assignment),
        metavar="NAME=VALUE", help="a flag of penstock serve; may be repeated",
    )  # fmt: skip
    add(
        "--env", action="append", default=[], type=checked(assignment), metavar="NAME=VALUE",
        help="an environment variable of the server; may be repeated",
    )  # fmt: skip
    add("--load-timeout", type=checked(seconds), metavar="TIME", help="for a model to load (10m)")
    add("--quiet", "-q", action="store_true", help="show no progress")
