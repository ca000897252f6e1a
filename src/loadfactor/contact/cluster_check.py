"""What a Kubernetes cluster lets be read: each kind that is watched, asked for once."""

from collections.abc import Sequence
from dataclasses import dataclass

from loadfactor.collect.kubernetes_api import NOT_FOUND, PODS, RESOURCES, ClusterAccess, KubernetesApi, KubernetesError


@dataclass(frozen=True)
class KindCheck:
    """One kind: `can_read`, else why not. `is_needed`: there is no telling who holds what without it."""

    kind: str
    can_read: bool
    is_needed: bool
    error: str | None = None


@dataclass(frozen=True)
class ClusterCheck:
    """One cluster; `error`: why it cannot be asked at all, or not for its pods."""

    name: str
    address: str | None
    reachable: bool
    error: str | None
    kinds: tuple[KindCheck, ...] = ()


def check_clusters(clusters: Sequence[ClusterAccess]) -> list[ClusterCheck]:
    """What each cluster lets be read. Raises no KubernetesError."""
    return [_check_cluster(access) for access in clusters]


def _check_cluster(access: ClusterAccess) -> ClusterCheck:
    try:
        api = KubernetesApi(access)
    except KubernetesError as error:
        return ClusterCheck(access.origin, None, False, str(error))
    kinds = []
    for resource in RESOURCES:
        said = None
        try:
            api.list_page(resource, limit=1)
        except KubernetesError as error:
            said = f"{resource.needs} is not installed" if error.status == NOT_FOUND and resource.needs else str(error)
        kinds.append(KindCheck(resource.plural, said is None, not resource.needs, said))
    failed = next((kind.error for kind in kinds if kind.kind == PODS.plural and not kind.can_read), None)
    return ClusterCheck(access.origin, api.address, failed is None, failed, tuple(kinds))
