"""A script as users have them: DDP on the device of its local rank. Prints the parameters' sum and what it ran on."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
dist.init_process_group("fairring")
torch.manual_seed(0)
layers = [torch.nn.Linear(16, 64), torch.nn.GELU(), torch.nn.Linear(64, 4)]
model = DistributedDataParallel(torch.nn.Sequential(*layers).to(device))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
torch.manual_seed(dist.get_rank())
for _ in range(3):
    loss = model(torch.randn(8, 16, device=device)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
with torch.no_grad():
    total = sum(parameter.double().sum().item() for parameter in model.parameters())
print(device, torch.cuda.device_count(), total)
dist.destroy_process_group()
