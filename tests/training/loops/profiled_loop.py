"""Training on the CPU under torch.profiler, with a data set that sleeps; counts how long each step waited for its batch."""

import json
import sys
import time
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, schedule
from torch.utils.data import DataLoader, Dataset

folder, sleep_s = Path(sys.argv[1]), float(sys.argv[2])
SIZE, BATCH, STEPS = 384, 4, 12


class SlowSamples(Dataset):
    """Samples that take their time, as from a disk far away."""

    def __len__(self) -> int:
        return BATCH * STEPS

    def __getitem__(self, number: int) -> torch.Tensor:
        time.sleep(sleep_s)
        return torch.full((SIZE,), float(number))


torch.set_num_threads(1)
model = torch.nn.Sequential(*(torch.nn.Linear(SIZE, SIZE) for _ in range(24)))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
waited_s, began = 0.0, time.perf_counter()
with profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=0, warmup=0, active=STEPS + 1)) as profiler:
    batches = iter(DataLoader(SlowSamples(), batch_size=BATCH))
    for _ in range(STEPS):
        asked = time.perf_counter()
        batch = next(batches)
        waited_s += time.perf_counter() - asked
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
        profiler.step()
    whole_s = time.perf_counter() - began
profiler.export_chrome_trace(str(folder / "rank0.pt.trace.json"))
(folder / "counted.json").write_text(json.dumps({"share": waited_s / whole_s}))
