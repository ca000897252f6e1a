"""Compute Engine: saved lists of instances with GPUs, and operations that took some away → what is installed, and who holds it."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, ClassVar, Final

from loadfactor.base.errors import SourceError
from loadfactor.base.units import MS_PER_S, S_PER_HOUR
from loadfactor.catalog.accelerators import find_accelerator
from loadfactor.sources.base import Gap, Input, ReadOptions, Rows, Source
from loadfactor.sources.clouds.cloud_series import as_list, as_object
from loadfactor.sources.clouds.ec2 import read_instant
from loadfactor.sources.clouds.live_instances import Listed, LiveInstanceDecoder, read_documents, write_instance_tags
from loadfactor.sources.files import find_with, read_with
from loadfactor.sources.parsing.cells import TableRow, write_tables
from loadfactor.sources.slurm.gpus import MOST_ON_NODE

OVER: Final = frozenset(("STOPPING", "STOPPED", "SUSPENDING", "SUSPENDED", "TERMINATED", "DEPROVISIONING"))
NOT_YET: Final = "PROVISIONING"
PREEMPTED_BY: Final = "compute.instances.preempted"
"""The type of operation by which Compute Engine takes an instance away."""
_STOPPED_AT: Final = ("lastStopTimestamp", "lastSuspendedTimestamp")
_CLUSTERS: Final = ("goog-k8s-cluster-name", "goog-gke-node", "slurm_cluster_name", "batch-job-id")
"""Labels of machines that a scheduler fills; who holds them is for it to say."""
_WITH_GPUS: Final = re.compile(r"(?:a2|a3|a4|a4x|g2|g4)-")
_KIND_OF: Final = re.compile(r"nvidia-(?:tesla-)?(.+?)(?:-vws)?")
_MODELS: Final = {"nvidia-tesla-a100": "nvidia-a100-40gb"}
"""Types of accelerators whose name leaves out which of several it is."""
_INSTANCE, _OPERATION = "compute#instance", "compute#operation"


@dataclass(frozen=True)
class GceInstance:
    """An instance since it was started last. `ended_ms` is None while it runs, and where nobody says when it ended."""

    number: str
    name: str
    domain: str
    """The rest of its name in DNS, which makes it unique: zone and project, as DNS has them."""
    machine_type: str
    gpus: tuple[tuple[str, int], ...]
    began_ms: int
    is_over: bool
    ended_ms: int | None
    labels: Mapping[str, str]

    @property
    def is_of_cluster(self) -> bool:
        """Whether its labels say that a scheduler fills it."""
        return any(label in self.labels for label in _CLUSTERS)

    @property
    def lacks_gpus(self) -> bool:
        """Whether its type has GPUs, and it lists none."""
        return not self.gpus and _WITH_GPUS.match(self.machine_type) is not None


@dataclass
class GceAnswers:
    """All that was listed, of one project or several."""

    instances: dict[tuple[str, int], GceInstance] = field(default_factory=dict)
    preempted: dict[str, set[int]] = field(default_factory=dict)
    """When (ms) instances were taken away, by their number."""

    def add(self, listed: Any, label: str) -> None:
        """One answer: of gcloud (a list), or of the API (a page). Raises SourceError for what is none."""
        try:
            for one in _list_objects(listed, label):
                kind = one.get("kind") or (_OPERATION if "operationType" in one else _INSTANCE)
                if kind == _INSTANCE:
                    if (instance := read_instance(one)) is not None:
                        self.instances[instance.number, instance.began_ms] = instance
                elif kind == _OPERATION:
                    if one["operationType"] == PREEMPTED_BY:
                        self.preempted.setdefault(str(one["targetId"]), set()).add(read_instant(one["insertTime"]))
                else:
                    raise SourceError(
                        f"{label}: {str(kind)[:60]!r} is neither an instance nor an operation of Compute Engine"
                    )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise SourceError(f"{label} is not as Compute Engine writes it ({reason}); is it whole?") from None

    def find_preemption(self, instance: GceInstance) -> int | None:
        """When this run was taken away (ms): the last time that operations name."""
        later = [began for number, began in self.instances if number == instance.number and began > instance.began_ms]
        found = [at_ms for at_ms in self.preempted.get(instance.number, ()) if at_ms >= instance.began_ms]
        return max((at_ms for at_ms in found if not any(began <= at_ms for began in later)), default=None)

    def find_end(self, instance: GceInstance) -> int | None:
        """When it ended (ms), as it says, or the operation; None where nobody says."""
        return instance.ended_ms or self.find_preemption(instance)

    def name_nodes(self) -> dict[tuple[str, int], str]:
        """The node of each run: called by the instance's name, with its domain where it is used in several zones."""
        counts = Counter(name for name, _ in {(one.name, one.domain) for one in self.instances.values()})
        return {
            key: one.name if counts[one.name] == 1 else f"{one.name}.{one.domain}"
            for key, one in self.instances.items()
        }


