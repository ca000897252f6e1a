"""The role that reads a cluster: the chart's and that of the docs are one, read only, and cover what is watched and asked for."""

import re
from pathlib import Path
from typing import Any

from loadfactor.collect.kubernetes_api import RESOURCES, name_plural
from loadfactor.sources.kubernetes.pods import PURPOSES

ROOT = Path(__file__).parents[3]
RULE = re.compile(r"apiGroups: \[(.*?)\],?\s+resources: \[(.*?)\],?\s+verbs: \[(.*?)\]")


def read_rules(path: str) -> dict[tuple[str, str], set[str]]:
    """Verbs by group and resource of the role in a file."""
    found: Any = RULE.findall((ROOT / path).read_text())
    return {
        (group.strip(' "'), resource.strip()): {verb.strip() for verb in verbs.split(",")}
        for group, resources, verbs in found
        for resource in resources.split(",")
    }


def test_the_role_covers_what_is_watched() -> None:
    """Each kind may be listed and watched; the owners of pods that can be followed up may be got; nothing may be written."""
    rules = read_rules("docs/connect-kubernetes.md")
    assert rules == read_rules("packaging/chart/templates/rbac.yaml")
    watched = {(one.group, one.plural) for one in RESOURCES}
    assert {place for place, verbs in rules.items() if verbs == {"get", "list", "watch"}} == watched
    assert {frozenset(verbs) for place, verbs in rules.items() if place not in watched} == {frozenset({"get"})}
    owners = {resource for _, resource in rules}
    kinds = (
        "Job",
        "PyTorchJob",
        "MPIJob",
        "JobSet",
        "RayCluster",
        "RayJob",
        "LeaderWorkerSet",
        "Notebook",
        "Deployment",
        "TrainJob",
    )
    assert {name_plural(kind) for kind in kinds} <= owners
    assert {*kinds} - {"RayCluster"} <= PURPOSES.keys()
