"""Runs a command of a client: errors become clear words and an exit status."""

from __future__ import annotations

import asyncio
import os
import sys
from argparse import ArgumentTypeError, Namespace
from collections.abc import Awaitable, Callable

from penstock.core.nearest_name import suggestion
from penstock_client.client import (
    Client,
    ClientError,
    ConnectionLostError,
    DeadlineExceededError,
    InvalidArgumentError,
    NoServerError,
    NotFoundError,
)
from penstock_client.commands.connection import open_client

FAILED = 1
"""The server refused the request, or failed."""
WRONG_USAGE = 2
NO_SERVER = 3
"""No server answered, or it went away before its answer ended."""
TIMED_OUT = 4
INTERRUPTED = 130
PIPE_CLOSED = 141

Command = Callable[[Client, Namespace], Awaitable[None]]


def run_command(name: str, command: Command, options: Namespace) -> int:
    """Run a command on a new client; Ctrl-C cancels its requests at the server."""
    try:
        asyncio.run(_with_client(command, options))
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader has enough. Nothing may be written any more, at the exit neither.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except ClientError as error:
        return _failed(name, error)
    except UnicodeError as error:
        print_error(name, f"only text in UTF-8 can be sent: {error}")
        return WRONG_USAGE
    except (OSError, ValueError, ArgumentTypeError) as error:
        print_error(name, str(error))
        return WRONG_USAGE
    return 0


async def _with_client(command: Command, options: Namespace) -> None:
    async with open_client(options) as client:
        try:
            await command(client, options)
        except (NotFoundError, InvalidArgumentError) as error:
            if model := getattr(options, "model", ""):
                error.message += await _other_models(client, model)
            raise


async def _other_models(client: Client, model: str) -> str:
    """A sentence with the server's models, if `model` is not one of them."""
    try:
        names = sorted({each.name for each in await client.models(timeout=2.0)})
    except ClientError:
        return ""
    if model in names:
        return ""
    return f"\nThe server has: {', '.join(names) or 'no models'}{suggestion(model, names)}"


def _failed(name: str, error: ClientError) -> int:
    print_error(name, error.message)
    if isinstance(error, NoServerError | ConnectionLostError):
        return NO_SERVER
    if isinstance(error, DeadlineExceededError):
        return TIMED_OUT
    if isinstance(error, InvalidArgumentError) and not error.address:
        return WRONG_USAGE  # found out here, by the model's metadata
    return FAILED


def print_error(name: str, message: str) -> None:
    """Print what went wrong, behind what has been printed."""
    sys.stdout.flush()
    print(f"penstock {name}: {message}", file=sys.stderr, flush=True)
