"""The text of `--help`."""

import textwrap

from penstock.cli.flags import GROUPS
from penstock.cli.flags.flag import Flag
from penstock.cli.installed_commands import installed_commands
from penstock.settings.without_effect import WITHOUT_EFFECT

SERVE = "penstock serve"

_WITHOUT_EFFECT = {row.flag: row.reason for row in WITHOUT_EFFECT}

_COMMANDS = """\
Usage: penstock COMMAND [options]

Commands:
  serve      Serve the models of a repository, or of files, as in `serve model.py:Double`,
             `serve resnet.onnx` and `serve hf://OWNER/NAME`; takes the options of `tritonserver`.
  check REPO Say what of a repository will load, and what to write where it will not; loads nothing.
  demo DIR   Write a repository of small models to try the server with.
  plan REPO  Tell what memory the models of a repository take, and which cards they fit on.
  import SOURCE DIR
             Write a model into a repository, with a configuration that loads.
  pull ADDRESS
             Fetch models from elsewhere, before they are served.
  list       List what was fetched.
  remove ADDRESS
             Remove what was fetched.
  keys ACTION
             Make and revoke the keys of callers in an access policy.
  sagemaker  Serve as an endpoint of SageMaker, whose environment variables say how; further
             options are those of `serve`.
  completion Print a script that completes all this in bash or zsh.

{installed}
  --version  Print the version.
  --help     Print this; after a command, its options.
"""

_MISSING = """\
Commands that ask a running server, such as top, perf and infer, are in the package penstock-client,
which is not installed: pip install penstock-client
"""

_ADDRESS = """
Commands ask the server of -u, or of the environment variable PENSTOCK_URL.
"""

_FILES = """ [REPOSITORY | [NAME=]FILE.py[:CLASS] | [NAME=]FILE | [NAME=]DIR ...]
  REPOSITORY
        As --model-repository: a directory of models, or an address such as s3://BUCKET/PATH.
  [NAME=]FILE.py[:CLASS]
        Serve one class of a Python file, beside the repository's models if one is given. CLASS may
        be left out where the file has one model; NAME is the class in snake case otherwise.
  [NAME=]FILE
        Serve a model of an engine by its file (.onnx, .xml, .tflite, .pt, .pt2, .plan, .gguf, .ubj,
        .txt of LightGBM) or its folder (SavedModel). FILE's name with .pbtxt in place of its ending
        is its configuration, if it is there; what it has to say and does not is printed.
  [NAME=]DIR, [NAME=]hf://OWNER/NAME[@REVISION]
        Serve a model in the layout of Hugging Face, or a folder of TensorRT-LLM."""


def commands_usage() -> str:
    """The help of `penstock`, with the commands of packages that are installed."""
    commands = installed_commands()
    if not commands:
        return _COMMANDS.format(installed=_MISSING)
    lines = [f"  {name:10} {command.summary}\n" for name, command in commands.items()]
    installed = "".join(["Commands that ask a running server:\n", *lines])
    return _COMMANDS.format(installed=installed) + _ADDRESS


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
