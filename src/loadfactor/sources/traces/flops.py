"""Floating-point operations of matrix products, from the shapes that a trace says of an operator's inputs: 2·m·n·k.

A lower bound: convolutions and what is written as one fused kernel are not counted.
"""

import json
from typing import Final

import numpy as np
from numpy.typing import NDArray

PRODUCTS: Final = {
    "aten::mm": 0,
    "aten::bmm": 0,
    "aten::_scaled_mm": 0,
    "aten::_int_mm": 0,
    "aten::addmm": 1,
    "aten::_addmm_activation": 1,
    "aten::baddbmm": 1,
}
"""The operators that multiply matrices, and which input the first matrix is."""


def count_flops(operator: str, shapes: str) -> float | None:
    """The operations of one call; None for another operator or shapes that are no product.

    >>> count_flops("aten::mm", "[[8, 4], [4, 2]]"), count_flops("aten::baddbmm", "[[3], [5, 8, 4], [5, 4, 2]]")
    (128.0, 640.0)
    >>> count_flops("aten::mm", "[[8, 4], [3, 2]]"), count_flops("aten::relu", "[[8, 4]]")
    (None, None)
    """
    at = PRODUCTS.get(operator)
    if at is None:
        return None
    try:
        left, right = json.loads(shapes)[at : at + 2]
        *batch, m, k = (int(size) for size in left)
        *_, inner, n = (int(size) for size in right)
    except (ValueError, TypeError):
        return None
    return 2.0 * m * n * k * float(np.prod(batch, initial=1.0)) if inner == k else None


def match_flops(
    calls: NDArray[np.int64], names: list[str], wanted: NDArray[np.int64], length_ns: NDArray[np.int64]
) -> NDArray[np.float32]:
    """The operations of each GPU event, at the longest event of each call; NaN where they are unknown.

    `calls` has an operator's name, shapes and number a row; `wanted` is the number of the operator that each event belongs to.
    """
    found = np.full(len(wanted), np.nan, np.float32)
    flops: dict[tuple[int, int], float | None] = {}
    of_call = {}
    for name, shapes, number in calls.tolist():
        key = (name, shapes)
        if key not in flops:
            flops[key] = count_flops(names[name], names[shapes])
        if flops[key] is not None:
            of_call[number] = flops[key]
    if not of_call:
        return found
    for event in np.argsort(-length_ns, kind="stable").tolist():
        found[event] = of_call.pop(int(wanted[event]), np.nan)
    return found
