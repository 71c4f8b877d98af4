"""Two ranks with a worker server of PyTorch's debug server each; rank 0 asks both, and prints what the page says."""

from __future__ import annotations

import urllib.request

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _WorkerServer
from torch.distributed.debug._frontend import FrontendServer, Response

from fairring.trace.page import WhyHandler, told
from fairring.trace.worker import TRACES


def answer_of(port: int) -> Response:
    asking = urllib.request.Request(f"http://127.0.0.1:{port}/handler/{TRACES}?last=10", method="POST")
    with urllib.request.urlopen(asking) as response:
        return Response(response.status, response.read().decode())


dist.init_process_group("fairring")
server = _WorkerServer("127.0.0.1", 0)
ports = [0, 0]
dist.all_gather_object(ports, server.port)
for _ in range(5):
    dist.all_reduce(torch.ones(10))
if dist.get_rank() == 0:
    said = told([*map(answer_of, ports), Response(503, "<nobody> is there")])
    frontend = FrontendServer(0, [WhyHandler()])
    print(frontend.render_template("fairring.html", told=said).decode())
dist.barrier()
server.shutdown()
dist.destroy_process_group()
