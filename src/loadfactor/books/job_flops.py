"""FLOPs of the jobs that made progress: by the network that each trains, the planner's count, and the peak of its GPUs.

What is not known stays unknown: a job whose network nobody names has no model FLOPs, one whose datatype nobody names no peak.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from loadfactor.base.errors import InputError
from loadfactor.books.compiled_sql import recall
from loadfactor.books.section_work import tabulate_section_work
from loadfactor.catalog.accelerators import find_accelerator
from loadfactor.catalog.models import Network, read_network
from loadfactor.metrics.work import HARDWARE_FLOP, IN_SECTION, MODEL_FLOP, TRAIN_TOKEN, WORKED_OUT
from loadfactor.planner.training.flops import MODEL, FlopsConvention, training_flops_per_token
from loadfactor.settings.networks import RECOMPUTED, JobNetwork
from loadfactor.store.session import Session
from loadfactor.tables.tagging import give_texts

if TYPE_CHECKING:
    import pyarrow as pa

GIVEN = ("model", "sequence_length", "datatype", "recompute")
_UNITS = f"('{TRAIN_TOKEN}', '{MODEL_FLOP}', '{HARDWARE_FLOP}')"


def view_progress(session: Session, units: Sequence[str], find_flops: "Callable[[], pa.Table | None]") -> None:
    """Name all progress `progress`, with the units that are worked out of it where one is asked for.

    The ledger is called `ledger`. `find_flops` gives what `tabulate_job_flops` found; it is asked where that is needed.
    """
    if not {*units} & {*WORKED_OUT}:
        session.view_table("progress", "progress")
        return
    session.view_table("stored_progress", "progress")
    found = find_flops()
    if found is None:  # an empty table of Arrow's would take pandas, which is slow to import
        session.materialize("job_flops", _NOTHING)
    else:
        session.register("job_flops", found)
    tabulate_section_work(session, is_asked=not {*units}.isdisjoint(IN_SECTION.values()))
    session.create_view("progress", recall("worked out", _compile)["progress"])


_KNOWN = ("flops_per_token", "hardware_flops_per_token", "peak_flops")
_NOTHING = f"SELECT NULL::VARCHAR AS job_id, {', '.join(f'NULL::DOUBLE AS {name}' for name in _KNOWN)} WHERE false"


def tabulate_job_flops(session: Session, networks: tuple[JobNetwork, ...]) -> "pa.Table | None":
    """The table `job_flops`: FLOPs of a token, with those computed again, and the dense peak of one GPU, mean over its time.

    None without networks. Progress is called `stored_progress`. Raises InputError where a table [[network]] names one that is none.
    """
    if not networks:
        return None
    import pyarrow as pa

    columns = pa.schema([("job_id", pa.string()), *((name, pa.float64()) for name in _KNOWN)])
    return pa.Table.from_pylist(list(_list_jobs(session, networks)), schema=columns)


def _list_jobs(session: Session, networks: tuple[JobNetwork, ...]) -> Iterator[dict[str, Any]]:
    session.view_table("allocations", "allocations")
    session.materialize(
        "worked_jobs",
        f"SELECT DISTINCT job_id FROM stored_progress WHERE unit IN {_UNITS} OR model_flops IS NOT NULL",
    )
    jobs = session.fetch(
        """SELECT * FROM allocations SEMI JOIN worked_jobs USING (job_id)
           QUALIFY row_number() OVER (PARTITION BY job_id ORDER BY from_utc DESC, attempt DESC) = 1 ORDER BY job_id"""
    )
    literal = {network.model for network in networks if network.model and "{" not in network.model}
    given = give_texts([network.rule for network in networks], jobs, GIVEN)
    seconds, count = _sum_seconds(session), cache(_count_flops)
    for place, job in enumerate(jobs["job_id"].to_pylist()):
        model, length, datatype, recompute = (given[name][place] for name in GIVEN)
        counted = count(model, length, recompute, model in literal)
        peak = _find_peak(seconds.get(job, {}), datatype) if datatype else None
        yield {"job_id": job, **dict(zip(_KNOWN, (*counted, peak), strict=True))}


def _sum_seconds(session: Session) -> dict[str, dict[str | None, float]]:
    """By job and accelerator, the GPU-seconds it held."""
    found: dict[str, dict[str | None, float]] = {}
    rows = session.raw.execute(
        "SELECT job_id, accelerator, sum(gpu_s) FROM ledger SEMI JOIN worked_jobs USING (job_id) GROUP BY ALL"
    ).fetchall()
    for job, accelerator, gpu_s in rows:
        found.setdefault(job, {})[accelerator] = gpu_s
    return found


def _find_peak(seconds: Mapping[str | None, float], datatype: str) -> float | None:
    """The dense peak of a GPU, FLOP/s, mean over the time of a job; None where one of its accelerators is not known."""
    total = 0.0
    for accelerator, gpu_s in seconds.items():
        found = accelerator and find_accelerator(accelerator)
        peak = found.get(f"peak_{datatype}_flops") if found else None
        if peak is None:
            return None
        total += peak * gpu_s
    return total / sum(seconds.values()) if total else None


def _count_flops(
    model: str | None, length: str | None, recompute: str | None, is_certain: bool
) -> tuple[float | None, float | None]:
    """Model and hardware FLOPs of a token; None where not known. A name that the configuration gives as it is must be known."""
    network = _find_network(model, is_certain) if model else None
    if network is None or length is None or not length.isdecimal() or not int(length):
        return None, None
    sequence = int(length)
    hardware = None
    if recompute in RECOMPUTED:
        hardware = training_flops_per_token(network, sequence, FlopsConvention(recomputed=recompute))
    return training_flops_per_token(network, sequence, MODEL), hardware


def _find_network(model: str, is_certain: bool) -> Network | None:
    try:
        return read_network(model)
    except InputError as error:
        if is_certain:
            raise InputError(f"[[network]]: {error}") from error
        return None


def _compile() -> dict[str, str]:
    from loadfactor.books.expressions import write_progress  # Ibis takes longer to import than most answers

    return {"progress": write_progress()}
