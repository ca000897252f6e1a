"""The held time of jobs that serve several, divided by what each used of it: by tokens that gateways logged, day by day of UTC.

Idle time is nobody's use: it stays with who holds the job. So does what engines counted and no gateway logged, or of no tenant.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from loadfactor.base.units import MS_PER_DAY, S_PER_HOUR, US_PER_S
from loadfactor.metrics.work import CACHED, OUTPUT, PROMPT, SPLIT
from loadfactor.settings.config import settings
from loadfactor.store.sample_files import quote
from loadfactor.store.session import Session

REQUEST: Final = "request"
ROUNDING: Final = 1e-9
"""A share of tokens that comes of adding up alone."""
_UNITS: Final = {REQUEST: "requests", PROMPT: "prompt_tokens", CACHED: "cached_prompt_tokens", OUTPUT: "output_tokens"}
_WHO: Final = ("tenant", '"user"', "api_key", "feature", "model")
CHARGED_AS: Final = ("team", "user")
"""What is the tenant's of its part, where who used a job is charged for it; its project and the rest are the job's."""
_SHOWN: Final = ("tenant", "api_key", "feature", "model")


@dataclass(frozen=True)
class Use:
    """What one tenant, API key and feature used of a model, and its part of what held time cost, idle time apart."""

    team: str | None
    api_key: str | None
    feature: str | None
    model: str | None
    requests: float
    prompt_tokens: float
    cached_prompt_tokens: float
    output_tokens: float
    share: float
    cost: float | None


@dataclass(frozen=True)
class ServedUse:
    """Uses of a job, the greatest first, and what is nobody's: their costs, `unlogged_cost` and `idle_cost` sum to the job's.

    Where `idle_cost` is None nobody knows when it was idle, and uses bear that, too.
    `unlogged_share` is of tokens that the engines counted and no gateway logged; `half_known` requests lack one kind of tokens.
    """

    uses: tuple[Use, ...]
    unlogged_share: float
    unlogged_cost: float | None
    idle_cost: float | None
    half_known: int


def is_charged_to_users(session: Session) -> bool:
    """True where the settings charge who used what jobs served, and the books know of any."""
    return settings().chargeback.served == "users" and session.has_rows("served_requests")


def divide_ledger(session: Session, charged: bool, by_us: bool = False) -> None:
    """Divide the rows of `window_ledger` by who used what their job served: `tenant`, `api_key`, `feature`, `model`.

    Where it is `charged`, team and user of a row are those of its tenant. `work_id` is the job, another for each user of it.
    `by_us`: seconds are divided as whole microseconds, which sum to those of the row.
    """
    from loadfactor.ledger.sums import ADDITIVE  # slow to import

    _put_uses(session)
    parts = [f"{name} * coalesce(upto - since, 1) AS {name}" for name in ADDITIVE]
    if by_us:
        whole = f"round(gpu_s * {US_PER_S})"
        seconds = f"round({whole} * upto) - round({whole} * since)"
        parts[ADDITIVE.index("gpu_s")] = f"if(upto IS NULL, gpu_s, ({seconds}) / {US_PER_S}) AS gpu_s"
    if charged:
        parts += [f"if(u.tenant IS NULL, held.{name}, u.{name}) AS {name}" for name in map('"{}"'.format, CHARGED_AS)]
    shown = ", ".join(f"u.{name}" for name in _SHOWN)
    session.create_view(
        "window_ledger",
        f"""WITH held AS ({session.read_view("window_ledger")})
        SELECT held.* REPLACE ({", ".join(parts)}), {shown}, {_write_work_id("held")} AS work_id
        FROM held LEFT JOIN served_uses u ON held.job_id = u.job_id AND held.state <> 'idle'
          AND held.hour_utc >= u.day AND held.hour_utc < u.day + {MS_PER_DAY}""",
    )


def divide_progress(session: Session) -> None:
    """Divide the rows of `progress`, as `divide_ledger` does; their `job_id` is the `work_id` of that."""
    _put_uses(session)
    parts = " ".join(f"WHEN '{unit}' THEN part_of_{name}" for unit, name in _UNITS.items())
    part = f"coalesce(CASE unit {parts} ELSE upto - since END, 1)"
    session.create_view(
        "progress",
        f"""WITH made AS ({session.read_view("progress")})
        SELECT made.* REPLACE (amount * {part} AS amount, model_flops * {part} AS model_flops, {_write_work_id("made")} AS job_id)
        FROM made LEFT JOIN served_uses u ON made.job_id = u.job_id AND made.from_utc >= u.day
          AND made.from_utc < u.day + {MS_PER_DAY}""",
    )


def _write_work_id(rows: str) -> str:
    names = " || ".join(f"chr(31) || coalesce(u.{name}, '')" for name in ("tenant", '"user"'))
    return f"if(u.tenant IS NULL, {rows}.job_id, {rows}.job_id || {names})"


def list_tenants(session: Session, column: str) -> set[str]:
    """The values of `tenant`, or of what tenants are charged as: `team`, `user`."""
    _put_uses(session)
    rows = session.raw.execute(f'SELECT DISTINCT "{column}" FROM served_uses WHERE tenant IS NOT NULL').fetchall()
    return {name for (name,) in rows if name is not None}


def divide_use(
    session: Session, job: str, span: tuple[int, int], basis: str, costs: tuple[float | None, float | None]
) -> ServedUse | None:
    """Divide what a job cost among who used it within [start, end), ms UTC; None where no request of it was logged on these days.

    `window_ledger` is that of the job and the span; `costs` are those of all its held time and of the idle part of it, in a
    `basis`. Requests are those that began in the span, parts those of whole UTC days, as everywhere.
    """
    session.materialize("span_uses", _write_uses(session, f"from_utc >= {span[0]} AND from_utc < {span[1]}"))
    counts = ", ".join(f"sum({name})" for name in _UNITS.values())
    used = session.raw.execute(
        f"SELECT {', '.join(_SHOWN)}, {counts}, sum(half_known) FROM span_uses"
        f" WHERE job_id = {quote(job)} AND NOT is_rest GROUP BY ALL"
    ).fetchall()
    divide_ledger(session, charged=False)
    session.materialize("job_uses", "SELECT * FROM window_ledger")
    held = {
        row[: len(_SHOWN)]: row[len(_SHOWN) :]
        for row in session.raw.execute(
            f"""SELECT {", ".join(_SHOWN)}, sum(gpu_s), sum(gpu_s * price_per_gpu_hour_{basis}) FROM job_uses
            WHERE job_id = {quote(job)} AND state <> 'idle' GROUP BY ALL"""
        ).fetchall()
    }
    cost, idle = costs
    is_priced = cost is not None and all(of[1] is not None for of in held.values())
    by = 1 if is_priced else 0
    whole = sum(of[by] or 0.0 for of in held.values()) or 1.0
    nobody = (None,) * len(_SHOWN)
    # of a day that the span cuts, whose requests all lie outside
    used += [
        (*who, *(0.0,) * len(_UNITS), 0)
        for who in sorted({*held} - {row[: len(_SHOWN)] for row in used} - {nobody}, key=repr)
    ]
    if not used:
        return None
    uses = []
    for team, key, feature, model, requests, prompt, cached, output, _ in used:
        own = held.pop((team, key, feature, model), (0.0, None if cost is None else 0.0))
        uses.append(
            Use(
                team,
                key,
                feature,
                model,
                requests,
                prompt,
                cached,
                output,
                (own[by] or 0.0) / whole,
                _read_cost(own[1]),
            )
        )
    unlogged = sum(of[by] or 0.0 for of in held.values()) / whole
    unlogged = unlogged if unlogged > ROUNDING else 0.0
    unlogged_cost = None if cost is None else _read_cost(sum(of[1] or 0.0 for of in held.values()))
    uses.sort(
        key=lambda use: (-use.share, *(getattr(use, name) or "" for name in ("team", "api_key", "feature", "model")))
    )
    return ServedUse(tuple(uses), unlogged, unlogged_cost, idle, sum(int(row[-1]) for row in used))


def _read_cost(of_seconds: float | None) -> float | None:
    """Money of GPU-seconds × price an hour."""
    return None if of_seconds is None else of_seconds / S_PER_HOUR


def _put_uses(session: Session) -> None:
    """Have the table `served_uses`: whose which part of a job was on each day with requests of a gateway; once a session."""
    of = settings()
    key = "served uses", repr((of.serving_jobs, of.tenant_teams))
    if key not in session.derived:
        session.derived[key] = session.materialize("served_uses", _write_uses(session, "true"))


def _write_pairs(names: str, pairs: Iterable[tuple[str, str]]) -> str:
    """SQL of a few pairs of texts."""
    rows = ", ".join(f"({quote(first)}, {quote(second)})" for first, second in pairs)
    first, second = names.split(", ")
    nothing = f"SELECT NULL::VARCHAR AS {first}, NULL::VARCHAR AS {second} WHERE false"
    return f"SELECT * FROM (VALUES {rows}) AS pairs({names})" if rows else nothing


def _write_uses(session: Session, within: str) -> str:
    """SQL: by job and day of UTC the parts that those had who used it, `since` to `upto` of 1, by tokens as `SPLIT` weighs them.

    The rest, `is_rest`, is what the engines counted beyond these. Of a model that several jobs serve each has the part of requests
    that its engines' tokens are of all of theirs on that day, equal parts where they count none. `part_of_…` are of single units.
    """
    for table, name in (("served_requests", "requests_logged"), ("progress", "progress_made")):
        session.view_table(name, table)
    sums = ", ".join(f"sum({name}) AS {name}" for name in _UNITS.values())
    weight = " + ".join(
        f"coalesce({_UNITS[unit]}, 0) * {SPLIT[unit] - (SPLIT[PROMPT] if unit == CACHED else 0)}" for unit in SPLIT
    )
    made = ", ".join(f"sum(if(unit = '{unit}', amount * part, 0)) AS {name}" for unit, name in _UNITS.items())
    parts = ", ".join(
        f"coalesce(u.{name} / nullif(greatest(sum(u.{name}) OVER day_of_job, c.{name}), 0), 0) AS part_of_{name}"
        for name in _UNITS.values()
    )
    rest = ", ".join(f"greatest(0, 1 - sum(part_of_{name})) AS part_of_{name}" for name in _UNITS.values())
    shared = ", ".join(f"{name} * part AS {name}" for name in (*_UNITS.values(), "weight"))
    of = settings()
    jobs = of.serving_jobs.items()
    serving = _write_pairs("model, job_id", ((model, job) for model, those in jobs for job in those))
    return f"""WITH serving AS ({serving}), teams AS ({_write_pairs("tenant, team", of.tenant_teams.items())}),
    days AS (
      SELECT job_id, unit, amount, from_utc, greatest(to_utc, from_utc + 1) AS to_utc,
        unnest(range(from_utc - from_utc % {MS_PER_DAY}, greatest(to_utc, from_utc + 1), {MS_PER_DAY})) AS day
      FROM progress_made WHERE unit IN ({", ".join(map(quote, _UNITS))}) AND coalesce(kept, true)),
    made AS (
      SELECT job_id, day, {made} FROM (
        SELECT *, (least(to_utc, day + {MS_PER_DAY}) - greatest(from_utc, day)) / (to_utc - from_utc) AS part FROM days)
      GROUP BY ALL),
    counted AS (SELECT *, {weight} AS weight FROM made),
    asked AS (
      SELECT job_id, from_utc - from_utc % {MS_PER_DAY} AS day, team AS tenant, "user", api_key, feature, model,
        sum(coalesce(requests, 1)) AS requests, sum(coalesce(prompt_tokens, 0)) AS prompt_tokens,
        sum(least(coalesce(cached_prompt_tokens, 0), coalesce(prompt_tokens, 0))) AS cached_prompt_tokens,
        sum(coalesce(output_tokens, 0)) AS output_tokens,
        count(*) FILTER (prompt_tokens IS NULL OR output_tokens IS NULL) AS half_known
      FROM requests_logged WHERE {within} GROUP BY ALL),
    numbered AS (SELECT *, {weight} AS weight, row_number() OVER () AS id FROM asked),
    placed AS (
      SELECT n.* REPLACE (coalesce(s.job_id, n.job_id) AS job_id), CASE WHEN s.job_id IS NULL THEN 1
          WHEN sum(c.weight) OVER one > 0 THEN coalesce(c.weight, 0) / sum(c.weight) OVER one ELSE 1 / count(*) OVER one END AS part
      FROM numbered n LEFT JOIN serving s ON n.model = s.model AND n.job_id = n.model
        LEFT JOIN counted c ON c.job_id = s.job_id AND c.day = n.day WINDOW one AS (PARTITION BY n.id)),
    used AS (SELECT * REPLACE ({shared}) FROM placed),
    summed AS (
      SELECT job_id, day, {", ".join(_WHO)}, {sums}, sum(weight) AS weight, sum(half_known) AS half_known FROM used GROUP BY ALL),
    shares AS (
      SELECT u.*, row_number() OVER so_far AS place, {parts},
        sum(u.weight) OVER so_far / nullif(greatest(sum(u.weight) OVER day_of_job, c.weight), 0) AS reached
      FROM summed u LEFT JOIN counted c USING (job_id, day)
      WINDOW day_of_job AS (PARTITION BY u.job_id, u.day),
        so_far AS (PARTITION BY u.job_id, u.day ORDER BY u.weight DESC, {", ".join(_WHO)} ROWS UNBOUNDED PRECEDING)),
    reached AS (
      SELECT * EXCLUDE (reached), if(abs(1 - reached) < {ROUNDING}, 1.0, reached) AS upto FROM shares WHERE reached IS NOT NULL),
    parted AS (
      SELECT *, lag(upto, 1, 0.0) OVER (PARTITION BY job_id, day ORDER BY place) AS since, false AS is_rest FROM reached)
    SELECT p.*, coalesce(t.team, p.tenant) AS team FROM parted p LEFT JOIN teams t USING (tenant)
    UNION ALL BY NAME
    SELECT job_id, day, max(upto) AS since, 1.0 AS upto, true AS is_rest, 0 AS half_known, {rest} FROM parted
    GROUP BY job_id, day HAVING max(upto) < 1"""
