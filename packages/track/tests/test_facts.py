"""What a run finds out beside its loop: its GPUs and its network, by the environment and a model; nothing is imported for it."""

from pathlib import Path
from typing import Any

import pytest
from loops import read_lines, run_loop

ONE, OTHER = "GPU-11111111-aaaa", "GPU-22222222-bbbb"
FAR, LAST = "GPU-33333333-aaaa", "GPU-44444444-bbbb"
STEP = "    run.step(step=1, samples=2, tokens=100)\n"


def find(folder: Path, kind: str) -> list[dict[str, Any]]:
    """The records of a kind."""
    return [line for line in read_lines(folder) if line["kind"] == kind]


@pytest.mark.parametrize(("visible", "gpus"), [(f"{ONE},{OTHER}", [ONE, OTHER]), ("", []), ("-1", [])])
def test_visible_uuids_are_the_gpus_of_a_run(tmp_path: Path, visible: str, gpus: list[str]) -> None:
    """What CUDA_VISIBLE_DEVICES names is in a record; where it names none there is no such record, and the loop goes on."""
    code = f"with loadfactor.track(experiment='e') as run:\n{STEP}"
    assert run_loop(code, tmp_path, CUDA_VISIBLE_DEVICES=visible).stderr == ""
    assert [line["devices"] for line in find(tmp_path, "devices")] == ([gpus] if gpus else [])
    assert len(find(tmp_path, "work")) == 1


def test_ranks_of_other_machines_say_their_gpus(tmp_path: Path) -> None:
    """Rank 0 says what all did; the first rank of each other machine, or each rank with a GPU alone, says which are its own."""
    code = f"with loadfactor.track(experiment='e') as run:\n{STEP}"
    for rank, local, visible in (
        (0, 0, f"{ONE},{OTHER}"),
        (1, 1, f"{ONE},{OTHER}"),
        (2, 0, f"{FAR},{LAST}"),
        (3, 1, LAST),
        (4, 1, ""),
    ):
        names = {"RANK": f"{rank}", "LOCAL_RANK": f"{local}", "WORLD_SIZE": "5", "CUDA_VISIBLE_DEVICES": visible}
        assert run_loop(code, tmp_path, **names).stderr == ""
    assert sorted(line["devices"] for line in find(tmp_path, "devices")) == [[ONE, OTHER], [FAR, LAST], [LAST]]
    assert sorted(line["rank"] for line in find(tmp_path, "begin")) == [0, 2, 3]
    assert len(find(tmp_path, "work")) == 1
    assert len(find(tmp_path, "end")) == 3


@pytest.mark.parametrize(("amounts", "flops"), [("samples=2, tokens=100", 300.0), ("samples=2", 6.0)])
def test_given_flops_are_those_of_tokens_else_of_samples(tmp_path: Path, amounts: str, flops: float) -> None:
    """flops= is of one token where steps report tokens, else of one sample; FLOPs of a step come before it."""
    code = f"with loadfactor.track(flops=3) as run:\n    run.step({amounts})\n    run.step({amounts}, model_flops=7)\n"
    assert run_loop(code, tmp_path).stderr == ""
    assert [line["model_flops"] for line in find(tmp_path, "work")] == [[flops, 7]]


MODEL = """
import sys
class Datatype:
    def __init__(self, name): self.name = name
    def __str__(self): return f"torch.{self.name}"
class Weight:
    dtype = Datatype("DTYPE")
    def __init__(self, size): self.size = size
    def numel(self): return self.size
    def dim(self): return 2
class Embedding:
    weight = Weight(1000)
class Config:
    def to_dict(self): return {"model_type": "llama", "hidden_size": 64, "torch_dtype": Datatype("bfloat16")}
class Model:
    config = Config()
    def __init__(self): self.hooks, self.weights = [], [Weight(50), Weight(30), Embedding.weight]
    def parameters(self): return iter(self.weights)
    def modules(self): return iter([self, Embedding()])
    def register_forward_pre_hook(self, hook):
        self.hooks.append(hook)
        return self
    def remove(self): self.hooks.clear()
class Wrapped:
    module = Model()
class torch:
    @staticmethod
    def is_autocast_enabled(): return torch.autocast
    @staticmethod
    def get_autocast_gpu_dtype(): return Datatype("float16")
    autocast = False
sys.modules["torch"] = torch
with loadfactor.track(model=Wrapped()) as run:
    torch.autocast = True
    for hook in list(Wrapped.module.hooks):
        hook()
    run.step(tokens=1)
"""


@pytest.mark.parametrize(("weights", "datatype"), [("bfloat16", "bf16"), ("float32", "fp16")])
def test_a_model_says_its_shape_and_datatype(tmp_path: Path, weights: str, datatype: str) -> None:
    """The configuration, parameters of matrices without look-ups, and the datatype: of weights, else of autocast when called."""
    assert run_loop(MODEL.replace("DTYPE", weights), tmp_path).stderr == ""
    found: dict[str, Any] = {}
    for line in find(tmp_path, "network"):
        found |= line["network"]
    assert found == {"config": {"model_type": "llama", "hidden_size": 64}, "parameters": 80, "datatype": datatype}


def test_a_model_that_cannot_be_read_ends_nothing(tmp_path: Path) -> None:
    """What raises is left out, and the loop goes on."""
    code = "class Broken:\n    def __getattr__(self, name): raise RuntimeError(name)\n"
    assert run_loop(f"{code}with loadfactor.track(model=Broken()) as run:\n{STEP}", tmp_path).returncode == 0
    assert len(find(tmp_path, "work")) == 1
