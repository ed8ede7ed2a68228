"""The command `penstock completion`: scripts that complete commands and options in shells."""

from __future__ import annotations

import shlex
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence

from penstock.cli import cache, check, demo, keys, model_import, plan
from penstock.cli.flags import FLAGS
from penstock.cli.installed_commands import installed_commands

_OWN = {
    "serve": "Serve the models of a repository.",
    "sagemaker": "Serve as an endpoint of SageMaker.",
    "check": "Say what of a repository will load.",
    "demo": "Write a repository of small models.",
    "import": "Write a model into a repository.",
    "pull": "Fetch models from an address.",
    "list": "List what was fetched.",
    "remove": "Remove what was fetched.",
    "keys": "Make and revoke keys of an access policy.",
    "plan": "Tell what memory models take.",
    "completion": "Print a script that completes commands in a shell.",
}

_BASH = """\
# Completion of `penstock` for bash; `source` it, or put it into ~/.bash_completion.
_penstock() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" command="${{COMP_WORDS[1]}}" options=
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W {commands} -- "$word"))
        return
    fi
    case "$command" in
{cases}
    esac
    case "$word" in
    -*) COMPREPLY=($(compgen -W "$options" -- "$word")) ;;
    *)
        COMPREPLY=($(compgen -f -- "$word"))
        case " {models} " in
        *" $command "*)
            [ "$COMP_CWORD" -eq 2 ] && COMPREPLY=($(compgen -W \\
                "$(timeout 2 penstock models --names --timeout=1 2>/dev/null)" -- "$word"))
            ;;
        esac
        ;;
    esac
}}
complete -o filenames -F _penstock penstock
"""

_ZSH = """\
#compdef penstock
# Completion of `penstock` for zsh; `source` it, or put it as _penstock into a folder of $fpath.
_penstock() {{
    local -a commands options
    commands=(
{described}
    )
    if (( CURRENT == 2 )); then
        _describe command commands
        return
    fi
    case $words[2] in
{cases}
    esac
    if [[ $PREFIX == -* ]]; then
        compadd -- $options
    elif (( CURRENT == 3 )) && [[ " {models} " == *" $words[2] "* ]]; then
        compadd -- ${{(f)"$(timeout 2 penstock models --names --timeout=1 2>/dev/null)"}}
    else
        _files
    fi
}}
compdef _penstock penstock
"""


def parser() -> ArgumentParser:
    """The parser of the command line."""
    made = ArgumentParser("penstock completion", description=_OWN["completion"])
    made.add_argument("shell", choices=["bash", "zsh"])
    return made


def run(arguments: Sequence[str]) -> int:
    """Print the script; the exit status."""
    chosen = parser().parse_args(arguments)
    print(bash_script() if chosen.shell == "bash" else zsh_script(), end="")
    return 0


def options_of_commands() -> Mapping[str, Sequence[str]]:
    """Every command with its long options."""
    parsers = {"check": check.parser(), "plan": plan.parser(), "demo": demo.parser()}
    parsers |= {"import": model_import.parser(), "pull": cache.pull_parser()}
    parsers |= {"list": cache.list_parser(), "remove": cache.remove_parser()}
    parsers |= {"keys": keys.parser(), "completion": parser()}
    parsers |= {name: command.parser() for name, command in installed_commands().items()}
    found = {name: _options(each) for name, each in parsers.items()}
    serving = ["--help", *(f"--{name}=" for name in FLAGS)]
    return {"serve": serving, "sagemaker": serving, **found}


def bash_script() -> str:
    """The script for bash."""
    options = options_of_commands()
    cases = "\n".join(
        f"    {name}) options={shlex.quote(' '.join(each))} ;;" for name, each in options.items()
    )
    return _BASH.format(
        commands=shlex.quote(" ".join(options)), cases=cases, models=" ".join(_of_models())
    )


def zsh_script() -> str:
    """The script for zsh."""
    summaries = {name: command.summary for name, command in installed_commands().items()}
    told = {**_OWN, **summaries}
    cases = "\n".join(
        f"    {name}) options=({' '.join(map(shlex.quote, each))}) ;;"
        for name, each in options_of_commands().items()
    )
    described = "\n".join(f"        {shlex.quote(f'{n}:{text}')}" for n, text in told.items())
    return _ZSH.format(described=described, cases=cases, models=" ".join(_of_models()))


def _options(parser: ArgumentParser) -> list[str]:
    return sorted(
        text for action in parser._actions for text in action.option_strings if text[:2] == "--"
    )


def _of_models() -> list[str]:
    """The commands whose first argument is a model."""
    return [name for name, command in installed_commands().items() if command.of_model]
