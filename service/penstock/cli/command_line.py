"""The command line: `penstock serve`, `check`, `plan`, `demo` and further commands, those of other
packages, such as `perf`, and `tritonserver`, which only serves.

Heavy modules are imported by the command that needs them.
"""

from __future__ import annotations

import atexit
import errno
import gc
import os
import select
import sys
from collections.abc import Callable, Collection, Sequence
from typing import TextIO

from penstock import __version__
from penstock.cli import INTERRUPTED, usage
from penstock.cli.arguments import HelpRequested, UsageError, parse_arguments
from penstock.cli.getopt import OptionError
from penstock.cli.installed_commands import OF_CLIENT, installed_command, where_it_is
from penstock.cli.unsupported import refuse_unsupported
from penstock.core.nearest_name import nearest_name
from penstock.settings.rules import SettingsError

_FULL = (errno.ENOSPC, errno.EDQUOT)
"""The errors of a full disk."""
_UNWRITTEN = 2
"""The exit status of one; that of `check` and `plan` for no result."""
_UNREAD = 141
"""The exit status after SIGPIPE, as shells have it."""


def penstock(arguments: Sequence[str] | None = None) -> int:
    """The `penstock` command; returns its exit status."""
    if arguments is None:
        return _ended(lambda: penstock(sys.argv[1:]))
    _open_closed_streams()
    commands: dict[str, Callable[[Sequence[str]], int]] = {
        "serve": lambda rest: _serve(usage.SERVE, rest),
        "check": _check,
        "demo": _demo,
        "import": _import,
        "pull": _pull,
        "list": _list,
        "remove": _remove,
        "plan": _plan,
        "keys": _keys,
        "sagemaker": _sagemaker,
        "completion": _completion,
    }
    command, *rest = arguments or ["--help"]
    if command in ("--version", "-V"):
        print(f"penstock {__version__}")
        return 0
    if command in ("--help", "-h", "help"):
        print(usage.commands_usage(), end="")
        return 0
    if command in commands:
        return commands[command](rest)
    if (installed := installed_command(command)) is not None:
        return installed.run(rest)
    if command in OF_CLIENT:
        _print_error(where_it_is(command))
        return 1
    _refuse(command, {*commands, *OF_CLIENT})
    return 1


def _refuse(command: str, known: Collection[str]) -> None:
    # Who comes from `tritonserver` names no command.
    meant = f"{usage.SERVE} {command}" if command.startswith("-") else nearest_name(command, known)
    hint = f"\nDid you mean '{meant}'?" if meant else ""
    _print_error(f"{usage.commands_usage()}\npenstock: unknown command '{command}'{hint}")


def as_tritonserver(arguments: Sequence[str] | None = None) -> int:
    """`penstock serve` under the name that existing start scripts use."""
    if arguments is None:
        return _ended(lambda: as_tritonserver(sys.argv[1:]))
    _open_closed_streams()
    return _serve("tritonserver", arguments)


def _ended(work: Callable[[], int]) -> int:
    """The exit status of this process, which ends here where object stores were asked.

    Threads of the library that asks them may want the interpreter just then: one that is being
    finalized would end them, which aborts the process.
    """
    try:
        status = _printed(work)
    except KeyboardInterrupt:
        status = INTERRUPTED
    except BrokenPipeError:
        if _is_open(sys.stdout):  # another pipe
            raise
        status = _unheard(_UNREAD)
    except OSError as error:
        if error.errno not in _FULL:
            raise
        _print_error(f"penstock: the output cannot be written: {error.strerror}")
        status = _unheard(_UNWRITTEN)
    if "obstore" in sys.modules:
        from penstock.telemetry.console import end_process

        atexit._run_exitfuncs()
        end_process(status)
    return status


def _printed(work: Callable[[], int]) -> int:
    try:
        return work()
    finally:
        sys.stdout.flush()


def _unheard(status: int) -> int:
    """The exit status, where nothing more can be printed."""
    from penstock.telemetry.console import discard

    discard(sys.stdout)
    return status


def _is_open(stream: TextIO) -> bool:
    """Whether somebody reads a stream."""
    poll = select.poll()
    poll.register(stream, 0)
    return not any(event & select.POLLERR for _, event in poll.poll(0))


def _serve(program: str, arguments: Sequence[str]) -> int:
    words = ["--help"] if list(arguments) == ["-h"] else arguments
    takes_files = program == usage.SERVE
    try:
        settings = parse_arguments(words, os.environ, _print_error, takes_files)
        refuse_unsupported(settings)
    except HelpRequested:
        print(usage.serve_usage(program), end="")
        return 0
    except (OptionError, UsageError, SettingsError) as error:
        _print_error(f"Usage: {program} [options]; {program} --help lists them.")
        _print_error(f"{program}: {error}" if isinstance(error, OptionError) else str(error))
        return 1
    # What is imported stays: looking for garbage in it would be a tenth of the time to a start.
    gc.disable()
    from penstock.app import run

    gc.freeze()
    gc.enable()
    return run(settings, as_triton=not takes_files)


def _demo(arguments: Sequence[str]) -> int:
    from penstock.cli import demo

    return demo.run(arguments)


def _check(arguments: Sequence[str]) -> int:
    from penstock.cli import check

    return check.run(arguments)


def _import(arguments: Sequence[str]) -> int:
    from penstock.cli import model_import

    return model_import.run(arguments)


def _pull(arguments: Sequence[str]) -> int:
    from penstock.cli import cache

    return cache.pull(arguments)


def _list(arguments: Sequence[str]) -> int:
    from penstock.cli import cache

    return cache.listed(arguments)


def _remove(arguments: Sequence[str]) -> int:
    from penstock.cli import cache

    return cache.remove(arguments)


def _plan(arguments: Sequence[str]) -> int:
    from penstock.cli import plan

    return plan.run(arguments)


def _keys(arguments: Sequence[str]) -> int:
    from penstock.cli import keys

    return keys.run(arguments)


def _completion(arguments: Sequence[str]) -> int:
    from penstock.cli import completion

    return completion.run(arguments)


def _sagemaker(arguments: Sequence[str]) -> int:
    from penstock.cli import sagemaker
    from penstock.models.config.gpus import visible_gpus

    try:
        options, model = sagemaker.start(os.environ, lambda: len(visible_gpus()))
    except (sagemaker.SagemakerError, OSError) as error:
        _print_error(str(error))
        return 1
    if model:
        os.environ[sagemaker.MODEL_VARIABLE] = model  # which the endpoint reads
    return _serve(usage.SERVE, [*options, *arguments])


def _open_closed_streams() -> None:
    """Open streams that the starter has closed; else the first sockets would get their numbers."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))


def _print_error(message: str) -> None:
    print(message, file=sys.stderr, flush=True)
