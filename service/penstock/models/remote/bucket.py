"""`Bucket`: lists and reads the objects of a repository in an object store, through `obstore`."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from penstock.core.errors import InferenceError, UnsupportedError
from penstock.models.remote.address import BucketAddress
from penstock.models.remote.credentials import Credentials, Options
from penstock.models.remote.store_thread import StoppedError, StoreThread

if TYPE_CHECKING:
    from obstore.store import ObjectStore

    from penstock.models.remote.listed_page import ListedKey
    from penstock.models.remote.relayed_listing import RelayedListing
    from penstock.models.remote.signed_listing import SignedListing

T = TypeVar("T")

logger = logging.getLogger(__name__)

_RETRIES = 5
"""Of a request that is throttled or fails, with longer and longer waits: 6 s in all."""
_RETRY_SECONDS = 30
_THROTTLED = (2, 4, 8)
"""Seconds after which a store is asked anew that still throttles."""
_CONNECT_SECONDS = 10
_READ_SECONDS = 20
"""Without a byte; a request may take longer."""

_CHUNK = 1 << 20
_SMALL_CHUNK = 3 << 17
"""Stays in a core's cache until it is written and hashed; too little for an event loop."""
_PAGE = 1000
"""Objects that are taken over at once."""

_WHERE = re.compile(r"\b(?:GET|HEAD|PUT|POST) (https?://[^/\s?]+)")
_STATUS = re.compile(r"status code: (\d+) ?([^:\n]*)")
_CODE = re.compile(r"<Code>([^<]*)</Code>")
_MESSAGE = re.compile(r"<Message>([^<]*)</Message>")
_DENIED = re.compile(r"\b40[13]\b|Unauthenticated|PermissionDenied|ExpiredToken|InvalidAccessKeyId")

_SLOWER = re.compile(r"SlowDown|ServerBusy|Throttl|store answered (?:429|503)")
_WRONG_KEY = re.compile(r"invalid path|[Pp]ars(?:e|ing) [Pp]ath")

_HINTS = {
    "NoSuchBucket": "is its name right, and the region?",
    "ContainerNotFound": "is its name right?",
    "InvalidAccessKeyId": "which keys are read is said in docs/repositories.md",
    "SignatureDoesNotMatch": "the secret key is not the one of the access key",
    "AuthenticationFailed": "is the account's key right?",
    "AuthorizationFailure": "is the account's key right?",
    "RequestTimeTooSkewed": "the clock of this machine is wrong",
    "ExpiredToken": "the session token has expired",
    "AccessDenied": "these credentials may not list or read it",
    "SlowDown": "the store throttles",
    "BadScheme": "a store without TLS has an address with http://; a service that gives keys to a"
    " web identity (AWS_ENDPOINT_URL_STS) needs TLS",
    "kind: Connect": "nothing answers there; is the host right, and does it speak TLS?",
    "169.254.169.254": "no credentials were found; which are read is said in docs/repositories.md,"
    " a public bucket needs AWS_SKIP_SIGNATURE=true, a public container AZURE_SKIP_SIGNATURE=true",
    "AuthorizationHeaderMalformed": "set AWS_DEFAULT_REGION to the region of the bucket",
    "incorrectly configured region": "set AWS_DEFAULT_REGION to the region of the bucket",
    "PermanentRedirect": "the bucket lies in another region: set AWS_DEFAULT_REGION",
}
"""What to do, by what stands in an error."""

_ENDPOINT = {"gs": "base_url", "as": "endpoint"}
_DEFAULT = {"gs": "https://storage.googleapis.com", "as": "https://{}.blob.core.windows.net"}
"""Where a store lies whose options do not say it, by its account."""


class BucketError(OSError):
    """The store refused, or could not be reached; one line, which says what to do."""


class ObjectChangedError(BucketError):
    """The object is no longer the one that was listed."""


class _WrongKeyError(BucketError):
    """A key of the store is no path; the library lists nothing beside it."""


class StoredObject(NamedTuple):
    """An object as it was listed; `path` is below the model's folder, `changed` in seconds."""

    path: str
    key: str
    e_tag: str
    size: int
    changed: float


class _Opened(NamedTuple):
    """What is asked, and with which options it was opened."""

    store: ObjectStore
    options: Options


