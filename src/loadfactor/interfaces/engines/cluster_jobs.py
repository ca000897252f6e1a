"""Tasks on clusters that run commands: an array of Slurm, which is submitted and waited for, and an indexed Job of Kubernetes.

Both give each index its tasks, by name, and run `loadfactor ledger book`; both retry what fails.
"""

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING, Any, Final

from loadfactor import __version__
from loadfactor.base.errors import InputError, StoreError
from loadfactor.base.paths import read_url

if TYPE_CHECKING:
    from loadfactor.store.importing import Progress

LONGEST_ARRAY: Final = 1000
"""Indices of an array: Slurm's MaxArraySize is 1001 by default."""
RETRIES: Final = 3
POLL_S: Final = 0.5
STORE_MOUNT: Final = "/var/lib/loadfactor"


def divide(names: Sequence[str]) -> list[list[str]]:
    """Tasks by index: one each, as long as the array may have so many.

    >>> divide(["a", "b"]), len(divide(["a"] * 2500)), {len(part) for part in divide(["a"] * 2500)}
    ([['a'], ['b']], 834, {1, 3})
    """
    size = -(-len(names) // LONGEST_ARRAY)
    return [list(names[first : first + size]) for first in range(0, len(names), size)]


def write_slurm_script(store: Path, names: Sequence[str]) -> str:
    """A batch script that books tasks as an array; it runs where this process does, with its Python."""
    parts = divide(names)
    cases = "\n".join(f"{index}) tasks={','.join(part)} ;;" for index, part in enumerate(parts))
    command = join(
        [
            sys.executable,
            "-m",
            "loadfactor",
            "ledger",
            "book",
            "--store",
            read_url(store) or str(store.absolute()),
            "--task",
        ]
    )
    return f"""#!/bin/sh
#SBATCH --job-name=loadfactor-ledger
#SBATCH --array=0-{len(parts) - 1}
#SBATCH --cpus-per-task=1
#SBATCH --requeue
#SBATCH --output=/dev/null
case "$SLURM_ARRAY_TASK_ID" in
{cases}
esac
tries=0
until {command} "$tasks"; do
  tries=$((tries + 1))
  [ "$tries" -lt {RETRIES} ] || exit 1
done
"""


def run_slurm(store: Path, names: Sequence[str], count_done: Callable[[], int], progress: "Progress") -> None:
    """Submit an array and wait for it. Raises InputError without Slurm, StoreError where a task failed for good."""
    if shutil.which("sbatch") is None:
        raise InputError("sbatch is not here; run this where jobs are submitted, or take --engine local:N")
    words = ["sbatch", "--parsable", "--wait", f"--chdir={Path.cwd()}"]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as array:
        if array.stdin is not None:
            array.stdin.write(write_slurm_script(store, names))
            array.stdin.close()
            array.stdin = None
        while array.poll() is None:
            progress("booking days in Slurm", count_done() / len(names))
            time.sleep(POLL_S)
        out, complaint = array.communicate()
    if array.returncode:
        number = out.strip().partition(";")[0]
        why = complaint.strip().splitlines()[-1:] or [f"`sacct -j {number}` says which index and why"]
        raise StoreError(
            f"the array {number or 'was not submitted'}: {why[0]}; `loadfactor ledger plan` has what is left"
        )


def make_kubernetes_job(
    names: Sequence[str], image: str | None, claim: str, store: Path | None = None
) -> dict[str, Any]:
    """An indexed Job that books tasks in pods, for `kubectl create -f -`.

    The books are in a bucket where `store` is one, else on a volume that all of them may mount.
    """
    url = None if store is None else read_url(store)
    parts = divide(names)
    cases = " ".join(f"{index}) tasks={','.join(part)};;" for index, part in enumerate(parts))
    command = join(["loadfactor", "ledger", "book", "--store", url or STORE_MOUNT, "--task"])
    script = f'case "$JOB_COMPLETION_INDEX" in {cases} esac; exec {command} "$tasks"'
    container = {
        "name": "loadfactor",
        "image": image or f"loadfactor:{__version__}",
        "command": ["/bin/sh", "-c", script],
        "resources": {"requests": {"cpu": "1", "memory": "2Gi"}, "limits": {"memory": "4Gi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "env": [{"name": name, "value": "/tmp"} for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME")],
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }
    volumes: list[dict[str, Any]] = [{"name": "tmp", "emptyDir": {}}]
    if url is None:
        container["volumeMounts"] = [{"name": "store", "mountPath": STORE_MOUNT}, {"name": "tmp", "mountPath": "/tmp"}]
        volumes.append({"name": "store", "persistentVolumeClaim": {"claimName": claim}})
    pod = {
        "restartPolicy": "Never",
        "securityContext": {"runAsNonRoot": True, "runAsUser": 10001, "fsGroup": 10001},
        "containers": [container],
        "volumes": volumes,
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"generateName": "loadfactor-ledger-", "labels": {"app.kubernetes.io/name": "loadfactor"}},
        "spec": {
            "completionMode": "Indexed",
            "completions": len(parts),
            "parallelism": len(parts),
            "backoffLimitPerIndex": RETRIES,
            "ttlSecondsAfterFinished": 86400,
            "template": {"spec": pod},
        },
    }
