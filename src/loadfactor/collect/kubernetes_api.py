"""The Kubernetes API through the official client: pages of lists, watches, and single owners, as plain objects."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from loadfactor.base.errors import LoadfactorError
from loadfactor.settings.sources import KubernetesCluster
from loadfactor.sources.kubernetes.decoder import (
    CLAIM,
    CLUSTER_QUEUE,
    COHORT,
    FLAVOR,
    LOCAL_QUEUE,
    NODE,
    POD,
    SLICE,
    WORKLOAD,
)

PAGE_OBJECTS: Final = 500
WATCH_S: Final = 290
"""The length of a watch; then it is begun again where it ended."""
ANSWER_S: Final = 30.0
_CONNECT_S: Final = 5.0
_SHOWN_CHARACTERS: Final = 200
_CONNECTIONS: Final = 16
_TOKEN: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
NOT_FOUND, FORBIDDEN, GONE = 404, 403, 410


class KubernetesError(LoadfactorError):
    """The API could not be reached, or refused. `status`: of HTTP, 0 where there is none."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Resource:
    """A kind of object: where the API has it. `gives`: what is unknown without it; `versions`: best first; `needs`: what has to
    be installed for it."""

    kind: str
    plural: str
    gives: str
    group: str = ""
    versions: tuple[str, ...] = ("v1",)
    is_namespaced: bool = True
    needs: str = ""


_KUEUE: Final = "kueue.x-k8s.io", ("v1beta2", "v1beta1")
_CLAIMS: Final = "resource.k8s.io", ("v1", "v1beta2", "v1beta1")
_DRA: Final = "dynamic resource allocation"
PODS: Final = Resource(POD, "pods", "who holds GPUs")
RESOURCES: Final = (
    Resource(NODE, "nodes", "how GPUs are divided and which nodes are down", is_namespaced=False),
    Resource(FLAVOR, "resourceflavors", "which GPUs a flavor of a quota is", *_KUEUE, False, "Kueue"),
    Resource(
        COHORT,
        "cohorts",
        "quotas of cohorts",
        _KUEUE[0],
        (*_KUEUE[1], "v1alpha1"),
        False,
        "Kueue with cohorts as objects",
    ),
    Resource(CLUSTER_QUEUE, "clusterqueues", "quotas of queues", *_KUEUE, False, "Kueue"),
    Resource(LOCAL_QUEUE, "localqueues", "which queue keeps a job waiting", *_KUEUE, True, "Kueue"),
    Resource(WORKLOAD, "workloads", "who waits for a quota, and how long", *_KUEUE, True, "Kueue"),
    Resource(SLICE, "resourceslices", "which GPUs there are that claims are given", *_CLAIMS, False, _DRA),
    Resource(CLAIM, "resourceclaims", "who holds GPUs by claims", *_CLAIMS, True, _DRA),
    PODS,
)
"""The watched kinds; pods last, because the others explain them."""


