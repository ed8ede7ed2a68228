"""The engine's notation of grammars: literals, and characters in them."""

from __future__ import annotations

from penstock_backends.language_model import refuse
from penstock_backends.language_model.constraints import NAME


def quoted(text: str) -> str:
    """A literal of the engine's notation."""
    if any(0xD800 <= ord(character) < 0xE000 for character in text):
        refuse(NAME, "holds half of a surrogate pair")
    return '"' + "".join(in_class(ord(character)) for character in text) + '"'


def in_class(code: int) -> str:
    """A character of the engine's notation, in a literal or a class."""
    return chr(code) if chr(code).isalnum() and code < 128 else f"\\U{code:08x}"
