"""The text of `--help`."""

import textwrap

from penstock.cli.flags import GROUPS
from penstock.cli.flags.flag import Flag
from penstock.settings.without_effect import WITHOUT_EFFECT

SERVE = "penstock serve"

_WITHOUT_EFFECT = {row.flag: row.reason for row in WITHOUT_EFFECT}

COMMANDS = """\
Usage: penstock COMMAND [options]

Commands:
  serve      Serve the models of a repository, or one class of a Python file, as in
             `serve model.py:Double`; takes the options of `tritonserver`.
  demo DIR   Write a repository of small models to try the server with.
  top        Show models, queues, batches and latencies of a running server.
  sagemaker  Serve as an endpoint of SageMaker, whose environment variables say how; further
             options are those of `serve`.
  perf MODEL Put a load on a server and measure it: rates, latencies, tokens, comparisons.
  tune MODEL Search settings of a model: instances, batch sizes, queue delays, the engine's.

Commands that ask a running server:
  infer      Send one request to a model, and print its outputs.
  generate   Print what a language model generates, as it comes.
  embed      Print the vectors of texts.
  models     List the models of a server.
  load       Load a model, or load it anew.
  unload     Unload a model.
  stats      Print requests, batches and mean times of models.
  wait       Wait until a server, and models, are ready.

  completion Print a script that completes all this in bash or zsh.

  --version  Print the version.
  --help     Print this; after a command, its options.

Commands ask the server of -u, or of the environment variable PENSTOCK_URL; top, perf and tune, too.
"""

_FILES = """ [[NAME=]FILE.py[:CLASS] ...]
  [NAME=]FILE.py[:CLASS]
        Serve one class of a Python file, beside the repository's models if one is given. CLASS may
        be left out where the file has one model; NAME is the class in snake case otherwise."""


def serve_usage(program: str) -> str:
    lines = [f"Usage: {program} [options]{_FILES if program == SERVE else ''}"]
    lines += ["  --help", "        Print this."]
    for group in GROUPS:
        lines += ["", f"{group.title}:"]
        for flag in group.flags:
            lines += _entry(flag)
    return "\n".join(lines) + "\n"


def _entry(flag: Flag) -> list[str]:
    argument = f" <{flag.argument}>" if flag.argument else ""
    indent = " " * 8
    reason = _WITHOUT_EFFECT.get(flag.name)
    note = f" Has no effect here: {reason}." if reason else ""
    text = textwrap.fill(
        flag.help + note,
        88,
        initial_indent=indent,
        subsequent_indent=indent,
        break_on_hyphens=False,
    )
    return [f"  --{flag.name}{argument}", text]
