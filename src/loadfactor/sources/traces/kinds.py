"""Which names are communication, copies and memsets, whatever the category they are filed under.

The names are those of NCCL, RCCL, oneCCL, NVSHMEM, DeepEP, vLLM's and TensorRT-LLM's own all-reduces and of symmetric memory; ROCm
files copies and fills as kernels.
"""

import re
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from loadfactor.tables.trace_events import GpuKind

_COMM: Final = re.compile(
    "nccl|rccl|mscclpp|msccl|nvshmem|oneccl|ccl_|deep_ep|cross_device_reduce|all_reduce_kernel|allreduce_|multimem|one_shot_all"
    "|two_shot_all|symm_mem",
    re.IGNORECASE,
)
_COPY: Final = re.compile("^(__amd_rocclr_copybuffer|memory_copy_)", re.IGNORECASE)
_FILL: Final = re.compile("^__amd_rocclr_fillbuffer", re.IGNORECASE)


def kind_of_kernel(name: str) -> GpuKind:
    """What a kernel does, by its name.

    >>> [kind_of_kernel(n).name for n in ("ncclDevKernel_AllReduce_Sum_bf16", "nvjet_tst", "__amd_rocclr_fillBuffer")]
    ['COMM', 'COMPUTE', 'MEMSET']
    """
    if _COPY.search(name):
        return GpuKind.MEMCPY
    if _FILL.search(name):
        return GpuKind.MEMSET
    return GpuKind.COMM if _COMM.search(name) else GpuKind.COMPUTE


def refine_kinds(kind: NDArray[np.int8], name: NDArray[np.int32], names: Sequence[str]) -> NDArray[np.int8]:
    """The kinds of GPU events, those filed as kernels by what their names say."""
    found = kind.copy()
    kernels = kind == GpuKind.COMPUTE
    for number in np.unique(name[kernels]):
        refined = kind_of_kernel(names[number]) if number >= 0 else GpuKind.COMPUTE
        if refined != GpuKind.COMPUTE:
            found[kernels & (name == number)] = refined
    return found