def read_instance(listed: Mapping[str, Any]) -> GceInstance | None:
    """An instance as the API writes it; None of one that has no machine yet. Raises KeyError, TypeError or ValueError."""
    status = str(listed["status"])
    if status == NOT_YET:
        return None
    began_ms = read_instant(listed.get("lastStartTimestamp") or listed["creationTimestamp"])
    ends = [read_instant(listed[name]) for name in _STOPPED_AT if listed.get(name)]
    ended_ms = max((end for end in ends if end >= began_ms), default=None) if status in OVER else None
    gpus = tuple(_read_gpus(one) for one in listed.get("guestAccelerators") or ())
    if sum(count for _, count in gpus) > MOST_ON_NODE:
        raise ValueError(f"{sum(count for _, count in gpus)} GPUs of one instance")
    place = re.search(r"/projects/([^/]+)/zones/([^/]+)", str(listed.get("selfLink") or listed.get("zone") or ""))
    return GceInstance(
        number=str(listed["id"]),
        name=str(listed["name"]),
        domain=f"{place[2]}.c.{place[1]}.internal" if place else "internal",
        machine_type=_last_part(listed.get("machineType")),
        gpus=gpus,
        began_ms=began_ms,
        is_over=status in OVER,
        ended_ms=ended_ms,
        labels={str(key): str(value) for key, value in (listed.get("labels") or {}).items()},
    )


def _read_gpus(listed: Mapping[str, Any]) -> tuple[str, int]:
    kind = _last_part(listed["acceleratorType"])
    name = _KIND_OF.fullmatch(_MODELS.get(kind, kind))
    known = find_accelerator(f"NVIDIA {name[1].replace('-', ' ').upper()}") if name else None
    return known.id if known else kind, int(listed["acceleratorCount"])


def _last_part(url: Any) -> str:
    return str(url or "").rpartition("/")[2]


def _list_objects(listed: Any, label: str) -> Iterable[Mapping[str, Any]]:
    """Instances and operations, whichever way they are listed: by gcloud, of one zone, or of all."""
    if isinstance(listed, list):
        return [as_object(one, label) for one in listed]
    page = as_object(listed, label)
    items = page.get("items")
    if isinstance(items, dict):
        scopes = [as_object(scope, label) for scope in items.values()]
        kinds = ("instances", "operations")
        return [as_object(one, label) for of in scopes for kind in kinds for one in as_list(of.get(kind), label)]
    if items is None and "name" in page and ("status" in page or "operationType" in page):
        return [page]
    if items is None and not str(page.get("kind", "")).startswith("compute#"):
        raise SourceError(f"{label} is no answer of Compute Engine: neither a list of instances nor of operations")
    return [as_object(one, label) for one in as_list(items, label)]


NO_END: Final = "instances that are over, nobody says since when: taken to end when the list was taken"
NO_GPUS_SAID: Final = "instances of a type with GPUs that list none"


def decode_gce(inputs: Sequence[Input], options: ReadOptions) -> Iterator[Rows | Gap]:
    """Rows of all lists together. Raises SourceError for what is none, or where nothing says when they were taken."""
    answers, label = GceAnswers(), inputs[0].label
    for where, document in read_documents(inputs, "Compute Engine"):
        answers.add(document, where)
    if options.at_ms is None:
        raise SourceError(
            f"{label}: lists of instances do not say when they were taken: give --at; docs/connect-clouds.md"
        )
    rows: list[TableRow] = []
    gaps: Counter[str] = Counter()
    nodes = answers.name_nodes()
    for key, instance in answers.instances.items():
        gaps[NO_GPUS_SAID] += instance.lacks_gpus
        gaps[NO_END] += bool(instance.gpus) and instance.is_over and answers.find_end(instance) is None
        rows += list_instance_rows(answers, instance, nodes[key], options.at_ms, options.at_ms, options.pool)
    if not rows:
        raise SourceError(f"{label}: no instance with GPUs is among the {len(answers.instances):,} that are listed")
    yield from write_tables(rows, label)
    yield from (Gap(label, what, count) for what, count in gaps.items() if count)


