"""The program that mpirun starts instead of ssh, as `mpi_agent.py SOCKET [OPTION ...] HOST COMMAND ...`

It asks the benchmark's rank 0, over its unix socket, to have a rank on that host run the command, and ends when rank 0
closes the socket. It needs only the standard library; see mpi_launch.py.
"""

from __future__ import annotations

import json
import socket
import sys


def main() -> None:
    path, *words = sys.argv[1:]
    with socket.socket(socket.AF_UNIX) as channel:
        channel.connect(path)
        channel.sendall(json.dumps(words).encode() + b"\n")
        while channel.recv(1):
            pass


if __name__ == "__main__":
    main()
