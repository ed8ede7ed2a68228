"""An object store that speaks as much of S3 as is read here, and fails where a test says so.

Google's listings are S3's; Azure's are told by their parameter `comp`. Neither looks at signatures.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.sax.saxutils import escape

from harness.http_threads import Quiet, QuietServer, answering

LONG_AGO = 1_700_000_000.0
"""When objects were changed that nobody is uploading any more."""

_PAGE = 1000


@dataclass(slots=True)
class ObjectStore:
    """The objects of one bucket, what was asked of it, and how it fails.

    `cut_after` breaks so many answers off, each after its number of bytes; `refusals` are the
    answers to the next requests: a status and the code of an error. `key` is the access key that
    is admitted; empty for all.
    """

    address: str = ""
    objects: dict[str, tuple[bytes, float]] = field(default_factory=dict)
    gets: Counter[str] = field(default_factory=Counter)
    sent: Counter[str] = field(default_factory=Counter)
    lists: int = 0
    cut_after: list[int] = field(default_factory=list)
    refusals: list[tuple[int, str]] = field(default_factory=list)
    key: str = ""
    resume: threading.Event = field(default_factory=threading.Event)
    on_list: Callable[[], Callable[[], object] | None] = lambda: None
    """What to do before a listing is answered, asked at each."""
    hold_after: int | None = None
    """Bytes after which answers wait for `resume`."""
    surplus: int = 0
    """Bytes that answers have more than they were asked for; fewer, if it is negative."""
    _counting: threading.Lock = field(default_factory=threading.Lock)

    def count_sent(self, key: str, size: int) -> None:
        """Count bytes of an object, on any thread."""
        with self._counting:
            self.sent[key] += size

    @property
    def url(self) -> str:
        """The address of the server, which Google's and Azure's variables name."""
        return self.address.removeprefix("s3://").rpartition("/")[0]

    def put(self, key: str, content: bytes | str = b"", changed: float = LONG_AGO) -> None:
        """Store an object."""
        self.objects[key] = (content.encode() if isinstance(content, str) else content, changed)

    def put_now(self, key: str, content: bytes | str = b"") -> None:
        """Store an object that is new."""
        self.put(key, content, time.time())


@contextmanager
def object_store() -> Iterator[ObjectStore]:
    """A store with the bucket `bucket`, at `address`, an address of a repository."""
    store = ObjectStore()
    store.resume.set()
    handler = type("Handler", (_Handler,), {"store": store})
    with answering(QuietServer(("127.0.0.1", 0), handler)) as address:
        store.address = f"s3://http://{address}/bucket"
        try:
            yield store
        finally:
            store.resume.set()


class _Handler(Quiet, BaseHTTPRequestHandler):
    store: ObjectStore
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        store, parts = self.store, urlsplit(self.path)
        _, bucket, *key = unquote(parts.path).split("/", 2)
        if store.refusals:
            self._refuse(*store.refusals.pop(0))
        elif bucket != "bucket":
            self._refuse(404, "NoSuchBucket")
        elif store.key and f"Credential={store.key}/" not in self._signature(parts.query):
            self._refuse(403, "InvalidAccessKeyId")
        elif key and key[0]:
            self._object(key[0])
        else:
            store.lists += 1
            if (work := store.on_list()) is not None:
                work()
            self._list({name: values[0] for name, values in parse_qs(parts.query).items()})

    def _signature(self, query: str) -> str:
        """The signature's key, from the header or the address."""
        in_address = parse_qs(query).get("X-Amz-Credential", [""])[0]
        return self.headers.get("Authorization") or f"Credential={in_address}"

    def _refuse(self, status: int, code: str) -> None:
        message = f"it says {code}\nRequestId:7"  # in lines, as Azure has them
        body = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
        self._answer(status, body.encode())

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _object(self, key: str) -> None:
        store = self.store
        if key not in store.objects:
            return self._refuse(404, "NoSuchKey")
        content, changed = store.objects[key]
        e_tag = _e_tag(content)
        if self.headers.get("If-Match", e_tag) != e_tag:
            return self._refuse(412, "PreconditionFailed")
        begin, end = 0, len(content)
        if asked := self.headers.get("Range"):
            first, _, last = asked.removeprefix("bytes=").partition("-")
            begin, end = int(first), int(last or end - 1) + 1
        asked_for = content[begin:end]
        if store.surplus:
            asked_for = (asked_for + bytes(max(store.surplus, 0)))[: end - begin + store.surplus]
        store.gets[key] += 1
        self.send_response(206 if asked else 200)
        self.send_header("ETag", e_tag)
        self.send_header("Last-Modified", formatdate(changed, usegmt=True))
        self.send_header("Content-Length", str(len(asked_for)))
        if asked:
            self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{len(content)}")
        self.end_headers()
        self._send(key, asked_for)
        return None

    def _send(self, key: str, content: bytes) -> None:
        store = self.store
        cut = store.cut_after.pop(0) if store.cut_after else None
        hold = store.hold_after  # which may be changed while this waits
        if hold is not None and len(content) > hold:
            self.wfile.write(content[:hold])
            self.wfile.flush()
            store.count_sent(key, hold)
            store.resume.wait()
            content = content[hold:]
        self.wfile.write(content[:cut])
        store.count_sent(key, len(content[:cut]))
        if cut is not None:
            self.wfile.flush()
            self.close_connection = True

    def _list(self, query: dict[str, str]) -> None:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        azure = query.get("comp") == "list"
        after = query.get("marker" if azure else "continuation-token", "")
        encode = quote if query.get("encoding-type") == "url" else escape
        entry = _azure_entry if azure else _entry
        keys = sorted(key for key in self.store.objects if key.startswith(prefix) and key > after)
        entries, prefixes = [], dict[str, None]()
        for key in keys[:_PAGE]:
            rest = key.removeprefix(prefix)
            if delimiter and delimiter in rest:
                prefixes[prefix + rest.partition(delimiter)[0] + delimiter] = None
            else:
                entries.append(entry(encode(key), *self.store.objects[key]))
        more = len(keys) > _PAGE
        last = escape(keys[:_PAGE][-1]) if more else ""
        common = "".join((_AZURE_PREFIX if azure else _PREFIX).format(encode(p)) for p in prefixes)
        page = (_AZURE_PAGE if azure else _S3_PAGE).format(
            entries="".join(entries), common=common, more=str(more).lower(), last=last
        )
        self._answer(200, page.encode(), {"Content-Type": "application/xml"})


