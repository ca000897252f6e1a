"""The GPUs that a run works on, by their UUIDs: from the environment, the driver's files and torch; nothing is loaded for it."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

_VISIBLE: Final = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")
_DRIVER: Final = Path("/proc/driver/nvidia/gpus")
_NAMES: Final = ("GPU-", "MIG-")
_UUID: Final = re.compile(r"(?:GPU|MIG)-[0-9a-f]{8}[0-9a-f-]*")
_ASKING_S: Final = 5.0


def find_gpus(environment: Mapping[str, str], modules: Mapping[str, Any] = sys.modules) -> list[str] | None:
    """UUIDs of the GPUs that the processes of a run see on this machine; None where nobody can say yet, empty where it has none.

    >>> find_gpus({"CUDA_VISIBLE_DEVICES": "GPU-8f2c1e00-1,GPU-8f2c1e00-2"}, {})
    ['GPU-8f2c1e00-1', 'GPU-8f2c1e00-2']
    >>> find_gpus({"CUDA_VISIBLE_DEVICES": ""}, {})
    []

    Where all of a machine's are visible, those are meant that local ranks take, or on which this process has memory.
    """
    visible = next((environment[name] for name in _VISIBLE if name in environment), None)
    if visible in ("all", None):
        there = list_gpus()
        return there if len(there) < 2 else _find_used(there, environment, modules)
    names = [
        name.strip() for name in visible.split(",") if name.strip() not in ("", "-1", "none", "void", "NoDevFiles")
    ]
    there = list_gpus()
    if all(name.startswith(_NAMES) for name in names):
        return [next((uuid for uuid in there if uuid.startswith(name)), name) for name in names]
    places = [int(name) for name in names if name.isdigit()]
    return [there[place] for place in places if place < len(there)]


def list_gpus() -> list[str]:
    """UUIDs of the GPUs of this machine, in the order of their PCI addresses, as nvidia-smi numbers them."""
    found: list[str] = []
    try:
        for folder in sorted(_DRIVER.iterdir()):
            uuid = _UUID.search((folder / "information").read_text())
            if uuid is None:
                raise OSError("a driver that does not say them there")
            found.append(uuid[0])
    except OSError:
        found = _ask_driver()
    return found


def _ask_driver() -> list[str]:
    import shutil  # both for the few machines whose driver does not say them in its files
    import subprocess

    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    command = [program, "--query-gpu=uuid", "--format=csv,noheader"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=_ASKING_S, check=False).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return _UUID.findall(answer)


def _find_used(there: list[str], environment: Mapping[str, str], modules: Mapping[str, Any]) -> list[str] | None:
    ranks = environment.get("LOCAL_WORLD_SIZE", "")
    if ranks.isdigit() and 0 < int(ranks) <= len(there):
        return there[: int(ranks)]
    cuda = getattr(modules.get("torch"), "cuda", None)
    try:
        if cuda is None or not cuda.is_initialized() or cuda.device_count() != len(there):
            return None
        used = [uuid for place, uuid in enumerate(there) if cuda.memory_reserved(place) > 0]
    except Exception:  # somebody else's code
        return None
    return used or None
