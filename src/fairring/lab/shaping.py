"""The rate of an interface: a token bucket on its outgoing packets."""

from __future__ import annotations

from pyroute2 import IPRoute

_ROOT_QDISC = 0x10000

# The bucket holds 0.6 ms of the rate: less, and a timer that fires late on a busy machine costs throughput; more, and
# short messages cross faster than the link. The kernel cuts a packet larger than the bucket into MTU frames, which is
# right for slow links (64 KiB would hold the wire for long) and costs too much processor time on fast ones.
_BUCKET_SECONDS = 0.6e-3
_SMALLEST_BUCKET = 16 * 1024
_WHOLE_SEGMENT = 72_000
_FAST_RATE = 300_000_000 // 8
# The queue before the bucket, as in a switch: 20 ms of the rate, or the round trip's worth on a long way, as wide-area
# routers have it. On slow links it has room for some senders' windows.
_QUEUE_SECONDS = 20e-3
_SMALLEST_QUEUE = 256 * 1024


def shape(route: IPRoute, index: int, rate: int, delay: float = 0.0) -> None:
    """rate: bytes/s that leave through the interface. delay: seconds of the way behind it."""
    bucket = max(
        _SMALLEST_BUCKET,
        _WHOLE_SEGMENT if rate >= _FAST_RATE else 0,
        int(rate * _BUCKET_SECONDS),
    )
    queue = max(_SMALLEST_QUEUE, int(rate * max(_QUEUE_SECONDS, 2 * delay)))
    route.tc("add", "tbf", index, _ROOT_QDISC, rate=rate, burst=bucket, limit=queue)
