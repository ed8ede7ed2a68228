"""What the kernel still holds of the bytes of a socket, in both directions."""

from __future__ import annotations

import fcntl
import sys
import termios


def unacknowledged(descriptor: int) -> int:
    """Bytes of a connected socket that its peer has not taken yet.

    Of a Unix socket it is the memory that they occupy. Raises `OSError` for a closed one.
    """
    # SIOCOUTQ is the same number (linux/sockios.h).
    answer = fcntl.ioctl(descriptor, termios.TIOCOUTQ, bytes(4))
    return int.from_bytes(answer, sys.byteorder)


def unread(descriptor: int) -> int:
    """Bytes that a socket's peer has sent, and nobody has read; raises as `unacknowledged`."""
    answer = fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4))
    return int.from_bytes(answer, sys.byteorder)
