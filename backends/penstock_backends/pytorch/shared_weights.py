"""`share_weights`: weights mapped from the model's own file, which its instances share (B-09)."""

from __future__ import annotations

import logging
import mmap
import struct
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)

_SMALLEST = 4096
"""Bytes of a tensor from which it is worth a look: a page."""
_NAME_LENGTHS = struct.Struct("<26xHH")
"""The lengths in the header of an archive's member, behind which its content lies."""


def share_weights(model: str, module: Any, path: Path) -> None:
    """Have the module's tensors lie in the file that they were read from.

    Each process that does so has the same pages of memory, which the kernel keeps once. What a
    model writes to its weights stays its own, since such a page is copied first. Tensors that are
    not found in the archive as they are stay where they are, as those on a GPU do.
    """
    found: dict[int, Any] = {}
    mapped = of = 0
    with path.open("rb") as file, zipfile.ZipFile(file) as archive:
        members = {(one.CRC, one.file_size): one for one in archive.infolist() if _is_stored(one)}
        pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        for tensor in _tensors(module):
            storage = tensor.untyped_storage()
            if tensor.device.type != "cpu" or storage.nbytes() < _SMALLEST:
                continue
            if storage.data_ptr() not in found:
                found[storage.data_ptr()] = _in_file(storage, members, pages)
                of += storage.nbytes()
                mapped += storage.nbytes() if found[storage.data_ptr()] is not None else 0
            there = found[storage.data_ptr()]
            if there is not None:
                place = (tensor.size(), tensor.stride(), tensor.storage_offset())
                tensor.data = there.view(tensor.dtype).as_strided(*place)
    if mapped < of:
        logger.warning(
            "model '%s': of %d bytes of weights, instances share %d: the others do not lie in"
            " '%s' as the model has them",
            *(model, of, mapped, path.name),
        )


def _is_stored(member: zipfile.ZipInfo) -> bool:
    return member.compress_type == zipfile.ZIP_STORED and member.file_size >= _SMALLEST


def _tensors(module: Any) -> Iterable[Any]:
    yield from module.parameters()
    yield from module.buffers()


def _in_file(
    storage: Any, members: dict[tuple[int, int], zipfile.ZipInfo], pages: mmap.mmap
) -> Any:
    """The elements of a storage as bytes of the mapped file, where they are there; else `None`."""
    import torch  # where weights are shared, it is loaded

    elements = torch.empty(0, dtype=torch.uint8).set_(storage)
    member = members.get((zlib.crc32(elements.numpy()), len(elements)))
    if member is None:
        return None
    begin = member.header_offset + _NAME_LENGTHS.size
    begin += sum(_NAME_LENGTHS.unpack_from(pages, member.header_offset))
    there = torch.frombuffer(pages, dtype=torch.uint8, count=len(elements), offset=begin)
    return there if begin % 64 == 0 and torch.equal(there, elements) else None
