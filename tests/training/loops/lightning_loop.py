"""Training with Lightning: accumulation, a short last batch, validation, checkpoints; broken off in an epoch, and resumed."""

import copy
import os
import pickle
import sys
from pathlib import Path

import torch
from counting import StepCounts, leave_together
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader, TensorDataset

import loadfactor_track as loadfactor

SAMPLES, BATCH, LENGTH = 50, 4, 16
folder, ranks, counts = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]


class CountingModule(LightningModule):
    """A linear model that counts what it is given."""

    def __init__(self, attempt: int) -> None:
        super().__init__()
        self._layer = torch.nn.Linear(LENGTH, 1)
        self._counted = StepCounts(folder, attempt, int(os.environ.get("LOCAL_RANK", "0")))
        self._samples: list[int] = []

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        """A micro-batch."""
        self._samples.append(len(batch[0]))
        return self._layer(batch[0]).square().mean()

    def validation_step(self, batch: list[torch.Tensor]) -> None:
        self.log("loss", self._layer(batch[0]).square().mean(), sync_dist=True)

    def optimizer_step(self, *arguments: object, **named: object) -> None:
        """A step of the optimizer: the micro-batches since the last one were its."""
        super().optimizer_step(*arguments, **named)
        *before, last = self._samples
        for samples in before:
            self._counted.add(self.trainer.global_step + 1, False, samples=samples)
        self._counted.add(self.trainer.global_step + 1, True, samples=last)
        self._samples = []

    def on_train_epoch_end(self) -> None:
        """An epoch, unless the fit was broken off in it."""
        if self.trainer.max_steps < 0:
            self._counted.say("epoch")

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Plain descent."""
        return torch.optim.SGD(self.parameters(), 0.01)


def fit(attempt: int, run: object, checkpoint: str | None = None, **limits: int) -> str:
    """The path of the first checkpoint of a fit."""
    saves = ModelCheckpoint(folder / f"saved-{attempt}", every_n_train_steps=3, save_top_k=-1, filename="{step}")
    trainer = Trainer(
        accelerator="cpu",
        devices=ranks,
        strategy="ddp" if ranks > 1 else "auto",
        accumulate_grad_batches=2,
        callbacks=[saves, run.lightning_callback()],
        enable_progress_bar=False,
        enable_model_summary=False,
        logger=False,
        **limits,
    )
    data = TensorDataset(torch.randn(SAMPLES, LENGTH))
    trainer.fit(
        CountingModule(attempt), DataLoader(data, BATCH, shuffle=True), DataLoader(data, BATCH), ckpt_path=checkpoint
    )
    return str(folder / f"saved-{attempt}" / "step=3.ckpt")


with loadfactor.track(experiment="lightning", job="lightning", counts=counts) as run:
    saved = fit(0, run, max_steps=5)
    fit(1, run, saved, max_epochs=2)

pickle.loads(
    pickle.dumps(copy.deepcopy(run.lightning_callback()))
)  # as Trainers hand them to processes that they start
leave_together()
