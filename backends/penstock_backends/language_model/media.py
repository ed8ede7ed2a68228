"""Bounded fetching of media that requests name by URL: `http`, `https` and `data` only."""

from __future__ import annotations

import asyncio
import base64
import http.client
import ipaddress
import socket
import ssl
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from io import BytesIO
from typing import Any
from urllib.parse import SplitResult, unquote_to_bytes, urljoin, urlsplit

from penstock.backend import InvalidRequestError, ModelConfig

ALLOWED_HOSTS = "penstock.allowed_media_hosts"
"""Parameter of a model: hosts, separated by commas, that may have addresses that are not public."""

MOST_PIXELS = 100_000_000
"""Pixels of one image: as RGB these are 300 MB."""

MOST_PIXELS_TOGETHER = 400_000_000
"""Pixels of all images of one request."""

_REDIRECTIONS = 3
_MOVED = (301, 302, 303, 307, 308)
_CHUNK = 1 << 16
_AT_ONCE = 1 << 16
"""Characters of a data: URL that are decoded on the event loop."""
_PIECE = 1 << 18
"""Characters of Base64 that are decoded at a stretch: their decoder holds the GIL for 0.2 ms."""
_LONGEST_HEAD = 4096
"""Characters of a data: URL before its content."""
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
"""Addresses behind which translators reach IPv4 (RFC 6052, section 2.1)."""
_COMPATIBLE = ipaddress.IPv6Network("::/96")
"""The old form of IPv4 addresses in IPv6 (RFC 4291, section 2.5.5.1)."""
_THREADS = ThreadPoolExecutor(32, "media")
"""Threads of their own: slow servers must not keep others from the event loop's."""


@dataclass(frozen=True, slots=True)
class MediaLimits:
    """Limits of one fetch.

    `allowed_hosts` may have addresses that are not public. Where there are `only_hosts`, no other
    host is asked.
    """

    allowed_hosts: frozenset[str] = frozenset()
    only_hosts: frozenset[str] = frozenset()
    size: int = 32 << 20  # bytes
    seconds: float = 10.0


def media_limits(config: ModelConfig) -> MediaLimits:
    """The limits of a model."""
    hosts = (config.parameter(ALLOWED_HOSTS) or "").split(",")
    return MediaLimits(frozenset(host.strip().lower() for host in hosts if host.strip()))


class PixelBudget:
    """The pixels that the images of one request may have together. For several threads."""

    def __init__(self) -> None:
        self._left = MOST_PIXELS_TOGETHER
        self._lock = threading.Lock()

    def take(self, pixels: int, name: str) -> None:
        """Take those of one more image, of input `name`; raises `InvalidRequestError`."""
        with self._lock:
            self._left -= pixels
            if self._left < 0:
                raise _refusal(
                    name,
                    f"holds images of more than {MOST_PIXELS_TOGETHER} pixels, "
                    "with others together",
                )


async def fetch_media(url: str, name: str, limits: MediaLimits) -> bytes:
    """The content behind the URL that input `name` holds; raises `InvalidRequestError`.

    An address that is not public, such as that of a neighbour of this machine, is not connected
    to. Cancelling ends the connection.
    """
    if url[:5].lower() == "data:":
        if len(url) <= _AT_ONCE:
            return _data(url, name, limits)
        return await asyncio.to_thread(_data, url, name, limits)
    transfer = _Transfer(name, limits)
    work = asyncio.get_running_loop().run_in_executor(_THREADS, transfer.run, url)
    try:
        return await asyncio.wait_for(asyncio.shield(work), limits.seconds)
    except TimeoutError as error:
        raise _refusal(name, f"takes longer than {limits.seconds:g} s") from error
    finally:
        if not work.done():
            transfer.abandon()
            work.add_done_callback(lambda done: done.cancelled() or done.exception())


def fetch_media_here(url: str, name: str, limits: MediaLimits) -> bytes:
    """As `fetch_media`, on the thread of the caller, which it blocks."""
    if url[:5].lower() == "data:":
        return _data(url, name, limits)
    return _Transfer(name, limits).run(url)


def check_encoded_size(size: int, name: str, limits: MediaLimits) -> None:
    """Refuse, before anything is decoded, Base64 or a URL of `size` bytes that is too large."""
    if size > limits.size * 4 // 3 + _LONGEST_HEAD:
        raise _too_large(name, limits)


