"""A listing of S3 by requests that `obstore` signs and this module sends: one that has any key.

`obstore` refuses a whole page of keys for one that is no path (`..`, an empty part, a control
character). It signs addresses of objects, and Amazon ignores parameters whose names begin with
`x-`: so the path of an object becomes the value of one, behind the parameters of a listing.
"""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import quote, urlencode

from penstock.models.remote.credentials import Options
from penstock.models.remote.listed_page import LONGEST_PAGE, ListedKey, ListedPage

_VALID = timedelta(minutes=10)
"""Of a signed address."""
_SECONDS = 20.0
"""Without a byte."""
_TRIES = 5
"""Of a request that is throttled or fails; between them `_WAIT_SECONDS`, twice as long each."""
_WAIT_SECONDS = 0.2
_PATH = "of"


class SignedListing:
    """Lists a bucket of S3 with the options of a store of `obstore`; each call asks, and blocks.

    Raises `OSError`, and what the library raises.
    """

    def __init__(self, bucket: str, options: Options, *, anonymous: bool) -> None:
        import obstore
        from obstore.store import S3Store

        self._library: Any = obstore
        self._store: Any = S3Store
        self._bucket, self._options = bucket, options
        self._anonymous = anonymous or bool(options.get("skip_signature"))

    def below(self, prefix: str) -> list[ListedKey]:
        """All keys below a folder, or all, in their order."""
        return [each for page in self._pages({"prefix": _begin(prefix)}) for each in page.keys]

    def top(self, prefix: str) -> tuple[list[str], list[ListedKey]]:
        """What lies below a folder and ends at the next slash, and the keys without another."""
        folders, keys = list[str](), list[ListedKey]()
        for page in self._pages({"prefix": _begin(prefix), "delimiter": "/"}):
            folders += page.folders
            keys += page.keys
        return folders, keys

    def _pages(self, asked: dict[str, str]) -> Iterator[ListedPage]:
        query, token = {"list-type": "2", "encoding-type": "url", **asked}, ""
        while True:
            body = self._answer({**query, "continuation-token": token} if token else query)
            page = ListedPage.parse(body, quoted=True)
            yield page
            token = page.token
            if not token:
                return

    def _answer(self, query: dict[str, str]) -> bytes:
        for wait in range(_TRIES):
            try:
                with urllib.request.urlopen(self._address(query), timeout=_SECONDS) as answer:
                    body: bytes = answer.read(LONGEST_PAGE)
                    return body
            except urllib.error.HTTPError as error:
                text = error.read(LONGEST_PAGE).decode(errors="replace")
                if wait == _TRIES - 1 or error.code not in (429, 500, 502, 503, 504):
                    raise OSError(f"status code: {error.code} {error.reason}: {text}") from error
            except OSError:
                if wait == _TRIES - 1:
                    raise
            time.sleep(_WAIT_SECONDS * 2**wait)
        raise AssertionError

    def _address(self, query: dict[str, str]) -> str:
        text = urlencode(query, quote_via=quote)
        keys = {"access_key_id": "-", "secret_access_key": "-", "skip_signature": False}
        anyone = {name: each for name, each in self._options.items() if name not in _SECRETS}
        base = self._signed(anyone | keys).partition(f"/{_PATH}?")[0]
        if self._anonymous:
            return f"{base}?{text}"
        # The address of the bucket is that of the "host", which has the bucket's name already.
        listing = {"endpoint": f"{base}?{text}&x-of=", "virtual_hosted_style_request": True}
        return self._signed(self._options | listing)

    def _signed(self, options: Options) -> str:
        client = {"allow_http": True}
        store = self._store(self._bucket, **options, client_options=client)
        signed: str = self._library.sign(store, "GET", _PATH, _VALID)
        return signed


_SECRETS = {"credential_provider", "session_token"}


def _begin(prefix: str) -> str:
    return f"{prefix}/" if prefix else ""
