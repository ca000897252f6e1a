"""What kernels are by their names: on tensor cores or not, and matrix products.

Names of cuBLAS, cuDNN, CUTLASS, FlashAttention, rocBLAS, Composable Kernel and cuBLASLt's `nvjet`. What Triton, XLA and users write
may use tensor cores or not: unknown.
"""

import re
from typing import Final, Literal

TensorCores = Literal["yes", "no", "unknown"]

_USES: Final = re.compile(
    r"tensorop|[hsi](884|1688|16816)|hmma|imma|w?gmma|tcgen05|nvjet|xmma_(?!.*f32f32_f32f32_f32_)|flash_(fwd|bwd)|fmha|mfma"
    r"|_MT\d.*_MI|cutlass::device_kernel|bf16gemm|ck_tile|xdl",
    re.IGNORECASE,
)
_USES_NOT: Final = re.compile(r"ffma|simt|sgemm|dgemm|scudnn|gemv|gemmSN|splitKreduce", re.IGNORECASE)
_PRODUCT: Final = re.compile(
    r"gemm|conv|fprop|dgrad|wgrad|winograd|cutlass|xmma|cudnn.*(implicit|nn_v|fft)|_MT\d|matmul", re.IGNORECASE
)
_OPAQUE: Final = re.compile(r"triton|fusion|^%|^jit_|^loop_|inductor|^tvm|^void (?!at::|cudnn::)|^\w+$", re.IGNORECASE)


def tensor_cores_of(name: str) -> TensorCores:
    """Whether a kernel of this name computes on tensor cores.

    >>> [tensor_cores_of(n) for n in ("nvjet_tst_192x192", "ampere_sgemm_32x32_tn", "triton_poi_fused_0", "reduce_kernel<512, 1>")]
    ['yes', 'no', 'unknown', 'no']
    """
    if _USES.search(name) and not _USES_NOT.search(name):
        return "yes"
    return "unknown" if _OPAQUE.search(name) and not _USES_NOT.search(name) else "no"


def is_product(name: str) -> bool:
    """Whether a kernel of this name multiplies matrices or convolves, which tensor cores could do."""
    return bool(_PRODUCT.search(name) or _USES.search(name)) and "transpose" not in name.lower()