def decode_base64(text: bytes | str, name: str, limits: MediaLimits) -> bytes:
    """The content of input `name`; other threads have their turns while it is decoded.

    Raises `InvalidRequestError` for more than the limit, `ValueError` for what is not Base64.
    """
    check_encoded_size(len(text), name, limits)
    pieces = [text[at : at + _PIECE] for at in range(0, len(text), _PIECE)]
    decoded = [base64.b64decode(piece, validate=True) for piece in pieces]
    if any(len(one) < _PIECE // 4 * 3 for one in decoded[:-1]):
        raise ValueError("padding before the end")
    content = b"".join(decoded)
    if len(content) > limits.size:
        raise _too_large(name, limits)
    return content


def decode_image(content: bytes, name: str, budget: PixelBudget) -> Any:
    """The image as RGB, of any format that Pillow reads; raises `InvalidRequestError`.

    `name` is the input that it was in, `budget` that of its request. A file says how large it is
    before it is decoded. For threads: it takes a while.
    """
    try:
        image = import_module("PIL.Image").open(BytesIO(content))
        width, height = image.size
        if width * height <= MOST_PIXELS:
            budget.take(width * height, name)
            return image.convert("RGB")
    except InvalidRequestError:
        raise
    except ImportError as error:
        raise _refusal(name, f"cannot be decoded where the engine runs: {error}") from error
    except Exception as error:  # of decoders, of any kind
        raise _refusal(name, f"does not hold an image: {error}") from error
    raise _refusal(
        name,
        f"holds an image of {width} x {height} pixels; at most {MOST_PIXELS} are allowed",
    )


def _data(url: str, name: str, limits: MediaLimits) -> bytes:
    head, comma, text = url.partition(",")
    if not comma:
        raise _refusal(name, "is a data: URL without a comma")
    check_encoded_size(len(text), name, limits)
    if head.lower().endswith(";base64"):
        try:
            return decode_base64(text, name, limits)
        except ValueError as error:
            raise _refusal(name, f"is not Base64: {error}") from error
    content = unquote_to_bytes(text)
    if len(content) > limits.size:
        raise _too_large(name, limits)
    return content


@dataclass(slots=True)
class _Transfer:
    """One fetch, which runs on a thread; `abandon` ends it from another."""

    name: str
    limits: MediaLimits
    _end: float = field(init=False)
    _socket: socket.socket | None = None
    _abandoned: bool = False

    def __post_init__(self) -> None:
        self._end = time.monotonic() + self.limits.seconds

    def run(self, url: str) -> bytes:
        """Fetch, following a few redirections, each of which is checked again."""
        for _ in range(_REDIRECTIONS + 1):
            answer = self._ask(url)
            if isinstance(answer, bytes):
                return answer
            url = urljoin(url, answer)
        raise _refusal(self.name, "is redirected too often")

    def abandon(self) -> None:
        """Shut the connection down, so that the thread ends."""
        self._abandoned = True
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def _ask(self, url: str) -> bytes | str:
        """The content, or where it has moved to."""
        parts = _parts(url, self.name)
        connection = self._connect(parts)
        try:
            self._left()  # it may have been abandoned meanwhile
            path = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
            connection.request("GET", path, headers={"Accept": "*/*", "User-Agent": "penstock"})
            with connection.getresponse() as answer:
                if answer.status in _MOVED and (moved := answer.getheader("Location")):
                    return moved
                if answer.status != 200:
                    raise _refusal(self.name, f"is answered with status {answer.status}")
                return self._content(answer)
        except TimeoutError as error:
            raise self._too_slow() from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = str(error) or type(error).__name__
            raise _refusal(self.name, f"cannot be fetched: {reason}") from error
        finally:
            connection.close()
            self._close()

    def _content(self, answer: http.client.HTTPResponse) -> bytes:
        parts: list[bytes] = []
        size = 0
        while chunk := answer.read1(_CHUNK):
            size += len(chunk)
            if size > self.limits.size:
                raise _too_large(self.name, self.limits)
            parts.append(chunk)
            self._left()
        return b"".join(parts)

    def _connect(self, parts: SplitResult) -> http.client.HTTPConnection:
        """A connection to an address that has been checked: a name may have another next time."""
        host, secure = str(parts.hostname), parts.scheme == "https"
        only = self.limits.only_hosts
        if only and host.lower() not in only:
            raise _refusal(
                self.name, f"has the host '{host}', and only {', '.join(sorted(only))} may be asked"
            )
        port = parts.port or (443 if secure else 80)
        address = self._address(host, port)
        try:
            self._socket = socket.create_connection((address, port), timeout=self._left())
            if secure:
                context = ssl.create_default_context()
                self._socket = context.wrap_socket(self._socket, server_hostname=host)
        except OSError as error:
            self._close()
            raise _refusal(self.name, f"cannot be fetched: {error}") from error
        connection = http.client.HTTPConnection(host, port)
        connection.sock = self._socket
        return connection

    def _address(self, host: str, port: int) -> str:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise _refusal(self.name, f"has an unknown host '{host}'") from error
        addresses = [str(one[4][0]) for one in found]
        allowed = host.lower() in self.limits.allowed_hosts
        if not allowed and not all(_public(address) for address in addresses):
            raise _refusal(
                self.name,
                f"has the host '{host}', whose address is not public; the model's parameter "
                f"'{ALLOWED_HOSTS}' can allow it",
            )
        return addresses[0]

    def _close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket = None

    def _left(self) -> float:
        """Seconds that are left; refuses when there are none."""
        left = self._end - time.monotonic()
        if left <= 0 or self._abandoned:
            raise self._too_slow()
        return left

    def _too_slow(self) -> InvalidRequestError:
        return _refusal(self.name, f"takes longer than {self.limits.seconds:g} s")


def _parts(url: str, name: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises for a port that is not a number
    except ValueError as error:
        raise _refusal(name, f"is not a URL: {error}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise _refusal(name, "must hold http:, https: or data: URLs")
    if any(not character.isprintable() or character == " " for character in url):
        raise _refusal(name, "holds a URL with characters that must be encoded")
    return parts


def _public(address: str) -> bool:
    try:
        one = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    inner = _inner(one) if isinstance(one, ipaddress.IPv6Address) else None
    return (inner or one).is_global and not one.is_multicast


def _inner(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address that packets to this one are passed on to, if it holds one."""
    if address in _NAT64 or address in _COMPATIBLE:
        return ipaddress.IPv4Address(address.packed[-4:])
    return address.ipv4_mapped or address.sixtofour


def _refusal(name: str, complaint: str) -> InvalidRequestError:
    return InvalidRequestError(f"input '{name}' {complaint}")


def _too_large(name: str, limits: MediaLimits) -> InvalidRequestError:
    return _refusal(name, f"is larger than {limits.size} bytes")
