"""How is a training job cut over its GPUs? One layout, or arrays of many: the same fields, the same equations."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

RECOMPUTE = ("none", "selective", "full")  # the position is the code an array of layouts holds
NONE, SELECTIVE, FULL = range(3)


@dataclass(frozen=True)
class Layout:
    """Degrees of parallelism and the knobs beside them; every field is an int (or bool), or an array of them.

    GPUs are numbered tensor first, then context, data, pipeline: tensor ranks are neighbours inside a scale-up domain,
    pipeline stages lie farthest apart. `expert` divides `data`: experts are spread over data ranks. `recompute` is a
    position in RECOMPUTE, `zero` the stage of ZeRO (3: fully sharded).
    """

    tensor: Any = 1
    pipeline: Any = 1
    data: Any = 1
    context: Any = 1
    expert: Any = 1
    micro_batch: Any = 1
    interleave: Any = 1
    recompute: Any = NONE
    zero: Any = 1
    sequence_parallel: Any = False

    @property
    def gpus(self) -> Any:
        """How many GPUs it takes.

        >>> Layout(tensor=8, pipeline=4, data=2).gpus
        64
        """
        return self.tensor * self.pipeline * self.data * self.context

    def micro_batches(self, global_batch: Any) -> Any:
        """Micro-batches each pipeline works through in a step.

        >>> Layout(data=4, micro_batch=2).micro_batches(64)
        8
        """
        return global_batch // (self.data * self.micro_batch)

    def __len__(self) -> int:
        return int(np.size(self.tensor))

    @staticmethod
    def of(layouts: "list[Layout]") -> "Layout":
        """Many layouts as one with arrays."""
        return Layout(*(np.array([getattr(one, f.name) for one in layouts]) for f in fields(Layout)))

    def as_arrays(self) -> "Layout":
        """The same layout with every field an array of the same length, as the equations expect it."""
        columns = np.broadcast_arrays(*(np.atleast_1d(np.asarray(getattr(self, f.name))) for f in fields(self)))
        return Layout(*(np.asarray(c, dtype=np.float64) for c in columns))

    def pick(self, index: Any) -> "Layout":
        """One of many layouts as plain numbers, or many by an array of positions or a mask."""
        columns = [np.atleast_1d(np.asarray(getattr(self, f.name)))[index] for f in fields(self)]
        if np.ndim(columns[0]):
            return Layout(*columns)
        named = {f.name: int(c) for f, c in zip(fields(self), columns, strict=True)}
        return Layout(**{**named, "sequence_parallel": bool(named["sequence_parallel"])})

    def each(self) -> Iterator["Layout"]:
        """One layout after another, as plain numbers."""
        for i in range(len(self)):
            yield self.pick(i)

    def __str__(self) -> str:
        """What an engineer would write on a whiteboard.

        >>> print(Layout(tensor=8, pipeline=4, data=16, micro_batch=1, interleave=2, recompute=SELECTIVE))
        TP 8 · PP 4 ×2 · DP 16 · micro-batch 1 · selective recompute · ZeRO-1
        """
        parts = [f"TP {self.tensor}", f"PP {self.pipeline}" + (f" ×{self.interleave}" if self.interleave > 1 else "")]
        parts += [f"CP {self.context}"] * (self.context > 1) + [f"DP {self.data}"]
        parts += [f"EP {self.expert}"] * (self.expert > 1) + [f"micro-batch {self.micro_batch}"]
        parts += [f"{RECOMPUTE[self.recompute]} recompute", f"ZeRO-{self.zero}"]
        return " · ".join(parts)
