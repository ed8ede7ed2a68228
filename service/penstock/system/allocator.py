"""The C allocator: settings that avoid page faults, and memory that a load has left behind."""

from __future__ import annotations

import ctypes
import gc
import sys

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3


def tune_allocator() -> None:
    """Let glibc keep freed memory, up to 256 MiB; does nothing on other C libraries.

    All three go together: one alone turns off glibc's own adapting and makes things worse.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(_M_MMAP_THRESHOLD, 32 << 20)
    mallopt(_M_TRIM_THRESHOLD, 256 << 20)
    mallopt(_M_TOP_PAD, 64 << 20)


def free_caches() -> None:
    """Give the system what nothing uses: garbage, PyTorch's cache of a GPU, what was freed.

    For a process that is idle. May take a second.
    """
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    return_freed_memory()


def return_freed_memory() -> None:
    """Give the system what was freed; does nothing on other C libraries. May take 0.1 s.

    For the end of a load, in which engines read, convert and pack weights, and free each former
    copy: kept, that is several times the model.
    """
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):
        return
