"""A model that is one object of a bucket, such as `s3://bucket/raw/resnet.onnx`: fetched first."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TypeVar

from penstock.core.errors import InferenceError
from penstock.models.remote.address import BucketAddress, scheme_of
from penstock.models.remote.bucket_repository import BucketRepository
from penstock.models.remote.remote_repositories import RemoteRepositories
from penstock.models.sources.draft import SourceError, one_line
from penstock.models.sources.engine_file import FILE_ENDINGS, external_data, goes_with, model_name

T = TypeVar("T")

_ENDINGS = (*FILE_ENDINGS, ".gguf", ".py")
_FILE = re.compile(r"(?P<file>.+?\.py)(?P<cls>:\w+)|(?P<any>.+)", re.DOTALL)

_BESIDE = ("tokenizer.json", "tokenizer_config.json")
"""Files that a model may need, and that are not called as it is; so are labels, which are texts."""
_LONGEST_LABELS = 1 << 20


@dataclass(frozen=True, slots=True)
class BucketFile:
    """Where an object is now, with what belongs to it, and how a model of it is called.

    It stays there until the `RemoteRepositories` are closed.
    """

    source: str
    name: str
    address: str

    def told(self, text: str) -> str:
        """What is said of the file, said of the object."""
        return text.replace(str(Path(self.source).parent), self.address.rpartition("/")[0])


def _parsed(parse: Callable[[str], T], address: str) -> T:
    """Parts of an address; raises `SourceError` for one that is none."""
    try:
        return parse(address)
    except InferenceError as error:
        raise SourceError(one_line(str(error))) from error


def bucket_file(address: str, remote: RemoteRepositories) -> BucketFile | None:
    """The object of an address whose ending is a model's; `None` for other addresses.

    Also for one of a folder that is called so. Raises `SourceError`.
    """
    if "://" not in address or _parsed(scheme_of, address) == "hf":
        return None
    found = _FILE.fullmatch(address)
    assert found is not None
    whole, cls = found["file"] or found["any"], found["cls"] or ""
    path = PurePosixPath(whole)
    if path.suffix not in _ENDINGS or not _parsed(BucketAddress.parse, whole).prefix:
        return None
    try:
        place = remote.open(whole.rpartition("/")[0])
        assert isinstance(place, BucketRepository)
        taken = place.take_files(path.name, partial(_belongs, path))
        if taken and (weights := {*external_data(taken[0] / path.name)}):
            shutil.rmtree(taken[1], ignore_errors=True)
            needed = partial(_belongs, path, more=weights)
            taken = place.take_files(path.name, needed)
    except (OSError, InferenceError) as error:
        raise SourceError(one_line(str(error))) from error
    if taken is None:
        return None
    with suppress(OSError):  # an entry of a repository would need it
        (taken[0] / "1").rmdir()
    parsed = BucketAddress.parse(whole)
    named = model_name(Path("/", parsed.bucket, parsed.prefix), path.suffix)
    return BucketFile(f"{taken[0] / path.name}{cls}", "" if path.suffix == ".py" else named, whole)


def _belongs(path: PurePosixPath, name: str, size: int, more: Collection[str] = ()) -> bool:
    labels = name.endswith(".txt") and size <= _LONGEST_LABELS
    beside = name in _BESIDE or name in more
    return labels or beside or name == path.name or goes_with(path, name)
