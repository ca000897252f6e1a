"""What Compute Engine answers about instances with GPUs: themselves, and operations by which it took them away, as JSON."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from loadfactor.base.errors import SourceError
from loadfactor.catalog.accelerators import find_accelerator
from loadfactor.sources.clouds.cloud_series import as_list, as_object
from loadfactor.sources.clouds.ec2_answers import read_instant
from loadfactor.sources.slurm.tres import MOST_ON_NODE

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
    """What makes its name unique: zone and project, as DNS has them."""
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
    """All that was said, of one project or several."""

    instances: dict[tuple[str, int], GceInstance] = field(default_factory=dict)
    preempted: dict[str, set[int]] = field(default_factory=dict)
    """When (ms) instances were taken away, by their number."""

    def put(self, said: Any, label: str) -> None:
        """One answer: of gcloud (a list), or of the API (a page). Raises SourceError for what is none."""
        try:
            for one in _list_objects(said, label):
                kind = one.get("kind") or (_OPERATION if "operationType" in one else _INSTANCE)
                if kind == _INSTANCE:
                    self._put_instance(one)
                elif kind == _OPERATION:
                    self._put_operation(one)
                else:
                    raise SourceError(
                        f"{label}: {str(kind)[:60]!r} is neither an instance nor an operation of Compute Engine"
                    )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            said_of = f"{type(error).__name__}: {error}"
            raise SourceError(f"{label} is not as Compute Engine writes it ({said_of}); is it whole?") from None

    def _put_instance(self, said: Mapping[str, Any]) -> None:
        one = read_instance(said)
        if one is not None:
            self.instances[one.number, one.began_ms] = one

    def _put_operation(self, said: Mapping[str, Any]) -> None:
        if said["operationType"] == PREEMPTED_BY:
            self.preempted.setdefault(str(said["targetId"]), set()).add(read_instant(said["insertTime"]))

    def find_preemption(self, instance: GceInstance) -> int | None:
        """When this run was taken away (ms): the last time that is said of it."""
        found = [at_ms for at_ms in self.preempted.get(instance.number, ()) if at_ms >= instance.began_ms]
        return max((at_ms for at_ms in found if not self._is_later(instance, at_ms)), default=None)

    def _is_later(self, instance: GceInstance, at_ms: int) -> bool:
        """Whether it had been started again by then."""
        return any(number == instance.number and instance.began_ms < began <= at_ms for number, began in self.instances)

    def find_end(self, instance: GceInstance) -> int | None:
        """When it ended (ms), as it says, or the operation; None where nobody says."""
        return instance.ended_ms or self.find_preemption(instance)

    def name_nodes(self) -> dict[tuple[str, int], str]:
        """What each run's node is called: by the instance's name, with its domain where it is used in several zones."""
        counts = Counter(name for name, _ in {(one.name, one.domain) for one in self.instances.values()})
        return {
            key: one.name if counts[one.name] == 1 else f"{one.name}.{one.domain}"
            for key, one in self.instances.items()
        }


def read_instance(said: Mapping[str, Any]) -> GceInstance | None:
    """An instance as the API writes it; None of one that has no machine yet. Raises KeyError, TypeError or ValueError."""
    status = str(said["status"])
    if status == NOT_YET:
        return None
    began_ms = read_instant(said.get("lastStartTimestamp") or said["creationTimestamp"])
    ends = [read_instant(said[name]) for name in _STOPPED_AT if said.get(name)]
    ended_ms = max((end for end in ends if end >= began_ms), default=None) if status in OVER else None
    gpus = tuple(_read_gpus(one) for one in said.get("guestAccelerators") or ())
    if sum(count for _, count in gpus) > MOST_ON_NODE:
        raise ValueError(f"{sum(count for _, count in gpus)} GPUs of one instance")
    place = re.search(r"/projects/([^/]+)/zones/([^/]+)", str(said.get("selfLink") or said.get("zone") or ""))
    return GceInstance(
        number=str(said["id"]),
        name=str(said["name"]),
        domain=f"{place[2]}.c.{place[1]}.internal" if place else "internal",
        machine_type=_last_part(said.get("machineType")),
        gpus=gpus,
        began_ms=began_ms,
        is_over=status in OVER,
        ended_ms=ended_ms,
        labels={str(key): str(value) for key, value in (said.get("labels") or {}).items()},
    )


def _read_gpus(said: Mapping[str, Any]) -> tuple[str, int]:
    kind = _last_part(said["acceleratorType"])
    name = _KIND_OF.fullmatch(_MODELS.get(kind, kind))
    known = find_accelerator(f"NVIDIA {name[1].replace('-', ' ').upper()}") if name else None
    return known.id if known else kind, int(said["acceleratorCount"])


def _last_part(url: Any) -> str:
    return str(url or "").rpartition("/")[2]


def _list_objects(said: Any, label: str) -> Iterable[Mapping[str, Any]]:
    """Instances and operations, whichever way they are listed: by gcloud, of one zone, or of all."""
    if isinstance(said, list):
        return [as_object(one, label) for one in said]
    page = as_object(said, label)
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
