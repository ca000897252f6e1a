"""The metrics of CloudWatch: which of them are of a GPU, and what their dimensions say of it."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from loadfactor.sources.clouds.cloud_series import NAME, name_gpu
from loadfactor.sources.clouds.families import CLOUDWATCH, CLOUDWATCH_FAMILY

NAMES: Final = frozenset(name.removeprefix(f"{CLOUDWATCH}/") for name in CLOUDWATCH_FAMILY.by_name)
"""The metrics that are asked for."""
_NODES: Final = ("InstanceId", "host", "NodeName")
_PODS: Final = ("FullPodName", "PodName")


class CloudWatchMetric(NamedTuple):
    """A metric: its namespace, name and dimensions, sorted."""

    namespace: str
    name: str
    dimensions: tuple[tuple[str, str], ...]

    def query(self) -> dict[str, Any]:
        """As get_metric_data asks for it."""
        dimensions = [{"Name": name, "Value": value} for name, value in self.dimensions]
        return {"Namespace": self.namespace, "MetricName": self.name, "Dimensions": dimensions}


def read_metric(said: Mapping[str, Any]) -> CloudWatchMetric | None:
    """A metric as list_metrics and the queries of get_metric_data write it; None where nothing is kept of it."""
    name = said.get("MetricName")
    if not isinstance(name, str) or name not in NAMES:
        return None
    dimensions = said.get("Dimensions") or ()
    pairs = sorted({(str(one.get("Name")), str(one.get("Value"))) for one in dimensions if isinstance(one, dict)})
    return CloudWatchMetric(str(said.get("Namespace", "")), name, tuple(pairs))


def read_labels(metric: CloudWatchMetric, job: str) -> dict[str, str] | None:
    """The labels of the series of a metric; None where it is a sum over GPUs, or does not say where its GPU is.

    >>> dimensions = (("InstanceId", "i-1"), ("index", "0"), ("name", "NVIDIA A10G"))
    >>> read_labels(CloudWatchMetric("CWAgent", "nvidia_smi_power_draw", dimensions), "prod")["hostname"]
    'i-1'
    """
    said = dict(metric.dimensions)
    node = next((said[name] for name in _NODES if said.get(name)), None)
    index = said.get("index") or said.get("GpuDevice")
    if node is None or not index:
        return None
    labels = {NAME: f"{CLOUDWATCH}/{metric.name}", "job": job}
    if said.get("name"):
        labels["modelname"] = said["name"]
    pod = next((said[name] for name in _PODS if said.get(name)), None)
    if pod and not metric.name.startswith("node_"):
        labels |= {"pod": pod, "namespace": said.get("Namespace", "")}
    return name_gpu(node, index, labels)


def choose_metrics(found: Iterable[CloudWatchMetric], job: str) -> dict[CloudWatchMetric, dict[str, str]]:
    """The metrics to ask for, with the labels of their series: each once, and of one metric that is kept with several sets of
    dimensions for the same GPU the one that says most.
    """
    best: dict[tuple[str, str, str, str], tuple[CloudWatchMetric, dict[str, str]]] = {}
    for metric in found:
        labels = read_labels(metric, job)
        if labels is None:
            continue
        key = (labels[NAME], labels["hostname"], labels["gpu"], labels.get("pod", ""))
        if key not in best or _rank(metric) > _rank(best[key][0]):
            best[key] = metric, labels
    return dict(sorted(best.values(), key=lambda one: one[0]))


def _rank(metric: CloudWatchMetric) -> tuple[int, CloudWatchMetric]:
    return len(metric.dimensions), metric


def end_points(began_ms: Iterable[int], values: Iterable[float], period_ms: int) -> list[tuple[int, float]]:
    """Points of a result: CloudWatch tells when the period of a value begins, a sample when it ends.

    >>> end_points([60_000], [5.0], 60_000)
    [(120000, 5.0)]
    """
    return [(at_ms + period_ms, float(value)) for at_ms, value in zip(began_ms, values, strict=True)]
