"""EC2 through Amazon's own client: instances with GPUs, their types, spot instances that are taken away, and what they cost."""

import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from loadfactor.base.units import S_PER_HOUR, S_PER_MIN
from loadfactor.collect.cloudwatch import CloudWatchAccess, describe_error, open_client
from loadfactor.collect.fetch_errors import FetchError
from loadfactor.collect.instance_watch import NotPermittedError
from loadfactor.sources.clouds.ec2 import PRICES, REQUESTS, TYPES, SpotRequest, read_instance
from loadfactor.sources.clouds.live_instances import INSTANCES, Said
from loadfactor.sources.kubernetes.fields import choose_texts

SERVICE: Final = "ec2"
SPOT_REQUESTS, SPOT_PRICES = "spot requests", "spot prices"
NEEDS: Final[Mapping[str, tuple[str, ...]]] = {
    INSTANCES: ("describe_instances", "describe_instance_types"),
    SPOT_REQUESTS: ("describe_spot_instance_requests",),
    SPOT_PRICES: ("describe_spot_price_history",),
}
"""The operations behind each question, as Amazon's client names them."""
PRICES_EVERY_S: Final = 10.0 * S_PER_MIN
OLDEST_PRICE: Final = timedelta(days=90)
"""EC2 knows no older ones."""
PAGE: Final = 1000
"""Instances of a page: the most there may be."""
TYPES_AT_ONCE: Final = 100
OPEN_AGAIN_S: Final = float(S_PER_HOUR) / 2
"""A role's credentials run out."""
_REFUSED: Final = ("UnauthorizedOperation", "AccessDenied", "AccessDeniedException")
_KEPT: Final = (
    "InstanceId", "InstanceType", "State", "StateTransitionReason", "InstanceLifecycle", "PlatformDetails", "PrivateDnsName",
)  # fmt: skip


