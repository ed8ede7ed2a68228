"""Decoders of model processes' messages for tests whose headers are of no kind's type."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.msgpack import decode

from penstock.hosting.link.link import Decode

ANY_ANSWERS: Mapping[int, Decode] = dict.fromkeys(range(256), decode)
"""Tuples come out as lists."""
