"""SQL of stored samples: files as a relation with the start of each sample worked out.

Most rows are read as they lie. Around a file that is not normalized yet, samples of several files are put
together first: sorted, merged where they speak of the same sample, and cut anew. Compaction does the same once and for
all (`normalize`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from loadfactor.base.units import MS_PER_HOUR
from loadfactor.store.manifest import LONGEST_REACH_MS, SampleFacts
from loadfactor.tables.schema import MEASUREMENTS, REACH_STEPS, SAMPLE_COLUMNS, Span

_COLUMNS = ", ".join(SAMPLE_COLUMNS)
_KEY = "device_id, source, sampled_utc"
MOST_PARTS = 1_000_000
"""More than there ever are."""
_TOLD = ("began_utc", "step_ms", "lone_step_ms", *MEASUREMENTS)


@dataclass(frozen=True)
class SamplePart:
    """Samples as they are stored, in a file or a table of a session: `relation` is SQL, `[from_ms, to_ms)` what they may cover."""

    relation: str
    from_ms: int
    to_ms: int
    facts: SampleFacts

    @cached_property
    def reach_ms(self) -> int:
        """How far apart two samples of a series may lie and still touch."""
        return max([LONGEST_REACH_MS, *(int(REACH_STEPS * s.step_ms) for s in self.facts.starts if s.step_ms)])


@dataclass(frozen=True)
class Patch:
    """Hours and devices, both by their first and last, in which samples of several parts meet."""

    from_ms: int
    to_ms: int
    first_device: str
    last_device: str
    reach_ms: int

    def touches(self, other: "Patch") -> bool:
        """True where both speak of some hour of some device."""
        return (
            self.from_ms < other.to_ms
            and other.from_ms < self.to_ms
            and self.first_device <= other.last_device
            and other.first_device <= self.last_device
        )

    def join(self, other: "Patch") -> "Patch":
        """The least patch that holds both."""
        return Patch(
            min(self.from_ms, other.from_ms),
            max(self.to_ms, other.to_ms),
            min(self.first_device, other.first_device),
            max(self.last_device, other.last_device),
            max(self.reach_ms, other.reach_ms),
        )

    @property
    def sql(self) -> str:
        """The rows inside it."""
        devices = f"device_id BETWEEN {quote(self.first_device)} AND {quote(self.last_device)}"
        return f"(hour_utc >= {self.from_ms} AND hour_utc < {self.to_ms} AND {devices})"


def samples(parts: Sequence[SamplePart], steps: Mapping[str, int], within: tuple[Span, ...] = ()) -> str:
    """SQL: samples as a relation (`SAMPLE_COLUMNS`), each inside one hour; only of the hours that `within` touches.

    `steps`: the step learnt for each source.
    """
    inside = _inside(within)
    patches = [p for p in list_patches(parts) if not within or any(s < p.to_ms and e > p.from_ms for s, e in within)]
    apart = "".join(f" AND NOT {patch.sql}" for patch in patches)
    whole = " UNION ALL ".join(f"SELECT * FROM {relation}" for relation in _gather(parts))
    queries = [_as_stored(whole, f"{inside}{apart}", nominal(parts, steps))]
    for patch in patches:
        near = [
            p for p in parts if p.from_ms < patch.to_ms + patch.reach_ms and p.to_ms > patch.from_ms - patch.reach_ms
        ]
        queries.append(_put_together(near, patch, inside, nominal(near, steps)))
    return f"({' UNION ALL '.join(queries)})"


def list_patches(parts: Sequence[SamplePart]) -> list[Patch]:
    """Where parts that are not normalized meet others; no two of the patches touch."""
    patches: list[Patch] = []
    for part in parts:
        if part.facts.settled:
            continue
        facts = part.facts
        start = min(part.from_ms, facts.first_taken_ms - part.reach_ms)
        end = facts.last_taken_ms + part.reach_ms
        patch = Patch(
            start - start % MS_PER_HOUR, end + -end % MS_PER_HOUR, facts.first_device, facts.last_device, part.reach_ms
        )
        while near := [p for p in patches if p.touches(patch)]:
            patches = [p for p in patches if p not in near]
            for other in near:
                patch = patch.join(other)
        patches.append(patch)
    return patches


def taken(parts: Sequence[SamplePart], where: str = "true", numbered: bool = False) -> str:
    """SQL: samples as they were taken: `sampled_utc`, `began_utc` where it was given, what they measure, and their import.

    `numbered`: with `part`, the number of the part they lie in. Parts are in the order they were written, and one import may
    have several: those of a day's live rows.
    """
    columns = ["device_id", "source", "to_utc AS sampled_utc", "if(given, to_utc - reach_ms, NULL) AS began_utc"]
    columns += ["step_ms", "lone_step_ms", "measured_mask", *MEASUREMENTS, "import_no"]
    if numbered:
        columns.append("part")
        whole = " UNION ALL ".join(f"SELECT *, {n} AS part FROM {part.relation}" for n, part in enumerate(parts))
    else:
        whole = " UNION ALL ".join(f"SELECT * FROM {relation}" for relation in _gather(parts))
    return f"(SELECT {', '.join(columns)} FROM ({whole}) WHERE late_ms = 0 AND {where})"


def read(paths: Sequence[Path]) -> str:
    """SQL reading a list of Parquet files."""
    return f"read_parquet([{quote_all(map(str, paths))}])"


def quote(text: str) -> str:
    """A text as SQL writes it."""
    return "'" + text.replace("'", "''") + "'"


def quote_all(texts: Iterable[str]) -> str:
    """Texts as SQL writes them in a list."""
    return ", ".join(map(quote, texts))


def nominal(parts: Sequence[SamplePart], steps: Mapping[str, int]) -> str:
    """SQL: the nominal step of a sample: as stated, else as learnt of its source, else what the source usually does, else none."""
    sources = sorted({source for part in parts for source in part.facts.sources})
    known = {source: steps[source] for source in sources if source in steps}
    chosen = (
        [f"CASE source {' '.join(f'WHEN {quote(s)} THEN {step}' for s, step in known.items())} END"] if known else []
    )
    if len(sources) == 1 and known:
        chosen = [str(known[sources[0]])]
    starts = [start for part in parts for start in part.facts.starts]
    if any(start.step_ms is not None for start in starts):
        chosen.insert(0, "step_ms")
    if len(known) < len(sources):
        chosen += ["lone_step_ms", "0"]
    return chosen[0] if len(chosen) == 1 else f"coalesce({', '.join(chosen)})"


def _gather(parts: Sequence[SamplePart]) -> list[str]:
    prefix = "read_parquet(["
    files = [p.relation.removeprefix(prefix).removesuffix("])") for p in parts if p.relation.startswith(prefix)]
    gathered = [f"{prefix}{', '.join(files)}])"] if files else []
    return gathered + [p.relation for p in parts if not p.relation.startswith(prefix)]


def _inside(within: tuple[Span, ...]) -> str:
    if not within:
        return "true"
    where = f"hour_utc > {within[0][0] - MS_PER_HOUR} AND hour_utc < {within[-1][1]}"
    if len(within) > 1:
        hours = (h for s, e in within for h in range(s - s % MS_PER_HOUR, e, MS_PER_HOUR))
        where += f" AND hour_utc IN ({', '.join(str(h) for h in dict.fromkeys(hours))})"
    return where


def _as_stored(rows: str, where: str, step: str) -> str:
    """Rows as they lie, with their starts; rows that the step does not reach are none."""
    return f"""SELECT {_COLUMNS} FROM (
      SELECT *, greatest(hour_utc, sampled_utc - reach) AS from_utc FROM (
        SELECT *, to_utc + late_ms AS sampled_utc, if(given, to_utc + late_ms - reach_ms, NULL) AS began_utc,
          if(given OR reach_ms <= {REACH_STEPS}::DOUBLE * nominal_ms, reach_ms, nominal_ms) AS reach
        FROM (SELECT *, {step} AS nominal_ms FROM ({rows}) WHERE {where}))
      ) WHERE from_utc < to_utc"""


def _put_together(parts: Sequence[SamplePart], patch: Patch, inside: str, step: str) -> str:
    """The samples of a patch, sorted, merged and cut anew: of the same one the latest import that says something counts."""
    near = (
        f"device_id BETWEEN {quote(patch.first_device)} AND {quote(patch.last_device)}"
        f" AND to_utc > {patch.from_ms - patch.reach_ms}"
        f" AND (to_utc <= {patch.to_ms + patch.reach_ms} OR (given AND to_utc - reach_ms < {patch.to_ms}))"
    )
    order = f"coalesce(import_no, -1)::BIGINT * {MOST_PARTS} + part"
    latest = ", ".join(f"arg_max({c}, {order}) AS {c}" for c in _TOLD)
    stated = ", ".join(_TOLD)
    return f"""SELECT {_COLUMNS} FROM (
      WITH taken AS {taken(parts, near, numbered=True)},
      twice AS (SELECT {_KEY} FROM taken GROUP BY ALL HAVING count(*) > 1),
      merged AS (
        SELECT {_KEY}, measured_mask, {stated} FROM taken ANTI JOIN twice USING ({_KEY}) UNION ALL
        SELECT {_KEY}, bit_or(measured_mask) AS measured_mask, {latest} FROM taken SEMI JOIN twice USING ({_KEY}) GROUP BY {_KEY}
      ),
      linked AS (
        SELECT *, sampled_utc - lag(sampled_utc) OVER (PARTITION BY device_id, source ORDER BY sampled_utc) AS gap_ms,
          {step} AS nominal_ms FROM merged
      ),
      begun AS (
        SELECT *, CASE WHEN began_utc IS NOT NULL THEN began_utc WHEN gap_ms <= {REACH_STEPS} * nominal_ms
          THEN sampled_utc - gap_ms ELSE sampled_utc - nominal_ms END AS start_utc FROM linked
      ),
      cut AS (
        SELECT *, unnest(range(start_utc // {MS_PER_HOUR}, (sampled_utc - 1) // {MS_PER_HOUR} + 1)) * {MS_PER_HOUR} AS hour_utc
        FROM begun WHERE start_utc < sampled_utc
      )
      SELECT *, greatest(start_utc, hour_utc) AS from_utc, least(sampled_utc, hour_utc + {MS_PER_HOUR}) AS to_utc FROM cut
    ) WHERE {inside} AND {patch.sql}"""
