"""Splits a command line into options as GNU getopt_long does, of which `tritonserver` is made.

An option may be shortened as far as it stays unique; its value follows after `=` or as the next
argument, whatever that looks like; other arguments may stand anywhere; `--` ends the options.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple


class OptionError(Exception):
    """A word that is no option of this command, or lacks or should not have a value."""


class Option(NamedTuple):
    """One option as given; `name` is empty for an argument that belongs to no option."""

    name: str
    value: str


def options(arguments: Sequence[str], takes_value: Mapping[str, bool]) -> Iterator[Option]:
    """What was given, in order, arguments without an option last.

    `takes_value` lists the options. They are yielded as they are read, so that the first mistake
    is the one reported.
    """
    words = iter(arguments)
    others: list[str] = []
    for word in words:
        if word == "--":
            others += words
        elif word.startswith("--"):
            yield _option(word, words, takes_value)
        elif word.startswith("-") and word != "-":
            raise OptionError(f"invalid option -- '{word[1]}'")
        else:
            others.append(word)
    yield from (Option("", other) for other in others)


def _option(word: str, words: Iterator[str], takes_value: Mapping[str, bool]) -> Option:
    given, has_value, value = word[2:].partition("=")
    name = _full_name(word, given, takes_value)
    if not takes_value[name]:
        if has_value:
            raise OptionError(f"option '--{name}' doesn't allow an argument")
        return Option(name, "")
    if not has_value:
        following = next(words, None)
        if following is None:
            raise OptionError(f"option '--{name}' requires an argument")
        value = following
    return Option(name, value)


def _full_name(word: str, given: str, known: Mapping[str, bool]) -> str:
    if given in known:
        return given
    candidates = [name for name in known if name.startswith(given)]
    if not candidates:
        raise OptionError(f"unrecognized option '{word}'")
    if len(candidates) > 1:
        listed = " ".join(f"'--{name}'" for name in candidates)
        raise OptionError(f"option '{word}' is ambiguous; possibilities: {listed}")
    return candidates[0]
