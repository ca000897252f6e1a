"""What sites put before their schedulers: Slurm's job_submit and task prolog, and an admission policy of Kubernetes."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
STUBS = Path(__file__).with_name("slurm_stubs.lua")
LUA = shutil.which("lua5.4") or shutil.which("lua5.3") or shutil.which("lua")


def ask_slurm(job: dict[str, str], refuse: bool = False, function: str = "slurm_job_submit") -> tuple[int, bool]:
    """The code that job_submit.lua gives, and whether it tells the user something."""
    if LUA is None:
        if os.environ.get("LOADFACTOR_REQUIRE_REAL"):
            raise AssertionError("no lua; install the Debian package lua5.4")
        pytest.skip("no lua here; the Debian package is lua5.4")
    lines = "".join(f"{name}={text}\n" for name, text in job.items())
    plugin = str(EXAMPLES / "slurm" / "job_submit.lua")
    environment = {"LOADFACTOR_REFUSE": "1"} if refuse else {}
    done = subprocess.run(
        [LUA, str(STUBS), plugin, function], input=lines, capture_output=True, text=True, check=True, env=environment
    )
    *told, code = done.stdout.splitlines()
    return int(code), bool(told)


@pytest.mark.parametrize(
    "asks",
    [
        {"tres_per_node": "gres:gpu:2"},
        {"tres_per_node": "gres/gpu:h100:8"},
        {"tres_per_job": "gres:gpu:4"},
        {"tres_per_task": "cpu:4,gres/gpu=1"},
        {"tres_per_node": "gres/shard:2"},
        {"gres": "gpu:1"},
    ],
)
def test_slurm_warns_about_a_gpu_job_without_experiment_or_refuses_it(asks: dict[str, str]) -> None:
    """However GPUs are asked for; a comment or a wckey names it, a default wckey or a blank comment does not."""
    assert ask_slurm(asks) == (0, True)
    assert ask_slurm(asks, refuse=True) == (-1, True)
    assert ask_slurm({**asks, "comment": "exp-7"}, refuse=True) == (0, False)
    assert ask_slurm({**asks, "wckey": "exp-7"}, refuse=True) == (0, False)
    assert ask_slurm({**asks, "wckey": "*"}, refuse=True) == (-1, True)
    assert ask_slurm({**asks, "comment": " "}, refuse=True) == (-1, True)


def test_slurm_leaves_other_jobs_alone() -> None:
    """Jobs without GPUs are asked nothing."""
    assert ask_slurm({}, refuse=True) == (0, False)
    assert ask_slurm({"tres_per_node": "gres:nic:1", "comment": ""}, refuse=True) == (0, False)


def test_slurm_lets_a_comment_be_corrected_and_not_emptied() -> None:
    """`scontrol update` of a job that holds GPUs."""
    before = {"before.tres_per_node": "gres:gpu:2", "before.comment": "exp-7"}
    assert ask_slurm({**before, "comment": "exp-8"}, True, "slurm_job_modify") == (0, False)
    assert ask_slurm({**before, "comment": ""}, True, "slurm_job_modify") == (-1, True)
    assert ask_slurm({**before, "time_limit": "5"}, True, "slurm_job_modify") == (0, False)


def run_prolog(**environment: str) -> list[str]:
    script = EXAMPLES / "slurm" / "task_prolog.sh"
    done = subprocess.run(["/bin/sh", str(script)], capture_output=True, text=True, check=True, env=environment)
    return done.stdout.splitlines()


def test_the_task_prolog_says_it_in_the_output_of_the_job() -> None:
    """Once a step; a comment becomes what the agent reads; jobs without GPUs and those that name an experiment hear nothing."""
    assert run_prolog() == []
    assert run_prolog(SLURM_JOB_GPUS="0,1", LOADFACTOR_EXPERIMENT="x") == []
    assert run_prolog(SLURM_JOB_GPUS="0,1", SLURM_JOB_COMMENT="exp-7") == ["export LOADFACTOR_EXPERIMENT=exp-7"]
    assert all(line.startswith("print ") for line in run_prolog(SLURM_JOB_GPUS="0", SLURM_JOB_COMMENT="a b; rm"))
    assert len(run_prolog(CUDA_VISIBLE_DEVICES="0", SLURM_PROCID="0")) == 2
    assert run_prolog(CUDA_VISIBLE_DEVICES="0", SLURM_PROCID="3") == []


def admits(pod: dict[str, Any]) -> bool:
    """Whether every validation of the policy holds for a pod, its variables worked out in their order as the API server does."""
    import cel
    import yaml

    policy, binding = yaml.safe_load_all((EXAMPLES / "kubernetes" / "gpu-experiment-policy.yaml").read_text())
    assert binding["spec"]["policyName"] == policy["metadata"]["name"]
    known: dict[str, Any] = {}
    for variable in policy["spec"]["variables"]:
        known[variable["name"]] = cel.evaluate(variable["expression"], {"object": pod, "variables": known})
    rules = policy["spec"]["validations"]
    return all(cel.evaluate(rule["expression"], {"object": pod, "variables": known}) for rule in rules)


def make_pod(limits: dict[str, str] | None = None, **metadata: Any) -> dict[str, Any]:
    """A pod as a Job makes it: a sidecar without resources first."""
    main: dict[str, Any] = {"name": "main", "image": "train:1", "resources": {}}
    if limits is not None:
        main["resources"] = {"limits": limits, "requests": limits}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "train-", "namespace": "vision", **metadata},
        "spec": {"containers": [{"name": "proxy", "image": "istio"}, main], "restartPolicy": "Never"},
    }


GPUS = [
    {"nvidia.com/gpu": "8", "cpu": "64"},
    {"nvidia.com/gpu.shared": "1"},
    {"nvidia.com/mig-1g.10gb": "1"},
    {"nvidia.com/gpucores": "30", "nvidia.com/gpumem": "4000"},
    {"amd.com/gpu": "2"},
    {"k8s.amazonaws.com/vgpu": "1"},
]


@pytest.mark.parametrize("limits", GPUS, ids=lambda limits: next(iter(limits)))
def test_kubernetes_asks_gpu_pods_for_their_experiment(limits: dict[str, str]) -> None:
    """However a GPU or a part of one is asked for; an empty label names nothing."""
    assert not admits(make_pod(limits))
    assert not admits(make_pod(limits, labels={"app": "train"}))
    assert not admits(make_pod(limits, labels={"experiment": ""}))
    assert admits(make_pod(limits, labels={"app": "train", "experiment": "exp-7"}))


def test_kubernetes_finds_gpus_of_init_containers_and_claims() -> None:
    """A pod that only checks GPUs before it starts holds them as well; so does one that claims them."""
    early = make_pod({"cpu": "1"})
    early["spec"]["initContainers"] = [{"name": "check", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]
    assert not admits(early)
    claimed = make_pod({"cpu": "1"})
    claimed["spec"]["containers"][1]["resources"]["claims"] = [{"name": "gpu"}]
    claimed["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]
    assert not admits(claimed)


def test_kubernetes_leaves_other_pods_alone() -> None:
    """With and without resources and labels."""
    assert admits(make_pod())
    assert admits(make_pod({"cpu": "2", "memory": "4Gi"}))
    assert admits(make_pod({"hugepages-2Mi": "1"}, labels={"app": "web"}))