class KubernetesApi:
    """Asks one cluster. Its methods raise KubernetesError in one line; any thread may call them."""

    def __init__(self, cluster: KubernetesCluster) -> None:
        """Raises KubernetesError where the client or its configuration is missing."""
        try:
            from kubernetes import client, config
        except ImportError as error:
            raise KubernetesError("its client is not installed: pip install 'loadfactor[kubernetes]'") from error
        settings = client.Configuration()
        settings.retries = 1
        settings.connection_pool_maxsize = _CONNECTIONS
        try:
            if cluster.kubeconfig is None and not cluster.context and _TOKEN.exists():
                config.load_incluster_config(client_configuration=settings)
            else:
                file = None if cluster.kubeconfig is None else str(cluster.kubeconfig)
                config.load_kube_config(file, cluster.context or None, client_configuration=settings)
        except Exception as error:  # of several libraries: YAML, base64, files
            raise KubernetesError(f"no configuration to reach it with ({_shorten(error)})") from error
        self._cluster = cluster
        self.address = str(settings.host)
        self._client = client.ApiClient(settings)
        self._core = client.CoreV1Api(self._client)
        self._custom = client.CustomObjectsApi(self._client)
        self._versions: dict[str, str] = {}

    def list_page(self, resource: Resource, go_on: str = "", limit: int = PAGE_OBJECTS) -> dict[str, Any]:
        """A page of a list; `go_on` as the page before gave it."""
        given = {"limit": limit, **({"_continue": go_on} if go_on else {})}
        return _read(self._ask(resource, {**given, "_request_timeout": (_CONNECT_S, ANSWER_S)}))

    def check_watch(self, resource: Resource, version: str) -> None:
        """Raises KubernetesError where a kind may not be watched."""
        request = {"watch": True, "resource_version": version, "timeout_seconds": 1}
        answer = self._ask(resource, {**request, "_request_timeout": (_CONNECT_S, ANSWER_S)})
        answer.close()
        answer.release_conn()

    def watch(self, resource: Resource, version: str, keep: Callable[[Any], None]) -> Iterator[list[dict[str, Any]]]:
        """Watch what changes after `version`, events as they come together; ends when the server ends it. `keep` gets the answer,
        whose connection may be shut to end it earlier."""
        answer = self._ask(
            resource,
            {
                "watch": True,
                "allow_watch_bookmarks": True,
                "resource_version": version,
                "timeout_seconds": WATCH_S,
                "_request_timeout": (_CONNECT_S, WATCH_S + ANSWER_S),
            },
        )
        keep(answer)
        rest = b""
        try:
            for piece in answer.stream(amt=None, decode_content=True):
                *lines, rest = (rest + piece).split(b"\n")
                events = [json.loads(line) for line in lines if line.strip()]
                if events:
                    yield [event for event in events if isinstance(event, dict)]
        except KubernetesError:
            raise
        except Exception as error:  # of urllib3, of sockets and of JSON that was cut
            raise KubernetesError(f"a watch was cut ({_shorten(error)})") from error
        finally:
            answer.close()
            answer.release_conn()

    def get_owner(self, api_version: str, kind: str, namespace: str, name: str) -> dict[str, Any]:
        """An object that owns others, with its kind."""
        group, _, version = api_version.rpartition("/")
        request = {"_preload_content": False, "_request_timeout": (_CONNECT_S, ANSWER_S)}
        plural = name_plural(kind)
        return _read(
            self._call(
                lambda: self._custom.get_namespaced_custom_object(group, version, namespace, plural, name, **request)
            )
        ) | {"kind": kind}

    def _ask(self, resource: Resource, given: Mapping[str, Any]) -> Any:
        """The answer to a list or a watch, of the first version that the API has."""
        request = {**given, "_preload_content": False}
        if resource == PODS and self._cluster.labels:
            request["label_selector"] = self._cluster.labels
        namespace = self._cluster.namespace if resource.is_namespaced else ""
        if not resource.group:
            if resource.kind == NODE:
                return self._call(lambda: self._core.list_node(**request))
            if namespace:
                return self._call(lambda: self._core.list_namespaced_pod(namespace, **request))
            return self._call(lambda: self._core.list_pod_for_all_namespaces(**request))
        known = self._versions.get(resource.plural)
        versions = (known,) if known else resource.versions
        for version in versions:
            try:
                answer = self._call(partial(self._ask_custom, resource, version, namespace, request))
            except KubernetesError as error:
                if error.status != NOT_FOUND or version == versions[-1]:
                    self._versions.pop(resource.plural, None)
                    raise
            else:
                self._versions[resource.plural] = version
                return answer
        raise AssertionError("a resource without versions")

    def _ask_custom(self, resource: Resource, version: str, namespace: str, request: Mapping[str, Any]) -> Any:
        if namespace:
            return self._custom.list_namespaced_custom_object(
                resource.group, version, namespace, resource.plural, **request
            )
        return self._custom.list_cluster_custom_object(resource.group, version, resource.plural, **request)

    def _call(self, ask: Callable[[], Any]) -> Any:
        from kubernetes.client.exceptions import ApiException

        try:
            return ask()
        except ApiException as error:
            raise KubernetesError(_explain(error), int(error.status or 0)) from error
        except Exception as error:  # of urllib3, of TLS and of plugins that fetch a token
            raise KubernetesError(_shorten(error)) from error


def name_plural(kind: str) -> str:
    """The name of a kind in addresses.

    >>> name_plural("PyTorchJob"), name_plural("InferencePolicy"), name_plural("Ingress")
    ('pytorchjobs', 'inferencepolicies', 'ingresses')
    """
    lower = kind.lower()
    if lower.endswith("y"):
        return f"{lower[:-1]}ies"
    return f"{lower}es" if lower.endswith(("s", "x", "ch")) else f"{lower}s"


def _read(answer: Any) -> dict[str, Any]:
    try:
        found = json.loads(answer.data)
    except Exception as error:  # cut, or no JSON
        raise KubernetesError(f"its answer cannot be read ({_shorten(error)})") from error
    finally:
        answer.release_conn()
    if not isinstance(found, dict):
        raise KubernetesError("answered, but not as Kubernetes does; check the address")
    return found


def _explain(error: Any) -> str:
    try:
        text = str(json.loads(error.body)["message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        text = str(error.reason or "")
    return f"answered {error.status}: {' '.join(text.split())}"[:_SHOWN_CHARACTERS]


def _shorten(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:_SHOWN_CHARACTERS] if text else type(error).__name__
