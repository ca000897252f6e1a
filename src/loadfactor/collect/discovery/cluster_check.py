"""What a Kubernetes cluster lets be read: each kind that is watched, asked for once."""

from collections.abc import Sequence
from dataclasses import dataclass

from loadfactor.collect.kubernetes_api import (
    FORBIDDEN,
    NOT_FOUND,
    PODS,
    RESOURCES,
    ClusterAccess,
    KubernetesApi,
    KubernetesError,
    Resource,
)
from loadfactor.sources.kubernetes.fields import part, text


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
        said = _check_kind(api, resource)
        kinds.append(KindCheck(resource.plural, said is None, not resource.needs, said))
    failed = next((kind.error for kind in kinds if kind.kind == PODS.plural and not kind.can_read), None)
    return ClusterCheck(access.origin, api.address, failed is None, failed, tuple(kinds))


def _check_kind(api: KubernetesApi, resource: Resource) -> str | None:
    """Why a kind cannot be listed and watched, and what nobody knows without it; None where it can."""
    try:
        page = api.list_page(resource, limit=1)
        api.check_watch(resource, text(part(page, "metadata"), "resourceVersion"))
    except KubernetesError as error:
        if error.status == NOT_FOUND and resource.needs:
            return f"{resource.needs} is not installed"
        return f"{error}; without it nobody knows {resource.tells}" if error.status == FORBIDDEN else str(error)
    return None
