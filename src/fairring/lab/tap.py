"""A tap: an interface whose other end is a descriptor of this process. Made in the namespace that holds it.

It takes and gives whole segments of a stream, checksums unfinished, as between virtual machines.
"""

from __future__ import annotations

import fcntl
import os
import struct

_DEVICE = "/dev/net/tun"
_SET_INTERFACE = 0x400454CA  # linux/if_tun.h, as all here
_SET_OFFLOAD = 0x400454D0
_TAP, _NO_PACKET_INFORMATION, _VIRTIO_HEADER = 0x0002, 0x1000, 0x4000
_CHECKSUM, _TCP4, _TCP6 = 0x01, 0x02, 0x04


def make(name: str) -> int:
    """Returns the descriptor; the interface goes with it. Raises OSError."""
    descriptor = os.open(_DEVICE, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        flags = _TAP | _NO_PACKET_INFORMATION | _VIRTIO_HEADER
        fcntl.ioctl(descriptor, _SET_INTERFACE, struct.pack("16sH22x", name.encode(), flags))
        fcntl.ioctl(descriptor, _SET_OFFLOAD, _CHECKSUM | _TCP4 | _TCP6)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
