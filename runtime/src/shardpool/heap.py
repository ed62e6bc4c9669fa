"""Keeps the C library's heap from giving memory back and asking for it again with every message of a transfer.

gRPC allocates each message anew. With glibc's defaults the heap shrinks when a message of a megabyte is freed and grows when the next
arrives, and the kernel clears those pages each time: a third of the time of a receiver.
"""

from __future__ import annotations

import ctypes

KEPT = 24 << 20
"""Bytes of free heap that a transfer may keep; `release` gives them back."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGEST_MMAP_THRESHOLD = 32 << 20  # glibc refuses larger ones


def keep() -> bool:
    """Set the heap up for large messages that come and go. Whether the C library knows how (glibc does, musl does not)."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    return bool(mallopt(_M_TRIM_THRESHOLD, KEPT) and mallopt(_M_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD))


def release() -> bool:
    """Give free heap back to the system, as when a load has ended. Whether the C library knows how."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError):
        return False
    trim(0)
    return True
