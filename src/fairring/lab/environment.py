"""The variables that a rank is started with: torchrun's, and those that a machine of the lab needs as well.

TORCHELASTIC_USE_AGENT_STORE stays unset, since no agent of torchrun holds the store here: rank 0 makes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fairring.lab.cluster import Place


@dataclass(frozen=True)
class Meeting:
    """The ranks' meeting point. interfaces: of every machine; the first reaches the master.

    shared_network: all machines stand in one network namespace, so only a name of their own tells them apart.
    sites: of each machine, its site's number.
    """

    address: str
    port: int
    interfaces: Sequence[str]
    shared_network: bool
    run_id: str
    sites: Sequence[int]


def rank_environment(
    place: Place,
    machines: Sequence[int],
    meeting: Meeting,
    inherited: Mapping[str, str],
) -> dict[str, str]:
    """inherited: the environment to which the variables are added; the user's own settings in it are respected."""
    world = str(sum(machines))
    environment = {
        "OMP_NUM_THREADS": "1",
        # As torchrun's `python -u`: a pipe would otherwise hold back a rank's lines until it has 8 KiB of them.
        "PYTHONUNBUFFERED": "1",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
        # Stock Gloo and TensorPipe pick the interface by the host name, which no machine of the lab can resolve.
        "GLOO_SOCKET_IFNAME": meeting.interfaces[0],
        "TP_SOCKET_IFNAME": ",".join(meeting.interfaces),
    }
    if len(set(meeting.sites)) > 1:
        environment["FAIRRING_SITE"] = f"site{meeting.sites[place.machine]}"
    environment.update(inherited)
    if meeting.shared_network:
        environment["FAIRRING_MACHINE"] = f"lab{place.machine}"
    environment.pop("TORCHELASTIC_USE_AGENT_STORE", None)
    environment.update(
        RANK=str(place.rank),
        LOCAL_RANK=str(place.local_rank),
        GROUP_RANK=str(place.machine),
        ROLE_RANK=str(place.rank),
        ROLE_NAME="default",
        WORLD_SIZE=world,
        LOCAL_WORLD_SIZE=str(machines[place.machine]),
        GROUP_WORLD_SIZE=str(len(machines)),
        ROLE_WORLD_SIZE=world,
        MASTER_ADDR=meeting.address,
        MASTER_PORT=str(meeting.port),
        TORCHELASTIC_RESTART_COUNT="0",
        TORCHELASTIC_MAX_RESTARTS="0",
        TORCHELASTIC_RUN_ID=meeting.run_id,
    )
    return environment
