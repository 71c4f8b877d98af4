"""How the machines of a lab are connected: by namespaces with shaped links, or, without those, by one shared network.

Owned by the lab, used from its thread. Where they share a network the master's port stays bound here, so that no other
program gets it; rank 0 can listen on it all the same, since both sides set SO_REUSEADDR.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping, Sequence

from fairring.lab.cluster import LabError, describe_links, interface_name, machine_address
from fairring.lab.environment import Meeting
from fairring.lab.keeper import Cables, Keeper, NoNetworkError
from fairring.lab.sites import Sites, bridge_name, describe_uplinks

NETWORKS = ("auto", "namespaces", "none")
# torchrun's own default; in a namespace of its own every port is free.
_MASTER_PORT = 29500


class Wiring:
    """rates: bytes/s of each machine's interfaces, None = unshaped. network: one of NETWORKS. Raises LabError.

    own_rates: of machines whose links have another.
    """

    def __init__(
        self, sites: Sites, rates: Sequence[int | None], own_rates: Mapping[int, int | None], network: str
    ) -> None:
        self._own_rates = own_rates
        self.unshaped_because: str | None = None
        self._port_holder: socket.socket | None = None
        if network == "none":
            self.unshaped_because = "--network none was asked for"
            self.keeper = Keeper(sum(sites.machines), None)
        else:
            self.keeper = self._try_namespaces(sites, rates, network)
        run_id = f"lab-{os.getpid()}-{time.time_ns():x}"
        if self.unshaped_because is None:
            interfaces = [interface_name(number) for number in range(len(rates))]
            self.meeting = Meeting(machine_address(0), _MASTER_PORT, interfaces, False, run_id, sites.of_machines())
        else:
            self._port_holder = socket.socket()
            self._port_holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._port_holder.bind(("127.0.0.1", 0))
            port = self._port_holder.getsockname()[1]
            self.meeting = Meeting("127.0.0.1", port, ["lo"], True, run_id, sites.of_machines())

    def close(self) -> None:
        self.keeper.close()
        if self._port_holder is not None:
            self._port_holder.close()

    def _try_namespaces(self, sites: Sites, rates: Sequence[int | None], network: str) -> Keeper:
        of_machines = sites.of_machines()
        bridges = [[bridge_name(n, site, len(sites.machines)) for n in range(len(rates))] for site in of_machines]
        cables = Cables(describe_links(bridges, rates, self._own_rates), describe_uplinks(sites, len(rates)))
        try:
            return Keeper(len(of_machines), cables)
        except NoNetworkError as error:
            reason = (
                f"no emulated network here: {error}. It needs root with CAP_SYS_ADMIN, or user namespaces "
                "(sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, "
                "kernel.apparmor_restrict_unprivileged_userns; a container may forbid them), and the kernel's "
                "veth, bridge, sch_tbf and, for delays between sites, tun"
            )
            if network == "namespaces":
                raise LabError(reason) from error
            self.unshaped_because = reason
            return Keeper(len(of_machines), None)
