"""An option parser with the rules of GNU getopt_long, which `tritonserver` uses.

An option may be abbreviated while it stays unique; its value follows `=` or is the next argument,
even if that begins with a dash; positional arguments may stand anywhere; `--` ends the options.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from penstock.core.nearest_name import nearest_name


class OptionError(Exception):
    """An unknown or ambiguous option, or one with a missing or needless value."""


class Option(NamedTuple):
    """One option as given; `name` is empty for a positional argument."""

    name: str
    value: str


def options(
    arguments: Sequence[str],
    takes_value: Mapping[str, bool],
    foreign: Mapping[str, str] | None = None,
) -> Iterator[Option]:
    """The options in the order given, then the positional arguments.

    `takes_value` maps each known option to whether it has a value, `foreign` those of another
    program to what to do instead. Options are yielded as they are parsed, so the first mistake is
    the one reported.
    """
    words = iter(arguments)
    others: list[str] = []
    for word in words:
        given = word[2:].partition("=")[0]
        if word == "--":
            others += words
        elif word.startswith("--") and foreign is not None and given in foreign:
            raise OptionError(f"unrecognized option '{word}'\n{foreign[given]}")
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
        nearest = nearest_name(given, known)
        hint = f"\nDid you mean '--{nearest}'?" if nearest else ""
        raise OptionError(f"unrecognized option '{word}'{hint}")
    if len(candidates) > 1:
        listed = " ".join(f"'--{name}'" for name in candidates)
        raise OptionError(f"option '{word}' is ambiguous; possibilities: {listed}")
    return candidates[0]