class Ec2Instances:
    """The instances with GPUs of one account in one region."""

    parts = tuple(NEEDS)

    def __init__(self, access: CloudWatchAccess) -> None:
        self._access = access
        self._client: Any = None
        self._opened_s = 0.0
        self._has_gpus: dict[str, bool] = {}
        self._types: dict[str, Said] = {}
        self._spot: list[Said] = []
        self._priced_s = -PRICES_EVERY_S

    @staticmethod
    def name(instance: Said) -> str:
        """Its id."""
        return str(instance["InstanceId"])

    def ask(self, part: str) -> dict[str, Sequence[Said]]:
        """What EC2 says. Raises FetchError in its words; NotPermittedError with the line of the policy that is missing."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            if self._client is None or time.monotonic() - self._opened_s > OPEN_AGAIN_S:
                self._client = open_client(self._access, SERVICE)
                self._opened_s = time.monotonic()
            if part == INSTANCES:
                return self._list_instances()
            return self._list_requests() if part == SPOT_REQUESTS else self._list_prices()
        except (ClientError, BotoCoreError) as error:
            raise make_error(error) from error

    def _list_instances(self) -> dict[str, Sequence[Said]]:
        """All pages; one that fails fails the question, so that no instance is missed that is on a later one."""
        pages = self._page("describe_instances", PaginationConfig={"PageSize": PAGE})
        found = [one for said in pages for one in said["Reservations"]]
        instances = [one for reservation in found for one in reservation["Instances"]]
        new = sorted({one["InstanceType"] for one in instances} - self._has_gpus.keys())
        for i in range(0, len(new), TYPES_AT_ONCE):
            asked = new[i : i + TYPES_AT_ONCE]
            said = [
                one
                for page in self._page("describe_instance_types", InstanceTypes=asked)
                for one in page["InstanceTypes"]
            ]
            self._has_gpus |= {one["InstanceType"]: bool((one.get("GpuInfo") or {}).get("Gpus")) for one in said}
            kept = ("InstanceType", "GpuInfo")
            self._types |= {one["InstanceType"]: {key: one[key] for key in kept if key in one} for one in said}
        gpus = [_prune(one) for one in instances if self._has_gpus.get(one["InstanceType"])]
        self._spot = [one for one in gpus if "InstanceLifecycle" in one]
        used = sorted({one["InstanceType"] for one in gpus})
        return {TYPES: [self._types[name] for name in used], INSTANCES: gpus}

    def _list_requests(self) -> dict[str, Sequence[Said]]:
        """Requests whose instance Amazon takes away or took; nothing is asked where there is no spot instance."""
        if not self._spot:
            return {}
        pages = self._page("describe_spot_instance_requests")
        said = (_prune_request(one) for page in pages for one in page["SpotInstanceRequests"] if one.get("InstanceId"))
        return {REQUESTS: [one for one in said if _read_request(one).is_interruption]}

    def _list_prices(self) -> dict[str, Sequence[Said]]:
        """Steps of the prices where there are spot instances, since the oldest of a type began to run."""
        if not self._spot or time.monotonic() - self._priced_s < PRICES_EVERY_S:
            return {}
        oldest_of: dict[str, datetime] = {}
        for one in self._spot:
            began = datetime.fromisoformat(one["LaunchTime"])
            oldest_of[one["InstanceType"]] = min(began, oldest_of.get(one["InstanceType"], began))
        zones = {(one["InstanceType"], one["Placement"]["AvailabilityZone"]) for one in self._spot}
        found: list[Said] = []
        for kind, began in oldest_of.items():
            since = max(began, datetime.now(UTC) - OLDEST_PRICE)
            for page in self._page("describe_spot_price_history", InstanceTypes=[kind], StartTime=since):
                found += (_as_json(one) for one in page["SpotPriceHistory"] if (kind, one["AvailabilityZone"]) in zones)
        self._priced_s = time.monotonic()
        return {PRICES: found}

    def _page(self, operation: str, **asked: Any) -> Iterator[dict[str, Any]]:
        yield from self._client.get_paginator(operation).paginate(**asked)


def make_error(error: Exception) -> FetchError:
    """What Amazon says; where it is a refusal, with the line of the policy that would allow it."""
    response = getattr(error, "response", None)
    code = response.get("Error", {}).get("Code") if isinstance(response, dict) else None
    operation = getattr(error, "operation_name", "")
    if code in _REFUSED and operation:
        line = f'{{"Effect": "Allow", "Action": "{SERVICE}:{operation}", "Resource": "*"}}'
        return NotPermittedError(f"may not {SERVICE}:{operation}; add {line} to its policy (docs/connect-clouds.md)")
    return FetchError(describe_error(error))


def find_refused(access: CloudWatchAccess) -> Iterator[tuple[str, str]]:
    """Each question to EC2, and why it may not be asked; empty where it may. Nothing is asked but whether that is allowed."""
    from botocore.exceptions import BotoCoreError, ClientError

    for part, operations in NEEDS.items():
        error = ""
        try:
            client = open_client(access, SERVICE)
            for operation in operations:
                _try_dry(client, operation)
        except (ClientError, BotoCoreError) as refused:
            error = str(make_error(refused))
        yield part, error


def _try_dry(client: Any, operation: str) -> None:
    from botocore.exceptions import ClientError

    try:
        getattr(client, operation)(DryRun=True)
    except ClientError as error:
        if error.response.get("Error", {}).get("Code") != "DryRunOperation":
            raise


def _prune(instance: Mapping[str, Any]) -> Said:
    """What the decoder reads of an instance; of its tags those that are not secret."""
    tags = {str(tag["Key"]): str(tag["Value"]) for tag in instance.get("Tags") or ()}
    chosen = [{"Key": key, "Value": value} for key, value in sorted(tags.items()) if choose_texts({key: value}, {})]
    said = {key: instance[key] for key in _KEPT if instance.get(key)}
    zone = (instance.get("Placement") or {}).get("AvailabilityZone")
    code = (instance.get("StateReason") or {}).get("Code")
    said |= {"LaunchTime": instance["LaunchTime"], "Tags": chosen, "Placement": {"AvailabilityZone": zone}}
    pruned: Said = _as_json({**said, "StateReason": {"Code": code}})
    read_instance(pruned)  # what cannot be read is this answer's fault, not that of what is kept
    return pruned


def _prune_request(request: Mapping[str, Any]) -> Said:
    status = {key: request["Status"][key] for key in ("Code", "UpdateTime")}
    return {"InstanceId": request["InstanceId"], "Status": _as_json(status)}


def _read_request(said: Said) -> SpotRequest:
    return SpotRequest(said["InstanceId"], said["Status"]["Code"], 0)


def _as_json(said: Any) -> Any:
    """As the AWS CLI writes it."""
    if isinstance(said, Mapping):
        return {key: _as_json(value) for key, value in said.items()}
    if isinstance(said, datetime):
        return said.isoformat()
    return [_as_json(one) for one in said] if isinstance(said, list) else said
