"""The Huffman code of HPACK (RFC 7541 section 5.2 and appendix B), read byte by byte."""

from __future__ import annotations

from penstock.http2.errors import ErrorCode, ProtocolError

_LENGTHS = bytes.fromhex(
    "0d171c1c1c1c1c1c1c181e1c1c1e1c1c1c1c1c1c1c1c1e1c1c1c1c1c1c1c1c1c060a0a0c0d06080b0a0a08"
    "0b080606060505050606060606060607080f060c0a0d060707070707070707070707070707070707070707"
    "07070807080d130d0e060f05060506050606060507070606060506070605050607070707070f0b0e0d1c14"
    "16141416161617161717171717181718181617181717171715161716171718161514161617171517161618"
    "15161717151516151716171714161616171616171a1a1413161716191a1a1a1b1b1a181913151a1b1b1a1b"
    "1815151a1a1c1b1b1b14181415161515171616191918181a171a1b1a1a1b1b1b1b1b1c1b1b1b1b1b1a1e"
)
"""Bits in the code of each symbol; the codes count up by length, then by symbol."""
_EOS = 256
_ROOT = 1
_COMPLETE = frozenset((1 << bits) - 1 for bits in range(1, 9))
"""States that a string may end in: up to seven bits of padding, all ones."""


def decode(data: bytes) -> bytes:
    """The string behind a Huffman code."""
    state = _ROOT
    decoded = bytearray()
    for byte in data:
        state, symbols = _STEPS[state << 8 | byte]
        decoded += symbols
    if state not in _COMPLETE:
        raise ProtocolError(ErrorCode.COMPRESSION_ERROR, "Huffman code with a wrong end")
    return bytes(decoded)


class _Steps(dict[int, tuple[int, bytes]]):
    """By state and byte: the state after that byte, and the symbols that it completes.

    A state is the bits read so far of a symbol, behind a leading one. What a step does is found
    out when it is first taken; there are at most 65,536.
    """

    def __init__(self) -> None:
        super().__init__()
        self._symbols: dict[int, int] = {}
        code = length = 0
        for symbol in sorted(range(len(_LENGTHS)), key=lambda symbol: _LENGTHS[symbol]):
            code <<= _LENGTHS[symbol] - length
            length = _LENGTHS[symbol]
            self._symbols[1 << length | code] = symbol
            code += 1

    def __missing__(self, key: int) -> tuple[int, bytes]:
        state, byte = key >> 8, key & 0xFF
        symbols = bytearray()
        for bit in range(7, -1, -1):
            state = state << 1 | byte >> bit & 1
            symbol = self._symbols.get(state)
            if symbol == _EOS:
                raise ProtocolError(ErrorCode.COMPRESSION_ERROR, "Huffman code with an end symbol")
            if symbol is not None:
                symbols.append(symbol)
                state = _ROOT
        self[key] = state, bytes(symbols)
        return self[key]


_STEPS = _Steps()
