"""PyTorch Lightning's Trainer with its DDP strategy, and metrics that it reduces over the ranks."""

import json
import sys

import lightning
import torch
from lightning.pytorch.strategies import DDPStrategy
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Model(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
        self.losses: list[float] = []

    def training_step(self, batch):
        loss = nn.functional.mse_loss(self.net(batch[0]), batch[1])
        self.log("loss", loss, sync_dist=True, on_step=False, on_epoch=True)
        self.log("rows", torch.tensor(len(batch[0]) * (1 + self.global_rank)), sync_dist=True, on_epoch=True)
        return loss

    def on_train_epoch_end(self) -> None:
        self.losses.append(self.trainer.callback_metrics["loss"].item())
        rows = self.all_gather(torch.tensor(self.global_rank))
        assert rows.tolist() == [0, 1]

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def main() -> None:
    lightning.seed_everything(0)
    data = TensorDataset(torch.randn(64, 8), torch.randn(64, 1))
    model = Model()
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=2,
        strategy=DDPStrategy(process_group_backend=sys.argv[1]),
        max_epochs=3,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, DataLoader(data, batch_size=8))
    assert torch.distributed.get_backend() == sys.argv[1]
    if trainer.is_global_zero:
        print("losses", json.dumps(model.losses), flush=True)


main()
