"""`BucketAddress`: the address of a repository in an object store, in Triton's forms."""

from __future__ import annotations

import re
from dataclasses import dataclass

from penstock.core.errors import InvalidRequestError

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")
"""Of an address; folders are named without one."""

_SCHEMES = {"s3", "gs", "as", "hf"}

_SLIP = re.compile(r"(s3|gs|as|hf)(?::+|//)/*(.*)", re.DOTALL)
"""A colon or a slash too few or too many."""

_PAGE = re.compile(r"https?://(?:www\.)?huggingface\.co/([^/]+/[^/]+)/?")
_AMAZON = re.compile(r"https?://([^/]+)\.s3[.-][a-z0-9.-]*amazonaws\.com(/.*)?")
_AZURE = re.compile(r"[a-z]+://([^/@]+)@([^/.]+)\.[^/]+(/.*)?")
_AZURES_PAGE = re.compile(r"https?://([^/.]+)\.(?:blob|dfs)\.core\.windows\.net/(.+)")
_GOOGLE = re.compile(r"https?://storage\.(?:googleapis|cloud\.google)\.com/(.+)")
"""What is copied from a browser, or from Hadoop's configuration."""

_MEANT = {
    "s3a": "s3", "s3n": "s3", "gcs": "gs", "gcp": "gs",
    "az": "as", "azure": "as", "abfs": "as", "abfss": "as", "wasb": "as", "wasbs": "as",
    "huggingface": "hf", "hub": "hf",
}  # fmt: skip
"""What other programs call the schemes."""

_FORMS = {
    "s3": "s3://BUCKET/PATH or s3://https://HOST:PORT/BUCKET/PATH",
    "gs": "gs://BUCKET/PATH",
    "as": "as://ACCOUNT/CONTAINER/PATH",
    "hf": "hf://OWNER/NAME or hf://OWNER/NAME@REVISION",
}

_S3 = re.compile(r"(?:(https?)://)?(?:([\w.-]+):(\d+)(?:/|$))?(.*)", re.DOTALL)
"""Protocol and host of an endpoint, if it is not Amazon's, and what follows."""

_BUCKET = re.compile(r"[A-Za-z0-9][\w.$-]*")


def scheme_of(address: str) -> str:
    """The scheme of an address; empty for a folder.

    Raises `InvalidRequestError` for a scheme that nobody knows, with the one that was meant.
    """
    found = _SCHEME.match(address)
    whole = found is not None and address.startswith(f"{found[1]}://")
    if not whole and (slip := _SLIP.match(address)) is not None:
        raise InvalidRequestError(
            f"model repository '{address}' is no address; did you mean"
            f" '{slip[1]}://{slip[2]}'? (a folder of this name is './{address}')"
        )
    if found is None:
        return ""
    scheme = found[1]
    if scheme not in _SCHEMES:
        raise InvalidRequestError(f"model repository '{address}': {_advice(scheme, address)}")
    return scheme


def _advice(scheme: str, address: str) -> str:
    rest = address.partition(":")[2].lstrip("/")
    if scheme == "file":
        return f"a folder is named without a scheme; did you mean '/{rest}'?"
    known = ", ".join(f"{each}://" for each in sorted(_SCHEMES))
    meant = _meant(scheme.lower(), rest, address)
    hint = f"; did you mean '{meant}'?" if meant else ""
    return f"the scheme '{scheme}' is not known (these are: {known}){hint}"


def _meant(scheme: str, rest: str, address: str) -> str:
    """The address of ours that means the same; empty for none."""
    if page := _PAGE.fullmatch(address):
        return f"hf://{page[1]}"
    if bucket := _AMAZON.fullmatch(address):
        return f"s3://{bucket[1]}{bucket[2] or ''}"
    if container := _AZURES_PAGE.fullmatch(address):
        return f"as://{container[1]}/{container[2]}"
    if bucket := _GOOGLE.fullmatch(address):
        return f"gs://{bucket[1]}"
    if scheme in ("http", "https"):
        return f"s3://{address}"
    meant = _MEANT.get(scheme, scheme)
    if meant == "as" and (box := _AZURE.fullmatch(address)):
        return f"as://{box[2]}/{box[1]}{box[3] or ''}"
    return f"{meant}://{rest}" if meant in _SCHEMES else ""


def _wrong(address: str, scheme: str) -> InvalidRequestError:
    return InvalidRequestError(f"model repository '{address}' is no address: {_FORMS[scheme]}")


@dataclass(frozen=True, slots=True)
class BucketAddress:
    """A bucket, or a container of Azure, and the prefix of a repository's keys.

    `prefix` has no slash at its ends. `endpoint` is the URL of a store that is not the scheme's
    own. `text` is what the user wrote.
    """

    text: str
    scheme: str
    bucket: str
    prefix: str = ""
    endpoint: str = ""
    account: str = ""

    @classmethod
    def parse(cls, text: str) -> BucketAddress:
        """An address in Triton's forms (R-29 to R-31); raises `InvalidRequestError`."""
        scheme, _, rest = text.partition("://")
        account = endpoint = ""
        if scheme == "s3":
            endpoint, rest = _endpoint(rest)
        elif scheme == "as":
            account, _, rest = rest.partition("/")
            if "." in account:  # the name of the account's host
                endpoint, account = f"https://{account}", account.partition(".")[0]
        bucket, _, prefix = rest.partition("/")
        wrong = not _BUCKET.fullmatch(bucket) or bucket in ("http", "https")
        if wrong or (scheme == "as" and not account) or not _has_port(endpoint):
            raise _wrong(text, scheme)
        return cls(text, scheme, bucket, prefix.strip("/"), endpoint, account)

    @property
    def store(self) -> str:
        """What tells this bucket from all others."""
        return "|".join((self.scheme, self.endpoint, self.account, self.bucket))

    def of(self, key: str) -> str:
        """The repository's address, and in a second line the path of an object from there."""
        rest = key.removeprefix(self.prefix).lstrip("/")
        return f"{self.text.rstrip('/')}\n{rest}"

    def key(self, *parts: str) -> str:
        """The key of something below the repository."""
        return "/".join(part for part in (self.prefix, *parts) if part)


def _has_port(endpoint: str) -> bool:
    """Whether the port of an endpoint, if it has one, can be."""
    _, _, port = endpoint.rpartition(":")
    return not port.isdecimal() or (port.isascii() and len(port) < 6 and int(port) < 1 << 16)


def _endpoint(rest: str) -> tuple[str, str]:
    """The URL of the endpoint before a bucket of S3, and the rest; a host alone means https."""
    found = _S3.fullmatch(rest)
    protocol, host, port, rest = found.groups() if found else ("", "", "", rest)
    if host:
        return f"{protocol or 'https'}://{host}:{port}", rest
    if protocol:  # a host without a port
        host, _, rest = rest.partition("/")
        return f"{protocol}://{host}", rest
    return "", rest