class Bucket:
    """The repository of an address; each call asks the store.

    All but `read` may be made on any thread, and raise `StoppedError`.
    """

    def __init__(
        self, address: BucketAddress, credentials: Credentials, thread: StoreThread
    ) -> None:
        self.address, self.thread = address, thread
        self.credentials = credentials
        self._opened = self._open()

    def top(self) -> tuple[list[str], list[StoredObject]]:
        """The names of the folders, and the objects, directly below the repository."""
        prefix = self.address.key()
        below = len(prefix) + 1 if prefix else 0
        try:
            found = self._ask(lambda obstore, store: _folders(obstore, store, prefix))
        except _WrongKeyError:
            folders, keys = self._by_hand(lambda listing: listing.top(prefix))
            names = {each[below:-1] for each in folders}
            return sorted(names), sorted(_any(each, below) for each in keys if each.key[below:])
        names = {each[below:] for each in found["common_prefixes"]}
        return sorted(names), sorted(_stored(each, below) for each in found["objects"])

    def objects(self, folder: str) -> list[StoredObject]:
        """The objects below a folder, or below the repository for an empty one, by path."""
        prefix = self.address.key(folder)
        below = len(prefix) + 1 if prefix else 0
        try:
            found = self._ask(lambda obstore, store: _listed(obstore, store, prefix, below))
        except _WrongKeyError:
            keys = self._by_hand(lambda listing: listing.below(prefix))
            found = [stored for each in keys if (stored := _any(each, below)).path]
        found.sort()
        return found

    def _by_hand(self, ask: Callable[[SignedListing | RelayedListing], T]) -> T:
        # Here, since they bring an HTTP client, a server and XML, and are hardly ever needed.
        from penstock.models.remote.relayed_listing import RelayedListing
        from penstock.models.remote.signed_listing import SignedListing

        options, address = self._opened.options, self.address
        listing: SignedListing | RelayedListing
        if address.scheme == "s3":
            anonymous = self.credentials.anonymous
            listing = SignedListing(address.bucket, options, anonymous=anonymous)
        else:
            name = _ENDPOINT[address.scheme]
            endpoint = options.get(name) or _DEFAULT[address.scheme].format(address.account)

            def opened(url: str, client: str) -> ObjectStore:
                return self._store({**options, name: url}, user_agent=client, **_not_by_proxy())

            listing = RelayedListing(endpoint.rstrip("/"), opened)
        with self._explained():
            return self.thread.call(lambda: ask(listing))

    async def read(self, stored: StoredObject, begin: int, end: int) -> AsyncGenerator[Any, None]:
        """The bytes of an object from `begin` to `end`; raises `ObjectChangedError`."""
        with self._asking(f" {stored.key}") as obstore:
            asked = self._opened.store, stored.key
            answer = await obstore.get_async(*asked, options=_part_of(stored, begin, end))
            async for chunk in answer.stream(_CHUNK):
                yield chunk

    def read_blocking(
        self, stored: StoredObject, begin: int, end: int
    ) -> Generator[Any, None, None]:
        """The same, on this thread: nothing stops it while it waits for the store."""
        with self._asking(f" {stored.key}") as obstore:
            asked = self._opened.store, stored.key
            answer = obstore.get(*asked, options=_part_of(stored, begin, end))
            yield from answer.stream(_SMALL_CHUNK)

    def _ask(self, request: Callable[[Any, ObjectStore], Coroutine[Any, Any, T]]) -> T:
        """The answer to a request, which is repeated where other credentials are found (R-32), and
        where the store throttles.
        """
        for wait in _THROTTLED:
            try:
                return self._ask_anew(request)
            except BucketError as error:
                if _SLOWER.search(str(error)) is None:
                    raise
                logger.info("%s; it is asked again in %d s", error, wait)
            if self.thread.wait(wait):
                raise StoppedError
        return self._ask_anew(request)

    def _ask_anew(self, request: Callable[[Any, ObjectStore], Coroutine[Any, Any, T]]) -> T:
        opened = self._opened
        try:
            return self._ask_once(opened, request)
        except BucketError:
            if self._opened.options == opened.options:
                raise
        return self._ask_once(self._opened, request)

    def _ask_once(
        self, opened: _Opened, request: Callable[[Any, ObjectStore], Coroutine[Any, Any, T]]
    ) -> T:
        with self._asking() as obstore:
            return self.thread.run(request(obstore, opened.store))

    def _open(self) -> _Opened:
        options = self.credentials.options(self.address)
        try:
            import obstore  # noqa: F401
        except ImportError as error:
            raise UnsupportedError(
                f"model repository '{self.address.text}' needs obstore: pip install"
                " 'penstock[cloud]'"
            ) from error
        with self._explained():
            return _Opened(self._store(options), options)

    def _store(self, options: Options, **client: str) -> ObjectStore:
        from obstore.store import AzureStore, GCSStore, S3Store

        url = options.get("endpoint") or options.get("base_url") or ""
        shared: Any = {
            "client_options": {
                "allow_http": url.startswith("http://"),
                "connect_timeout": timedelta(seconds=_CONNECT_SECONDS),
                "read_timeout": timedelta(seconds=_READ_SECONDS),
                "timeout": "1 day",
                **client,
            },
            "retry_config": {
                "max_retries": _RETRIES,
                "retry_timeout": timedelta(seconds=_RETRY_SECONDS),
            },
        }
        stores = {"s3": S3Store, "gs": GCSStore, "as": AzureStore}
        store: ObjectStore = stores[self.address.scheme](self.address.bucket, **options, **shared)
        return store

    @contextmanager
    def _asking(self, what: str = "") -> Iterator[Any]:
        """The library; after a refusal the next call has the credentials read anew (R-32)."""
        import obstore

        with self._explained(what):
            try:
                yield obstore
            except Exception as error:
                if _DENIED.search(str(error)):
                    try:
                        self._opened = self._open()
                    except InferenceError as wrong:  # somebody may be writing the file
                        raise BucketError(f"'{self.address.text}':{what} {wrong}") from error
                raise

    @contextmanager
    def _explained(self, what: str = "") -> Iterator[None]:
        """Raise `BucketError` for what the library raises, whose texts have many lines."""
        from obstore.exceptions import BaseError, PreconditionError

        try:
            yield
        except (FileNotFoundError, PreconditionError) as error:
            gone = "is not there" if isinstance(error, FileNotFoundError) else "has changed"
            raise ObjectChangedError(f"'{self.address.text}':{what} {gone}") from error
        except (BaseError, OSError, ValueError) as error:
            if isinstance(error, BucketError | StoppedError):
                raise
            kind = _WrongKeyError if _WRONG_KEY.search(str(error)) else BucketError
            raise kind(f"'{self.address.text}':{what} {_reason(error)}") from error


