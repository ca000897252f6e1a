"""Data-parallel training in plain PyTorch, with gradient accumulation, padding and checkpoints; in step `stop` it waits."""

import os
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import torch
import torch.distributed as dist
from counting import StepCounts, leave_together
from torch.nn.parallel import DistributedDataParallel

import loadfactor_track as loadfactor

STEPS, MICRO_BATCHES, CHECKPOINT_EVERY, RANKS = 20, 2, 4, 2
folder, attempt, rank, stop, counts = Path(sys.argv[1]), *map(int, sys.argv[2:5]), sys.argv[5]
checkpoint = folder / "checkpoint.pt"


def make_batch(step: int, micro: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Padded sequences of this rank, another number and length each time, and which places of them are filled."""
    random = torch.Generator().manual_seed(1000 * step + 10 * micro + rank)
    samples = int(torch.randint(2, 7, (), generator=random))
    lengths = torch.randint(3, 30, (samples,), generator=random)
    filled = torch.arange(int(lengths.max()))[None, :] < lengths[:, None]
    return torch.randint(0, 50, filled.shape, generator=random) * filled, filled


dist.init_process_group("gloo", init_method=f"file://{folder}/meeting-{attempt}", rank=rank, world_size=RANKS)
model = torch.nn.Sequential(torch.nn.Embedding(50, 8), torch.nn.Linear(8, 50))
optimizer = torch.optim.AdamW(model.parameters())
start = 0
if checkpoint.exists():
    saved = torch.load(checkpoint)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    start = saved["step"]
parallel = DistributedDataParallel(model)
counted = StepCounts(folder, attempt, rank)

with loadfactor.track(experiment="two-ranks", job="two-ranks", counts=counts) as run:
    for step in range(start + 1, STEPS + 1):
        for micro in range(MICRO_BATCHES):
            tokens, filled = make_batch(step, micro)
            done = micro == MICRO_BATCHES - 1
            with nullcontext() if done else parallel.no_sync():
                loss = torch.nn.functional.cross_entropy(parallel(tokens)[filled], tokens[filled])
                loss.backward()
            if done:
                optimizer.step()
                optimizer.zero_grad()
            own = torch.tensor([len(tokens), int(filled.sum()), tokens.numel()])
            said = own.clone()
            if counts == "global":
                dist.all_reduce(said)
            run.step(step, *said, done=done)
            counted.add(step, done, **dict(zip(("samples", "tokens", "padded_tokens"), own.tolist(), strict=True)))
            if step == stop:  # in the middle of it: until the kill
                counted.say("waiting")
                time.sleep(3600)
        if step % CHECKPOINT_EVERY == 0:
            with run.section("checkpoint"):
                if rank == 0:
                    torch.save(
                        {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step},
                        folder / "new.pt",
                    )
                    os.replace(folder / "new.pt", checkpoint)
                dist.barrier()
            counted.say("checkpoint")
leave_together()