_S3_PAGE = (
    "<ListBucketResult><IsTruncated>{more}</IsTruncated>"
    "<NextContinuationToken>{last}</NextContinuationToken>{entries}{common}</ListBucketResult>"
)
_PREFIX = "<CommonPrefixes><Prefix>{}</Prefix></CommonPrefixes>"
_AZURE_PAGE = (
    "<EnumerationResults><Blobs>{common}{entries}</Blobs><NextMarker>{last}</NextMarker>"
    "</EnumerationResults>"
)
_AZURE_PREFIX = "<BlobPrefix><Name>{}</Name></BlobPrefix>"


def _entry(key: str, content: bytes, changed: float) -> str:
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(changed))
    return (
        f"<Contents><Key>{key}</Key><LastModified>{stamp}</LastModified>"
        f"<ETag>{escape(_e_tag(content))}</ETag><Size>{len(content)}</Size></Contents>"
    )


def _azure_entry(key: str, content: bytes, changed: float) -> str:
    return (
        f"<Blob><Name>{key}</Name><Properties>"
        f"<Last-Modified>{formatdate(changed, usegmt=True)}</Last-Modified>"
        f"<Etag>{escape(_e_tag(content))}</Etag><Content-Length>{len(content)}</Content-Length>"
        "<Content-Type>x/y</Content-Type></Properties></Blob>"
    )


def _e_tag(content: bytes) -> str:
    return f'"{hashlib.md5(content, usedforsecurity=False).hexdigest()}"'
