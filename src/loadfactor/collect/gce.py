"""Compute Engine through Google's own client: instances with GPUs of all zones, and those that it took away."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from loadfactor.base.errors import InputError
from loadfactor.collect.cloud_monitoring import LOCAL, ProjectAccess, describe_error
from loadfactor.collect.fetch_errors import FetchError
from loadfactor.collect.instance_watch import NotPermittedError
from loadfactor.sources.clouds.gce import PREEMPTED_BY, PREEMPTIONS, read_instance
from loadfactor.sources.clouds.live_instances import INSTANCES, Said
from loadfactor.sources.kubernetes.fields import choose_texts

PAGE: Final = 500
"""Instances or operations of a page: the most there may be."""
ANSWER_S: Final = 60.0
FIRST_RETRY_S: Final = 1.0
LONGEST_RETRY_S: Final = 120.0
"""Of one page, where a quota is used up or the service is away; the client waits longer each time."""
PERMISSIONS: Final = {INSTANCES: "compute.instances.list", PREEMPTIONS: "compute.globalOperations.list"}
"""The permission that each question takes; the role Compute Viewer has both."""
_KEPT: Final = (
    "id", "name", "zone", "selfLink", "status", "machineType", "guestAccelerators", "creationTimestamp", "lastStartTimestamp",
    "lastStopTimestamp", "lastSuspendedTimestamp",
)  # fmt: skip
_KEPT_OF_OPERATION: Final = ("operationType", "targetId", "insertTime")
_NOTHING_THERE: Final = "NO_RESULTS_ON_PAGE"


class GceInstances:
    """The instances with GPUs of one project."""

    parts = tuple(PERMISSIONS)

    def __init__(self, access: ProjectAccess) -> None:
        """`access.endpoint`: where Compute Engine is asked instead."""
        self._access = access
        self._clients: dict[str, Any] = {}

    @staticmethod
    def name(instance: Said) -> str:
        """Its number."""
        return str(instance["id"])

    def ask(self, part: str) -> dict[str, Sequence[Said]]:
        """What Compute Engine says. Raises FetchError in its words; NotPermittedError with the permission that is missing."""
        return {part: list(self._list(part))}

    def find_refused(self) -> Iterator[tuple[str, str]]:
        """Each question, and why it may not be asked; empty where it may."""
        for part in self.parts:
            error = ""
            try:
                next(self._list(part), None)
            except FetchError as refused:
                error = str(refused)
            yield part, error

    def _list(self, part: str) -> Iterator[Said]:
        """All pages; one that fails, or says of a zone that it cannot be reached, fails the question."""
        try:
            from google.api_core.exceptions import Forbidden, GoogleAPIError
            from google.auth.exceptions import GoogleAuthError
        except ImportError as error:
            raise InputError("google-cloud-compute is not installed: `pip install 'loadfactor[gcp]'`") from error
        try:
            asked: dict[str, Any] = {"project": self._access.project, "max_results": PAGE}
            if part == PREEMPTIONS:
                asked["filter"] = f'operationType="{PREEMPTED_BY}"'
            pages = self._open(part).aggregated_list(request=asked, retry=_retry(), timeout=ANSWER_S)
            for scope, found in pages:
                said = _as_json(found)
                warning = said.get("warning") or {}
                if warning.get("code", _NOTHING_THERE) != _NOTHING_THERE:
                    raise FetchError(f"{scope}: {warning['code']}: {warning.get('message', '')}"[:300])
                if part == PREEMPTIONS:
                    of = said.get("operations") or ()
                    yield from ({key: one[key] for key in _KEPT_OF_OPERATION} for one in of if "targetId" in one)
                else:
                    of = (_prune(one) for one in said.get("instances") or ())
                    yield from (one for one in of if (read := read_instance(one)) and (read.gpus or read.lacks_gpus))
        except Forbidden as error:
            permission = f"give it {PERMISSIONS[part]} (the role roles/compute.viewer has it)"
            raise NotPermittedError(f"{describe_error(error)}; {permission}") from error
        except (GoogleAPIError, GoogleAuthError, OSError, ValueError, KeyError) as error:
            raise FetchError(describe_error(error)) from error

    def _open(self, part: str) -> Any:
        if part not in self._clients:
            self._clients[part] = _open_client(self._access, part)
        return self._clients[part]


def _open_client(access: ProjectAccess, part: str) -> Any:
    try:
        from google.cloud import compute_v1
    except ImportError as error:
        raise InputError("google-cloud-compute is not installed: `pip install 'loadfactor[gcp]'`") from error
    kind = compute_v1.GlobalOperationsClient if part == PREEMPTIONS else compute_v1.InstancesClient
    if access.endpoint.startswith(LOCAL):
        from google.auth.credentials import AnonymousCredentials

        transport = kind.get_transport_class("rest")
        host = access.endpoint.removeprefix(LOCAL)
        return kind(transport=transport(host=host, credentials=AnonymousCredentials(), url_scheme="http"))
    options = {"api_endpoint": access.endpoint} if access.endpoint else None
    if access.credentials_file is not None:
        return kind.from_service_account_file(str(access.credentials_file), client_options=options)
    return kind(client_options=options)


def _retry() -> Any:
    """What is tried again: a quota that is used up for now, a service that is away."""
    from google.api_core import exceptions
    from google.api_core.retry import Retry, if_exception_type

    later = if_exception_type(exceptions.TooManyRequests, exceptions.ServiceUnavailable, exceptions.GatewayTimeout)
    return Retry(predicate=later, initial=FIRST_RETRY_S, maximum=30.0, multiplier=2.0, timeout=LONGEST_RETRY_S)


def _as_json(message: Any) -> dict[str, Any]:
    """A message as the JSON of the API writes it."""
    from google.protobuf.json_format import MessageToDict

    said: dict[str, Any] = MessageToDict(type(message).pb(message))
    return said


def _prune(instance: Said) -> Said:
    """What the decoder reads of an instance; of its labels those that are not secret."""
    labels = {key: value for key, value in sorted((instance.get("labels") or {}).items()) if _is_kept(key, value)}
    return {**{key: instance[key] for key in _KEPT if key in instance}, "labels": labels}


def _is_kept(key: str, value: str) -> bool:
    return not value or bool(choose_texts({key: value}, {}))
