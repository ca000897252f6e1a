"""FLOPs of the jobs that made progress: by the network that each trains, the planner's count, and the peak of its GPUs.

What is not known stays unknown: a job whose network nobody names has no model FLOPs, one whose datatype nobody names no peak.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from loadfactor.base.errors import InputError
from loadfactor.base.units import MS_PER_HOUR, MS_PER_S, S_PER_DAY, S_PER_HOUR, S_PER_MIN
from loadfactor.books.booking import find_suspects
from loadfactor.books.compiled_sql import expressions, recall
from loadfactor.catalog.accelerators import find_accelerator
from loadfactor.catalog.models import Network, read_network
from loadfactor.catalog.models.hf_config import from_hf_config
from loadfactor.metrics.work import (
    HARDWARE_FLOP,
    IN_SECTION,
    MODEL_FLOP,
    TRAIN_SAMPLE,
    TRAIN_TOKEN,
    WORKED_OUT,
)
from loadfactor.planner.training.flops import MODEL, FlopsConvention, palm_flops_per_token, training_flops_per_token
from loadfactor.settings.config import settings
from loadfactor.settings.jobs import DATATYPES, RECOMPUTED, JobNetwork
from loadfactor.store.sample_files import quote
from loadfactor.store.session import Session
from loadfactor.tables.schema import RUN
from loadfactor.tables.work import SECTION_KINDS

if TYPE_CHECKING:
    import pyarrow as pa


PACKED: Final = str(True)
"""What `packed` of [[network]] gives where it is set."""
GIVEN = ("model", "sequence_length", "datatype", "recompute", "packed")
_WHO: Final = ("user", "team", "project", "experiment_id", "purpose")
LAST_HOLDERS: Final = f"""
    SELECT * REPLACE ({", ".join(f'coalesce("{c}", max("{c}") OVER (PARTITION BY job_id)) AS "{c}"' for c in _WHO)})
    FROM {{}} QUALIFY row_number() OVER (PARTITION BY job_id ORDER BY known_from IS NOT DISTINCT FROM '{RUN}', from_utc DESC,
                                         attempt DESC) = 1"""
"""SQL: the last allocation of each job, with who it is of as any of its allocations says it; format takes the allocations."""
_UNITS = f"('{TRAIN_TOKEN}', '{TRAIN_SAMPLE}', '{MODEL_FLOP}', '{HARDWARE_FLOP}')"


def view_progress(session: Session, units: Sequence[str], networks: tuple[JobNetwork, ...]) -> None:
    """Name all progress `progress`, with the units that are worked out of it where one is requested.

    The ledger is called `ledger`. Raises InputError where a table [[network]] names one that is none.
    """
    packs = TRAIN_TOKEN in units and any(network.packed for network in settings().network)
    if not packs and not {*units} & {*WORKED_OUT}:
        session.view_table("progress", "progress")
        return
    has_sections = not {*units}.isdisjoint(IN_SECTION.values())
    worked_out = session.find_once(
        ("worked out", repr(networks), has_sections), lambda: _work_out(session, networks, has_sections)
    )
    session.create_view("progress", f"SELECT * FROM {worked_out}")


def _work_out(session: Session, networks: tuple[JobNetwork, ...], has_sections: bool) -> str:
    """The table of all progress and what is worked out of it: several queries of a question read it. With the work of sections
    where that is requested."""
    session.view_table("stored_progress", "progress")
    found = session.find_once(("job flops", repr(networks)), lambda: tabulate_job_flops(session, networks))
    if found is None:  # an empty table of Arrow's would take pandas, which is slow to import
        session.materialize("job_flops", _NOTHING)
    else:
        session.register("job_flops", found)
    if has_sections:
        session.view_table("job_sections", "job_sections")
        session.materialize("section_spans", _SPANS)
        has_sections = (
            session.fetch_one("SELECT count(*) FROM section_spans")[0] > 0
        )  # else the ledger need not be read
    session.materialize("section_work", f"{_WORK} ORDER BY ALL" if has_sections else _NO_SECTIONS)
    sql = recall("worked out", lambda: expressions().write_progress())["progress"]
    return session.materialize_shared("worked_out", sql)


_KNOWN = ("flops_per_token", "hardware_flops_per_token", "peak_flops", "tokens_per_sample")
_NOTHING = f"SELECT NULL::VARCHAR AS job_id, {', '.join(f'NULL::DOUBLE AS {name}' for name in _KNOWN)} WHERE false"


def tabulate_job_flops(session: Session, networks: tuple[JobNetwork, ...]) -> "pa.Table | None":
    """The table `job_flops`: FLOPs of a token, with those computed again, the dense peak of one GPU, mean over its time, and the
    tokens of a sample where samples are packed.

    None where nobody names a network. Tables [[network]] come before what tracked runs say of theirs. Progress is called
    `stored_progress`. Raises InputError where a table [[network]] names one that is none.
    """
    session.view_table("allocations", "allocations")
    if not networks and not session.fetch_one(f"SELECT count(*) FROM allocations WHERE known_from = {quote(RUN)}")[0]:
        return None
    import pyarrow as pa

    columns = pa.schema([("job_id", pa.string()), *((name, pa.float64()) for name in _KNOWN)])
    return pa.Table.from_pylist(list(_list_jobs(session, networks)), schema=columns)


def _list_jobs(session: Session, networks: tuple[JobNetwork, ...]) -> Iterator[dict[str, Any]]:
    session.materialize(
        "worked_jobs", f"SELECT DISTINCT job_id FROM stored_progress WHERE unit IN {_UNITS} OR model_flops IS NOT NULL"
    )
    jobs = session.fetch(f"{LAST_HOLDERS.format('allocations SEMI JOIN worked_jobs USING (job_id)')} ORDER BY job_id")
    from loadfactor.tables.tagging import give_texts  # slow to import

    literal = {network.model for network in networks if network.model and "{" not in network.model}
    given = give_texts([network.rule for network in networks], jobs, GIVEN)
    seconds, count = _sum_seconds(session), cache(_count_flops)
    lengths, stated = _measure_sequences(session), read_stated_networks(session)
    for place, job in enumerate(jobs["job_id"].to_pylist()):
        model, length, datatype, recompute, packed = (given[name][place] for name in GIVEN)
        own = stated.get(job, StatedNetwork())
        length = length or own.sequence_length or lengths.get(job)
        datatype = datatype or own.datatype
        network = (_find_network(model, model in literal) if model else None) or own.network
        counted = count(network, length, recompute) if network else own.count_by_parameters()
        peak = _find_peak(seconds.get(job, {}), datatype) if datatype else None
        tokens = float(length) if packed == PACKED and length is not None and length.isdecimal() else None
        yield {"job_id": job, **dict(zip(_KNOWN, (*counted, peak, tokens), strict=True))}


def _sum_seconds(session: Session) -> dict[str, dict[str | None, float]]:
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


@dataclass(frozen=True)
class StatedNetwork:
    """What a tracked run says of its network: its shape by a config, or the parameters that its matrix products use."""

    network: Network | None = None
    parameters: float | None = None
    sequence_length: str | None = None
    datatype: str | None = None

    def count_by_parameters(self) -> tuple[float | None, None]:
        """Model FLOPs of a token where the shape is not known: 6 a parameter, without the scores of attention."""
        return (palm_flops_per_token(self.parameters, 0, 0, 0), None) if self.parameters else (None, None)


def read_stated_networks(session: Session) -> dict[str, StatedNetwork]:
    """What tracked runs say of their networks last, by job; the allocations are called `allocations`."""
    rows = session.raw.execute(
        f"SELECT job_id, arg_max(tags, from_utc) FROM allocations WHERE known_from = {quote(RUN)} AND tags IS NOT NULL"
        " GROUP BY job_id"
    ).fetchall()
    stated = {job: json.loads(tags).get("network") for job, tags in rows}
    return {job: _read_stated(json.loads(text)) for job, text in stated.items() if text is not None}


def _read_stated(facts: Mapping[str, Any]) -> StatedNetwork:
    try:
        network = from_hf_config(facts["config"]) if isinstance(facts.get("config"), dict) else None
    except InputError:  # of a kind that nobody described: its parameters are left
        network = None
    parameters, length, datatype = (facts.get(name) for name in ("parameters", "sequence_length", "datatype"))
    return StatedNetwork(
        network,
        float(parameters) if isinstance(parameters, int | float) and parameters > 0 else None,
        str(length) if isinstance(length, int) and length > 0 else None,
        datatype if datatype in DATATYPES else None,
    )


def _measure_sequences(session: Session) -> dict[str, str]:
    """Tokens of a sample of each job, padding included where it is reported; as the network is trained on sequences."""
    rows = session.raw.execute(
        f"""SELECT job_id, try_cast(round(coalesce(sum(amount) FILTER (unit = 'padded_token'),
                     sum(amount) FILTER (unit = '{TRAIN_TOKEN}')) / sum(amount) FILTER (unit = '{TRAIN_SAMPLE}')) AS BIGINT)
                   AS length
            FROM stored_progress SEMI JOIN worked_jobs USING (job_id) GROUP BY job_id HAVING length > 0"""
    ).fetchall()
    return {job: str(length) for job, length in rows}


def _count_flops(network: Network, length: str | None, recompute: str | None) -> tuple[float | None, float | None]:
    """Model and hardware FLOPs of a token; None where not known."""
    if length is None or not length.isdecimal() or not int(length):
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


STEPS_S = (
    *(minutes * S_PER_MIN for minutes in (1, 2, 5, 10, 15, 30)),
    *(hours * S_PER_HOUR for hours in (1, 2, 4, 8)),
    S_PER_DAY,
)
MOST_STEPS = 480


@dataclass(frozen=True)
class JobActivity:
    """Activity (a share, by the best signal of each sample) in steps of `step_s` from `start_ms` on, None where unobserved.

    `mean` is that of all GPUs of the job, weighted by time; `lowest` and `highest` those of single GPUs.
    """

    start_ms: int
    step_s: int
    gpus: int
    mean: Sequence[float | None]
    lowest: Sequence[float | None]
    highest: Sequence[float | None]


def find_job_activity(session: Session, job: str, start_ms: int, end_ms: int) -> JobActivity | None:
    """Activity of the job's GPUs within [start, end). None where its allocations name no GPU, or no sample is of them."""
    session.put("chosen_job", {"job_id": [job], "from_utc": [start_ms], "to_utc": [end_ms]})
    session.view_table("allocations", "allocations")
    session.materialize("held_gpus", recall("GPUs of a job", lambda: expressions().write_held())["held"])
    first, last = session.fetch_one("SELECT min(from_utc), max(to_utc) FROM held_gpus")
    if first is None:
        return None
    files = session.covering("samples", (first, last))
    overlaps = bool(find_suspects([*session.parts(files), *session.live_samples]))
    session.view_table("samples", "samples", files, ((first, last),))
    queries = recall(f"activity of a job {overlaps}", lambda: expressions().write_activity(overlaps))
    found = session.fetch_columns(queries["activity"])
    if not len(found["activity"]):
        return None
    devices, device = np.unique(found["device_id"].astype(str), return_inverse=True)
    return _add_up(devices.size, device, *(np.asarray(found[c]) for c in ("from_ms", "to_ms", "activity")))


