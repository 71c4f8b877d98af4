"""The Trainer of transformers with a tiny language model, made here from a configuration and random numbers."""

import json
import sys
import tempfile

import torch
import torch.distributed as dist
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed


class Words(Dataset):
    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        words = torch.randint(64, (12,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": words, "labels": words}


def main() -> None:
    dist.init_process_group(sys.argv[1])  # as Accelerate, on which the Trainer stands
    set_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=16, n_embd=16, n_layer=2, n_head=2))
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            use_cpu=True,
            max_steps=6,
            per_device_train_batch_size=4,
            logging_steps=1,
            eval_strategy="steps",
            eval_steps=3,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        )
        trainer = Trainer(model, arguments, train_dataset=Words(), eval_dataset=Words())
        trainer.train()
    assert dist.get_backend() == sys.argv[1]
    if trainer.is_world_process_zero():
        history = trainer.state.log_history
        losses = [float(row[key]) for row in history for key in ("loss", "eval_loss") if key in row]
        print("losses", json.dumps(losses), flush=True)
    dist.destroy_process_group()


main()
