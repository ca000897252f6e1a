"""Training with Accelerate: two ranks, gradient accumulation, a short last batch; every rank says what it did itself."""

import os
import sys

import torch
from accelerate import Accelerator
from counting import StepCounts, leave_together
from torch.utils.data import DataLoader, TensorDataset

import loadfactor_track as loadfactor

EPOCHS, SAMPLES, BATCH, LENGTH = 2, 50, 4, 16
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
model = torch.nn.Linear(LENGTH, 1)
data = DataLoader(TensorDataset(torch.randn(SAMPLES, LENGTH)), batch_size=BATCH, shuffle=True)
model, optimizer, data = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.01), data)
counted = StepCounts(sys.argv[1], 0, int(os.environ["RANK"]))
step = 1
with loadfactor.track(experiment="accelerate", counts="rank") as run:
    for _ in range(EPOCHS):
        for (batch,) in data:
            with accelerator.accumulate(model):
                accelerator.backward(model(batch).square().mean())
                optimizer.step()
                optimizer.zero_grad()
            done = accelerator.sync_gradients
            amounts = {"samples": len(batch), "tokens": batch.numel()}
            run.step(step=step, done=done, **amounts)
            counted.add(step, done, **amounts)
            step += done
        run.epoch()
        counted.say("epoch")
leave_together()
