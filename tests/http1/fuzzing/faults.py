"""Requests with one fault each, for which RFC 9112 or 9110 asks a server to refuse them."""

from __future__ import annotations


def _head(*lines: bytes) -> bytes:
    return b"\r\n".join((b"POST /now/0 HTTP/1.1", *lines, b"", b""))


def _chunks(data: bytes) -> bytes:
    return _head(b"host: x", b"transfer-encoding: chunked") + data


_SMUGGLED = b"GET /smuggled HTTP/1.1\r\nhost: x\r\n\r\n"

FAULTS: dict[str, bytes] = {
    # -- which body is it? -----------------------------------------------------------------------
    "length and chunks": _head(b"host: x", b"content-length: 5", b"transfer-encoding: chunked")
    + b"0\r\n\r\n",
    "chunks and length": _head(b"host: x", b"transfer-encoding: chunked", b"content-length: 5")
    + b"0\r\n\r\n",
    "two lengths": _head(b"host: x", b"content-length: 0", b"content-length: 35") + _SMUGGLED,
    "list of lengths": _head(b"host: x", b"content-length: 0, 35") + _SMUGGLED,
    "signed length": _head(b"host: x", b"content-length: +35") + _SMUGGLED,
    "negative length": _head(b"host: x", b"content-length: -1"),
    "hexadecimal length": _head(b"host: x", b"content-length: 0x23") + _SMUGGLED,
    "length with a space": _head(b"host: x", b"content-length: 3 5") + _SMUGGLED,
    "length that overflows": _head(b"host: x", b"content-length: 18446744073709551651") + _SMUGGLED,
    "no length": _head(b"host: x", b"content-length:") + _SMUGGLED,
    "chunked, but not last": _head(b"host: x", b"transfer-encoding: chunked, gzip") + b"0\r\n\r\n",
    "coding before chunked": _head(b"host: x", b"transfer-encoding: gzip, chunked") + b"0\r\n\r\n",
    "coding before chunked, in a field of its own": _head(
        b"host: x", b"transfer-encoding: gzip", b"transfer-encoding: chunked"
    )
    + b"0\r\n\r\n",
    "empty coding": _head(b"host: x", b"transfer-encoding: , chunked") + b"0\r\n\r\n",
    "chunks in HTTP/1.0": b"POST /now/0 HTTP/1.0\r\nhost: x\r\nconnection: keep-alive\r\n"
    b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "unknown coding": _head(b"host: x", b"transfer-encoding: xchunked") + b"0\r\n\r\n",
    "coding in pieces": _head(b"host: x", b"transfer-encoding: chunk\x0bed") + b"0\r\n\r\n",
    "identity behind chunked": _head(
        b"host: x", b"transfer-encoding: chunked", b"transfer-encoding: identity"
    )
    + b"0\r\n\r\n",
    # -- fields ----------------------------------------------------------------------------------
    "two hosts": _head(b"host: x", b"host: y", b"content-length: 0"),
    "no host": _head(b"content-length: 0"),
    "folded field": _head(b"host: x", b"x-a: b", b" content-length: 35", b"content-length: 0"),
    "folded first field": _head(b" host: x", b"content-length: 0"),
    "space before colon": _head(b"host: x", b"content-length : 35") + _SMUGGLED,
    "space in name": _head(b"host: x", b"content length: 35", b"content-length: 0"),
    "no colon": _head(b"host: x", b"content-length", b"content-length: 0"),
    "no name": _head(b"host: x", b": 35", b"content-length: 0"),
    "zero byte in value": _head(b"host: x", b"x-a: a\x00b", b"content-length: 0"),
    "zero byte in name": _head(b"host: x", b"x\x00a: b", b"content-length: 0"),
    "CR in value": _head(b"host: x", b"x-a: a\rcontent-length: 35", b"content-length: 0"),
    "CR at the end of a value": _head(b"host: x", b"x-a: a\r", b"content-length: 0"),
    "control byte in value": _head(b"host: x", b"x-a: a\x01b", b"content-length: 0"),
    "bare LF": b"POST /now/0 HTTP/1.1\nhost: x\ncontent-length: 0\n\n",
    "one bare LF": _head(b"host: x", b"x-a: b\nx-b: c", b"content-length: 0"),
    "name with other letters": _head(b"host: x", b"x-\xc3\xa9: b", b"content-length: 0"),
    # -- request lines ---------------------------------------------------------------------------
    "version of two digits": b"POST /now/0 HTTP/1.10\r\nhost: x\r\n\r\n",
    "version 2": b"POST /now/0 HTTP/2.0\r\nhost: x\r\n\r\n",
    "version 9.9": b"POST /now/0 HTTP/9.9\r\nhost: x\r\n\r\n",
    "version in small letters": b"POST /now/0 http/1.1\r\nhost: x\r\n\r\n",
    "no version": b"POST /now/0\r\nhost: x\r\n\r\n",
    "space in target": b"POST /now/0 /now/1 HTTP/1.1\r\nhost: x\r\n\r\n",
    "zero byte in target": b"POST /now/\x00 HTTP/1.1\r\nhost: x\r\n\r\n",
    "CR in target": b"POST /now/\r HTTP/1.1\r\nhost: x\r\n\r\n",
    "control byte in target": b"POST /now/\x01 HTTP/1.1\r\nhost: x\r\n\r\n",
    "fragment of a whole URI": b"POST http://x/now/0#1 HTTP/1.1\r\nhost: x\r\n\r\n",
    "fragment of a path": b"POST /now/0#1 HTTP/1.1\r\nhost: x\r\n\r\n",
    "no target": b"POST HTTP/1.1\r\nhost: x\r\n\r\n",
    "target without a slash": b"POST now/0 HTTP/1.1\r\nhost: x\r\n\r\n",
    "unknown method": b"P@ST /now/0 HTTP/1.1\r\nhost: x\r\n\r\n",
    "what TLS says first": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    "what HTTP/2 says first": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    # -- chunks ----------------------------------------------------------------------------------
    "chunk size that is none": _chunks(b"z\r\na\r\n0\r\n\r\n"),
    "negative chunk size": _chunks(b"-1\r\na\r\n0\r\n\r\n"),
    "signed chunk size": _chunks(b"+1\r\na\r\n0\r\n\r\n"),
    "chunk size with 0x": _chunks(b"0x1\r\na\r\n0\r\n\r\n"),
    "chunk size that overflows": _chunks(b"10000000000000001\r\na\r\n0\r\n\r\n"),
    "no chunk size": _chunks(b"\r\na\r\n0\r\n\r\n"),
    "space before chunk size": _chunks(b" 1\r\na\r\n0\r\n\r\n"),
    "chunk longer than its size": _chunks(b"1\r\nab\r\n0\r\n\r\n"),
    "chunk without its end": _chunks(b"1\r\na0\r\n\r\n"),
    "bare LF behind a chunk size": _chunks(b"1\na\r\n0\r\n\r\n"),
    "bare LF behind a chunk": _chunks(b"1\r\na\n0\r\n\r\n"),
    "bare LF in an extension": _chunks(b"1;a\nb\r\na\r\n0\r\n\r\n"),
    "bare CR in an extension": _chunks(b"1;a\rb\r\na\r\n0\r\n\r\n"),
    "zero byte in an extension": _chunks(b"1;a\x00\r\na\r\n0\r\n\r\n"),
    "trailer without a colon": _chunks(b"0\r\nx\r\n\r\n"),
    "folded trailer": _chunks(b"0\r\nx: a\r\n b\r\n\r\n"),
    "bare LF in trailers": _chunks(b"0\r\nx: a\n\r\n"),
}
"""Bytes that must be refused, by what is wrong with them, wherever a request may begin."""
