"""Options of each validation, and its one-line description; imports no planner, so that its help is instant."""

from dataclasses import dataclass
from pathlib import Path

from loadfactor.base.errors import InputError
from loadfactor.base.limits import GPU_COUNT, TOKEN_COUNT
from loadfactor.base.request import Request, option

FREE = "The fastest that fits where not given."
OF_JOB = ("store", "model", "seq", "datatype", "tp", "pp", "cp", "ep", "micro_batch", "zero")
"""Options of a job alone."""


@dataclass(frozen=True, kw_only=True)
class TrainingValidationRequest(Request):
    """Which measurements of training to compare, and how many rows to show."""

    rows: tuple[Path, ...] = option("CSV files of measurements, or folders of them. Published tables if not given.", ())
    all_rows: bool = option("Show every row, not only the worst.", False, name="--all")
    about: bool = option("The fitted constants, and the error on every source that they were not fitted to.", False)
    job: str | None = option("A job of the books: its steps beside the plan for its network and GPUs.", None)
    store: Path | None = option("With --job: folder of the books. [default: books, or what loadfactor.toml says]", None)
    model: str | None = option("With --job: its network, where no [[network]] of loadfactor.toml says it.", None)
    seq: int | None = option("With --job: tokens in a sequence, where nothing says it.", None, within=TOKEN_COUNT)
    datatype: str | None = option("With --job: datatype of the matrix products, where nothing says it.", None)
    tp: tuple[int, ...] = option(f"With --job: tensor-parallel ranks. {FREE}", (), within=GPU_COUNT)
    pp: tuple[int, ...] = option(f"With --job: pipeline stages. {FREE}", (), within=GPU_COUNT)
    cp: tuple[int, ...] = option(f"With --job: context-parallel ranks. {FREE}", (), within=GPU_COUNT)
    ep: tuple[int, ...] = option(f"With --job: expert-parallel ranks. {FREE}", (), within=GPU_COUNT)
    micro_batch: tuple[int, ...] = option(f"With --job: sequences in a micro-batch. {FREE}", (), at_least=1)
    zero: tuple[int, ...] = option(f"With --job: ZeRO stage (3: FSDP). {FREE}", (), at_least=0, at_most=3)

    def __post_init__(self) -> None:
        """Refuse what is for a job alone where none is named, and files beside one."""
        super().__post_init__()
        given = [name for name in OF_JOB if getattr(self, name) not in (None, ())]
        if self.job is None and given:
            raise InputError(f"--{given[0].replace('_', '-')} is for a job of the books: give --job, too")
        if self.about and (self.rows or self.job):
            raise InputError("--about is of the published runs: give no --rows and no --job beside it")
        if self.job is not None and self.rows:
            raise InputError("give --rows FILE or --job JOB, not both")


@dataclass(frozen=True, kw_only=True)
class MemoryValidationRequest(Request):
    """Which training runs to hold the memory against."""

    rows: tuple[Path, ...] = option("CSV files of measurements, or folders of them. Published tables if not given.", ())
    all_rows: bool = option("Show every row, not only those that are off.", False, name="--all")


@dataclass(frozen=True, kw_only=True)
class ServingValidationRequest(Request):
    """Measurements to predict."""

    rows: Path | None = option(
        "CSV of measurements: model, system, backend, isl, osl, tp, concurrency, tpot_ms, ttft_ms, …", None
    )
    model_config: Path | None = option("Folder of config.json files for models the catalog does not know.", None)
    about: bool = option("The fitted constants, and what each was fitted on.", False)


@dataclass(frozen=True)
class MfuRequest(Request):
    """The published MFU table; it takes nothing."""


@dataclass(frozen=True)
class RlValidationRequest(Request):
    """The published steps of reinforcement learning; it takes nothing."""
