"""A process that has memory on a GPU and exports it, as a client of the server would."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GpuOwner:
    """The process, and the IPC handle of its memory."""

    process: subprocess.Popen[str]
    handle: bytes

    def read(self) -> bytes:
        """What its memory holds now."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("read\n")
        self.process.stdin.flush()
        return bytes.fromhex(self.process.stdout.readline())


@contextmanager
def gpu_memory(content: bytes) -> Iterator[GpuOwner]:
    """Memory of another process on GPU 0 with this content."""
    command = [sys.executable, __file__, content.hex()]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        yield GpuOwner(process, bytes.fromhex(process.stdout.readline()))
        process.communicate()


def main() -> None:
    """Print the handle, then the memory's content for every line that comes in."""
    import ctypes

    from penstock.shared_memory.cuda import HANDLE_SIZE, CudaMemory

    cuda = CudaMemory()
    runtime = cuda._runtime
    content = bytes.fromhex(sys.argv[1])
    _, address = runtime.cudaMalloc(len(content))
    cuda.write(0, int(address), content)
    _, handle = runtime.cudaIpcGetMemHandle(address)
    print(ctypes.string_at(int(handle.getPtr()), HANDLE_SIZE).hex(), flush=True)
    for _ in sys.stdin:
        print(bytes(cuda.read(0, int(address), len(content))).hex(), flush=True)


if __name__ == "__main__":
    main()
