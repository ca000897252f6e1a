"""What each validation takes, and its one-line description; imports no planner, so that its help is instant."""

from dataclasses import dataclass
from pathlib import Path

from loadfactor.request import Request, option

ABOUT_TRAINING = "Compare predicted training speed and memory with measured ones."
ABOUT_SERVING = "Compare predicted latency and throughput with measured ones."
ABOUT_MFU = "Compare the MFU that papers print with what its formula gives."


@dataclass(frozen=True, kw_only=True)
class TrainingValidationRequest(Request):
    """Which measurements of training to compare, and how many rows to show."""

    rows: tuple[Path, ...] = option("CSV files of measurements, or folders of them. Published tables if not given.", ())
    all_rows: bool = option("Show every row, not only the worst.", False, name="--all")


@dataclass(frozen=True, kw_only=True)
class ServingValidationRequest(Request):
    """Measurements to predict."""

    rows: Path | None = option(
        "CSV of measurements: model, system, backend, isl, osl, tp, concurrency, tpot_ms, ttft_ms, …", None
    )
    model_config: Path | None = option("Folder of config.json files for models the catalog does not know.", None)


@dataclass(frozen=True)
class MfuRequest(Request):
    """The published MFU table; it takes nothing."""
