"""The command `penstock keys`: new keys of callers, and revoked ones, in an access policy."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from penstock.core.errors import ConfigError

_SHOWN = 12
"""Digits of a hash that are shown: enough to say which key is meant."""


def parser() -> ArgumentParser:
    """The parser of the command line."""
    made = ArgumentParser(
        "penstock keys",
        description="Keys of the callers in an access policy, which holds nothing but hashes."
        " `new NAME` prints a new key, once; `list` shows the hashes; `revoke NAME [HASH]` takes a"
        " key away: the only one, or that whose hash begins so.",
    )
    made.add_argument("action", choices=["new", "list", "revoke"])
    made.add_argument("name", metavar="NAME", nargs="?", default="", help="the caller")
    made.add_argument("hash", metavar="HASH", nargs="?", default="", help="of the key to revoke")
    made.add_argument("--access-policy", required=True, metavar="FILE", help="as of `serve`")
    return made


def run(arguments: Sequence[str]) -> int:
    """Do what is asked; the exit status."""
    made = parser()
    chosen = made.parse_args(arguments)
    if bool(chosen.name) == (chosen.action == "list"):
        made.error("'new' and 'revoke' need a NAME" if not chosen.name else "'list' takes no NAME")
    if chosen.hash and chosen.action == "new":
        made.error("'new' takes no HASH")
    actions: Mapping[str, Callable[[Path, Namespace], None]] = {
        "new": _new,
        "list": _list,
        "revoke": _revoke,
    }
    try:
        actions[chosen.action](Path(chosen.access_policy), chosen)
    except ConfigError as error:
        print(f"penstock: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


def _new(file: Path, chosen: Namespace) -> None:
    from penstock.access.key_file import new_key
    from penstock.access.policy_file import read_policy

    key = new_key(file, chosen.name)
    print(key, flush=True)
    _tell(f"this is the only time that the key of '{chosen.name}' is shown")
    try:
        read_policy(file)
    except ConfigError as error:  # of a file that was just made: it has no rules yet
        _tell(f"a server would refuse the file as it is: {error}")


def _list(file: Path, _: Namespace) -> None:
    from penstock.access.key_file import read_keys

    callers = read_keys(file)
    width = max(map(len, callers), default=0)
    for name, hashes in callers.items():
        shown = " ".join(each[:_SHOWN] for each in hashes)
        print(f"{name:{width}}  {shown}".rstrip())


def _revoke(file: Path, chosen: Namespace) -> None:
    from penstock.access.key_file import revoke_key

    hashed = revoke_key(file, chosen.name, chosen.hash)
    _tell(f"the key {hashed[:_SHOWN]} of '{chosen.name}' is revoked")


def _tell(text: str) -> None:
    print(f"penstock: {text}", file=sys.stderr, flush=True)
