"""Names for the machines of a lab: a hosts file that only the calling process, and what it starts or execs, sees.

Without one, programs that ask for the name behind an address of the lab find none; torch complains of every connection.
The file is in a tmpfs in a mount namespace of the process's own, so nothing is left behind, not even by a kill.
"""

from __future__ import annotations

from pathlib import Path

from fairring.lab import namespaces

_HOSTS = Path("/etc/hosts")
# Covered while the file is put into place, for this process only.
_COVERED = Path("/tmp")


def add(lines: str) -> None:
    """Puts the lines after those of the system's hosts file. Raises OSError if mounts aren't permitted."""
    text = _HOSTS.read_bytes()
    namespaces.unshare(namespaces.MOUNT)
    namespaces.keep_mounts_private()
    namespaces.mount_tmpfs(_COVERED)
    try:
        copy = _COVERED / "hosts"
        copy.write_bytes(text + b"\n" + lines.encode())
        copy.chmod(0o644)  # readable whatever the user's mask is: a rank may run as another user
        namespaces.bind(copy, _HOSTS)
    finally:
        namespaces.detach(_COVERED)