def _add_up(gpus: int, device: Any, from_ms: Any, to_ms: Any, activity: Any) -> JobActivity:
    """Samples (arrays of one length) as sums by GPU and step; a sample over several steps counts in each by its part."""
    span_s = (to_ms.max() - from_ms.min()) / MS_PER_S
    step_s = next((step for step in STEPS_S if span_s <= step * MOST_STEPS), STEPS_S[-1])
    step_ms = step_s * MS_PER_S
    start = int(from_ms.min() // step_ms * step_ms)
    first, last = (from_ms - start) // step_ms, (to_ms - 1 - start) // step_ms
    pieces = (last - first + 1).astype(int)
    of = np.repeat(np.arange(from_ms.size), pieces)
    step = np.repeat(first, pieces) + np.arange(of.size) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    edge = start + step * step_ms
    ms = np.minimum(to_ms[of], edge + step_ms) - np.maximum(from_ms[of], edge)
    steps = int(step.max()) + 1
    cell = device[of] * steps + step
    observed = np.bincount(cell, ms, gpus * steps).reshape(gpus, steps)
    active = np.bincount(cell, ms * activity[of], gpus * steps).reshape(gpus, steps)
    unknown = observed == 0
    share = np.divide(active, observed, out=np.zeros_like(active), where=~unknown)
    mean = np.divide(active.sum(0), observed.sum(0), out=np.full(steps, np.nan), where=~unknown.all(0))
    lowest = np.where(unknown, np.inf, share).min(0)
    highest = np.where(unknown, -np.inf, share).max(0)
    return JobActivity(start, step_s, gpus, *(_known(values) for values in (mean, lowest, highest)))


def _known(values: Any) -> list[float | None]:
    return [float(value) if np.isfinite(value) else None for value in values]


_OPEN: Final = ", ".join(f"sum(sum(step) FILTER (kind = '{kind}')) OVER job AS {kind}" for kind in SECTION_KINDS)
_FIRST: Final = " ".join(f"WHEN {kind} > 0 THEN '{IN_SECTION[kind]}'" for kind in SECTION_KINDS)
_SPANS: Final = f"""
    WITH edges AS (
        SELECT job_id, from_utc AS at_utc, kind, 1 AS step FROM job_sections WHERE to_utc > from_utc
        UNION ALL SELECT job_id, to_utc, kind, -1 FROM job_sections WHERE to_utc > from_utc),
    intervals AS (
        SELECT job_id, at_utc AS from_utc, lead(at_utc) OVER job AS to_utc, {_OPEN}
        FROM edges GROUP BY job_id, at_utc WINDOW job AS (PARTITION BY job_id ORDER BY at_utc))
    SELECT job_id, from_utc, to_utc, CASE {_FIRST} END AS unit,
           unnest(range(from_utc - from_utc % {MS_PER_HOUR}, to_utc, {MS_PER_HOUR})) AS hour_utc
    FROM intervals WHERE unit IS NOT NULL"""
"""Every instant counts for one kind at most: of several the first of `SECTION_KINDS`. A row an hour that a section touches."""
_WORK: Final = """
    WITH held AS (
        SELECT job_id, hour_utc, from_utc, to_utc, sum(gpu_s) AS gpu_s
        FROM ledger SEMI JOIN section_spans USING (job_id, hour_utc) GROUP BY ALL),
    parts AS (
        SELECT job_id, unit, gpu_s / (held.to_utc - held.from_utc) AS gpu_s_per_ms,
               greatest(spans.from_utc, held.from_utc) AS from_utc, least(spans.to_utc, held.to_utc) AS to_utc
        FROM section_spans AS spans JOIN held USING (job_id, hour_utc))
    SELECT job_id, unit, from_utc, to_utc, sum(gpu_s_per_ms) * (to_utc - from_utc) AS amount
    FROM parts WHERE to_utc > from_utc GROUP BY job_id, unit, from_utc, to_utc"""
_NO_SECTIONS: Final = """
    SELECT NULL::VARCHAR AS job_id, NULL::VARCHAR AS unit, NULL::BIGINT AS from_utc, NULL::BIGINT AS to_utc,
           NULL::DOUBLE AS amount WHERE false"""
