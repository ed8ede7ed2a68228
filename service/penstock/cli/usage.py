"""The text of `--help`."""

import textwrap

from penstock.cli.flags import GROUPS
from penstock.cli.flags.flag import Flag

COMMANDS = """\
Usage: penstock COMMAND [options]

Commands:
  serve      Serve the models of a repository; takes the options of `tritonserver`.
  demo DIR   Write a repository of small models to try the server with.

  --version  Print the version.
  --help     Print this; after a command, its options.
"""


def serve_usage(program: str) -> str:
    lines = [f"Usage: {program} [options]", "  --help", "        Print this."]
    for group in GROUPS:
        lines += ["", f"{group.title}:"]
        for flag in group.flags:
            lines += _entry(flag)
    return "\n".join(lines) + "\n"


def _entry(flag: Flag) -> list[str]:
    argument = f" <{flag.argument}>" if flag.argument else ""
    indent = " " * 8
    text = textwrap.fill(
        flag.help, 88, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
    )
    return [f"  --{flag.name}{argument}", text]