def list_instance_rows(
    answers: GceAnswers, instance: GceInstance, node: str, at_ms: int, until_ms: int | None, pool: str | None = None
) -> Iterator[TableRow]:
    """The rows of an instance; none where it has no GPUs. `at_ms`: when it was listed; `until_ms`: until when what goes on is
    known, None where that is to be seen.

    GPUs are known by their number alone (`node:gpu0`): where an exporter or the Ops Agent names them, they count once.
    """
    end_ms, taken_ms = until_ms, answers.find_preemption(instance)
    if instance.is_over:
        ended_ms = answers.find_end(instance)
        end_ms = at_ms if ended_ms is None else ended_ms
    if not instance.gpus or (end_ms is not None and end_ms <= instance.began_ms):
        return
    span = {"from_utc": instance.began_ms, "to_utc": end_ms}
    kinds = [kind for kind, count in instance.gpus for _ in range(count)]
    for number, kind in enumerate(kinds):
        yield "devices", {"device_id": f"{node}:gpu{number}", "node": node, "accelerator": kind, "pool": pool, **span}
        if taken_ms is not None:
            event = {"at_utc": taken_ms, "kind": "other", "detail": "preempted by Compute Engine"}
            yield "device_events", {"device_id": f"{node}:gpu{number}", **event}
    if not instance.is_of_cluster:
        end_state = "preempted" if instance.is_over and taken_ms is not None else None
        held = {"job_id": node, "node": node, "gpus": len(kinds), "end_state": end_state}
        yield "allocations", {**held, "tags": write_instance_tags(instance.name, instance.labels), **span}


SOURCE = Source(
    "gce",
    find_with((".json",), "JSON of Compute Engine"),
    read_with(decode_gce),
    float(S_PER_HOUR),
    watches=True,
    uses=("at", "pool", "job"),
)
PREEMPTIONS: Final = "preemptions"
"""Operations by which Compute Engine took instances away."""


class LiveGceDecoder(LiveInstanceDecoder):
    """The rows of one project."""

    family: ClassVar[str] = "gce"

    def name_run(self, listed: Listed) -> tuple[str, str]:
        """By its number, and since when it runs: names are used again."""
        return str(listed["id"]), f"{listed['id']} {listed.get('lastStartTimestamp') or listed['creationTimestamp']}"

    def is_over(self, listed: Listed) -> bool:
        """Whether it is stopped, suspended or deleted, or on the way there."""
        return listed["status"] in OVER

    def write_end(self, listed: Listed, at_ms: int) -> Listed:
        """As Compute Engine writes of instances that are stopped; where it took the instance away, the operation says when."""
        answers = GceAnswers()
        self._put_preemptions(answers)
        instance = read_instance(listed)
        taken_ms = None if instance is None else answers.find_preemption(instance)
        at = datetime.fromtimestamp((taken_ms or at_ms) / MS_PER_S, UTC)
        return {**listed, "status": "TERMINATED", "lastStopTimestamp": at.isoformat()}

    def needs(self, _kind: str, listed: Listed, names: set[str]) -> bool:
        """Operations count while their instance is known."""
        return str(listed.get("targetId")) in names

    def list_runs(self) -> Iterator[tuple[str, list[TableRow]]]:
        """The rows that `loadfactor import gce` would make of the lists; what runs has no end."""
        answers = GceAnswers()
        self._put_preemptions(answers)
        answers.add([listed for _, listed in self.runs.values()], self.label)
        nodes = answers.name_nodes()
        for run, (at_ms, listed) in self.runs.items():
            instance = read_instance(listed)
            if instance is not None:
                node = nodes[instance.number, instance.began_ms]
                yield run, list(list_instance_rows(answers, instance, node, at_ms, None))

    def _put_preemptions(self, answers: GceAnswers) -> None:
        answers.add(list(self.others.get(PREEMPTIONS, {}).values()), self.label)
