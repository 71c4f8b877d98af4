"""The links between the sites of a lab, in the hub's namespace: a shaped cable from each site's bridge to a trunk.

A trunk is a bridge, or, for a link with a delay, a tap for each site and a process between them that delays packets
(forwarder.py). Owned by the network; all of it vanishes with the keeper's process.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from itertools import groupby

from pyroute2 import IPRoute

from fairring.lab import tap
from fairring.lab.child import lab_python
from fairring.lab.shaping import shape
from fairring.lab.sites import Uplink


class Trunks:
    """ports: by site, the sites' ends of its cables. Raises OSError or pyroute2's NetlinkError."""

    def __init__(self, hub: IPRoute, uplinks: Sequence[Uplink]) -> None:
        self._hub = hub
        self.ports: dict[int, list[int]] = {}
        taps = [self._join(list(uplinks_of)) for _, uplinks_of in groupby(uplinks, lambda uplink: uplink.trunk)]
        if uplinks and uplinks[0].delay > 0:
            _start_forwarder(uplinks[0].delay, taps)

    def _join(self, uplinks: Sequence[Uplink]) -> list[int]:
        """Returns the taps of a trunk, if it has any."""
        taps = []
        if not uplinks[0].delay:
            self._make_bridge(uplinks[0].trunk)
        for uplink in uplinks:
            trunk = uplink.trunk if not uplink.delay else f"{uplink.trunk}s{uplink.site}"
            if uplink.delay:
                self._make_bridge(trunk)
                taps.append(tap.make(f"tap{trunk}"))
                self._attach(f"tap{trunk}", trunk)
            self._lay(uplink, trunk)
        return taps

    def _lay(self, uplink: Uplink, trunk: str) -> None:
        near, far = f"up{trunk}{uplink.site}", f"down{trunk}{uplink.site}"
        self._hub.link("add", ifname=near, kind="veth", peer={"ifname": far})
        for name, bridge in ((near, uplink.bridge), (far, trunk)):
            port = self._attach(name, bridge)
            if uplink.rate is not None:
                shape(self._hub, port, uplink.rate, uplink.delay)
        self.ports.setdefault(uplink.site, []).append(self._index(near))

    def _make_bridge(self, name: str) -> None:
        self._hub.link("add", ifname=name, kind="bridge", state="up")

    def _attach(self, name: str, bridge: str) -> int:
        port = self._index(name)
        self._hub.link("set", index=port, master=self._index(bridge), state="up")
        return port

    def _index(self, name: str) -> int:
        return int(self._hub.link_lookup(ifname=name)[0])


def _start_forwarder(delay: float, taps: Sequence[Sequence[int]]) -> None:
    descriptors = [descriptor for of_trunk in taps for descriptor in of_trunk]
    lists = [",".join(map(str, of_trunk)) for of_trunk in taps]
    subprocess.Popen(
        lab_python("forwarder", str(os.getpid()), repr(delay), *lists, isolated=True),
        stdin=subprocess.DEVNULL,
        pass_fds=descriptors,
    )
    for descriptor in descriptors:
        os.close(descriptor)
