"""Pages of listings, in XML as stores send them: S3's, which Google has, too, and Azure's.

They are read here where `obstore` refuses a whole page for one key that is no path.
"""

from __future__ import annotations

import re
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import NamedTuple
from urllib.parse import unquote
from xml.etree import ElementTree

LONGEST_PAGE = 16 << 20
"""Bytes."""

_CONTROL = re.compile(
    rb"([\x00-\x08\x0b\x0c\x0e-\x1f])|&#(?:x0*([01]?[0-9a-fA-F])|0*([0-2]?[0-9]|3[01]));"
)
_PRIVATE = 0xE000
"""XML has no control characters, and some stores send them: they stand in here for these."""


class ListedKey(NamedTuple):
    """A key as the store has it; `changed` in seconds."""

    key: str
    e_tag: str
    size: int
    changed: float


class ListedPage(NamedTuple):
    """A part of a listing: what ends at the next delimiter, other keys, and the next part's name.

    `token` is empty on the last one.
    """

    folders: list[str]
    keys: list[ListedKey]
    token: str

    @classmethod
    def parse(cls, body: bytes, *, quoted: bool = False) -> ListedPage:
        """Raises `OSError`. Keys are `quoted` where they were asked for so."""
        page, stands_in = _parsed(body)
        names = _Names(quoted, stands_in)
        return cls(
            [names.of(each) for kind in _FOLDERS for each in page.iter(kind)],
            [names.key(each) for kind in _KEYS for each in page.iter(kind) if not _is_folder(each)],
            page.findtext("NextContinuationToken") or page.findtext("NextMarker") or "",
        )


_FOLDERS, _KEYS = ("CommonPrefixes", "BlobPrefix"), ("Contents", "Blob")


def _is_folder(element: ElementTree.Element) -> bool:
    """Of Azure with folders of its own, which are listed as blobs, too."""
    return element.findtext("Properties/ResourceType") == "directory"


class _Names(NamedTuple):
    """How keys are written: `quoted`, or with characters that stand in for others."""

    quoted: bool
    stands_in: bool

    def of(self, element: ElementTree.Element) -> str:
        """The key, or what it begins with."""
        found = next((each for tag in _NAMES if (each := element.find(tag)) is not None), None)
        if found is None:
            return ""
        text = found.text or ""
        if self.stands_in:
            text = text.translate(_MEANT)
        quoted = self.quoted or found.get("Encoded") == "true"
        return unquote(text, errors="surrogateescape") if quoted else text

    def key(self, element: ElementTree.Element) -> ListedKey:
        known = element if (of_azure := element.find("Properties")) is None else of_azure
        size = known.findtext("Size") or known.findtext("Content-Length") or "0"
        e_tag = known.findtext("ETag") or known.findtext("Etag") or ""
        stamp = known.findtext("LastModified")
        if stamp is None:
            changed = parsedate_to_datetime(known.findtext("Last-Modified", ""))
        else:
            changed = datetime.fromisoformat(stamp)
        return ListedKey(self.of(element), e_tag, int(size), changed.timestamp())


_NAMES = ("Key", "Prefix", "Name")
_ALLOWED = (0x9, 0xA, 0xD)
_MEANT = {_PRIVATE + each: each for each in range(0x20)}


def _parsed(body: bytes) -> tuple[ElementTree.Element, bool]:
    """A page without its namespace, and whether characters of it stand in for others."""
    stands_in = False
    try:
        page = ElementTree.fromstring(body)
    except ElementTree.ParseError:
        stands_in = True
        try:
            page = ElementTree.fromstring(_CONTROL.sub(_stand_in, body))
        except ElementTree.ParseError as error:
            raise OSError(f"the store's listing is no XML: {error}") from error
    for each in page.iter():
        each.tag = each.tag.rpartition("}")[2]
    return page, stands_in


def _stand_in(found: re.Match[bytes]) -> bytes:
    raw, hexadecimal, decimal = found.groups()
    number = ord(raw) if raw else int(hexadecimal, 16) if hexadecimal else int(decimal)
    return found[0] if number in _ALLOWED else chr(_PRIVATE + number).encode()