def _part_of(stored: StoredObject, begin: int, end: int) -> Any:
    """Options of a request for bytes of an object as it was listed."""
    options: dict[str, Any] = {"range": (begin, end)}
    if stored.e_tag:
        options["if_match"] = f'"{stored.e_tag}"'
    return options


async def _folders(obstore: Any, store: ObjectStore, prefix: str) -> Any:
    return await obstore.list_with_delimiter_async(store, prefix=prefix or None)


async def _listed(obstore: Any, store: ObjectStore, prefix: str, below: int) -> list[StoredObject]:
    """What is kept of each object with a path: the library's own take twice as much memory."""
    batches = obstore.list(store, prefix=prefix or None, chunk_size=_PAGE)
    found = [_stored(each, below) async for batch in batches for each in batch]
    return [each for each in found if each.path]


def _not_by_proxy() -> dict[str, str]:
    """Options of a client that asks this machine itself, whatever proxy the environment names."""
    # Here, since its imports are a quarter of what the start of a fetching process takes.
    from urllib.request import getproxies

    named = getproxies()
    proxy = named.get("http") or named.get("all")
    if proxy is None:
        return {}
    excluded = ",".join(filter(None, (named.get("no"), "127.0.0.1")))
    return {"proxy_url": proxy, "proxy_excludes": excluded}


def _stored(each: Any, below: int) -> StoredObject:
    """An object as the library lists it; its path begins at that place of its key."""
    key: str = each["path"]
    e_tag = (each["e_tag"] or "").strip('"')
    return StoredObject(key[below:], key, e_tag, each["size"], each["last_modified"].timestamp())


def _any(each: ListedKey, below: int) -> StoredObject:
    """An object by its listed key, which may be no path; a mark of a folder loses its slash."""
    key = each.key.removesuffix("/")
    return StoredObject(key[below:], key, each.e_tag.strip('"'), each.size, each.changed)


def _reason(error: Exception) -> str:
    text = str(error)
    first = text.partition("\n")[0].rpartition(" - ")[2]
    where = _WHERE.search(text)
    if where is not None:
        first = f"{where[1]}: {first}"
    code, message, status = (found.search(text) for found in (_CODE, _MESSAGE, _STATUS))
    if code is not None and code[1]:
        said = "" if message is None else message[1].partition("\n")[0]
        first = f"{code[1]}: {said}" if said else code[1]
    elif status is not None:
        first = f"the store answered {status[1]} {status[2]}".strip()
    hint = next((hint for name, hint in _HINTS.items() if name in text), "")
    first = "".join(each if each.isprintable() else ascii(each)[1:-1] for each in first)
    return f"{first} ({hint})" if hint else first
