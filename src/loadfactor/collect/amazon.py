"""Amazon through its own client: metrics of GPUs in CloudWatch, instances with GPUs of EC2, and objects of S3."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

from loadfactor.base.errors import InputError
from loadfactor.base.units import MS_PER_S, S_PER_HOUR, S_PER_MIN
from loadfactor.collect.http_fetch import FetchError
from loadfactor.collect.polling import Item, NotPermittedError
from loadfactor.settings.sources import CloudWatchAccount
from loadfactor.sources.clouds.cloud_series import CloudSeries
from loadfactor.sources.clouds.cloudwatch import NAMES, CloudWatchMetric, choose_metrics, end_points, read_metric
from loadfactor.sources.clouds.ec2 import PRICES, REQUESTS, TYPES, SpotRequest, read_instance
from loadfactor.sources.clouds.live_instances import INSTANCES
from loadfactor.sources.kubernetes.fields import choose_texts

CLOUDWATCH, EC2, S3 = "cloudwatch", "ec2", "s3"
"""Services, as Amazon's client names them."""
MOST_QUERIES: Final = 500
"""Of one request."""
MOST_POINTS: Final = 100_800
"""Of one answer; further ones are on further pages."""
LIST_EVERY_S: Final = 10.0 * S_PER_MIN
SETTLED_S: Final = 3.0 * S_PER_MIN
TRIES: Final = 8
"""Of one request where CloudWatch throttles; the client waits longer each time."""
CONNECT_S: Final = 10.0
ANSWER_S: Final = 60.0
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
S3_SCHEME: Final = "s3://"
_S3_REFUSED: Final = ("AccessDenied", "AllAccessDisabled", "403")
_GONE: Final = ("NoSuchKey", "404")


def open_client(account: CloudWatchAccount, service: str) -> Any:
    """A client of Amazon's that waits where it is throttled. Raises InputError where it is not installed."""
    try:
        import boto3
        from botocore.config import Config
    except ImportError as error:
        raise InputError("boto3 is not installed: `pip install 'loadfactor[aws]'`") from error
    config = Config(
        retries={"mode": "standard", "total_max_attempts": TRIES},
        connect_timeout=CONNECT_S,
        read_timeout=ANSWER_S,
        user_agent_extra="loadfactor",
    )
    region = account.region or None
    endpoint = account.endpoint_url or None if service == CLOUDWATCH else None  # of CloudWatch alone
    session = boto3.Session(profile_name=account.profile or None, region_name=region)
    if account.role_arn:
        session = _take_role(session, account, config)
    return session.client(service, config=config, endpoint_url=endpoint)


def _take_role(session: Any, account: CloudWatchAccount, config: Any) -> Any:
    """A session with the role; its client is opened anew when its credentials have run out."""
    import boto3

    sts = session.client("sts", config=config)
    answer = sts.assume_role(RoleArn=account.role_arn, RoleSessionName="loadfactor")["Credentials"]
    return boto3.Session(
        aws_access_key_id=answer["AccessKeyId"],
        aws_secret_access_key=answer["SecretAccessKey"],
        aws_session_token=answer["SessionToken"],
        region_name=session.region_name,
    )


def describe_error(error: Exception) -> str:
    """The message of an error of Amazon, in one line and without what it repeats of the request."""
    response = getattr(error, "response", None)
    answer = response.get("Error", {}) if isinstance(response, dict) else {}
    text = f"{answer.get('Code')}: {answer.get('Message')}" if answer.get("Code") else str(error)
    return " ".join(text.split())[:300]


class AmazonClient:
    """A client of a service, opened anew now and then: the credentials of a role run out."""

    def __init__(self, account: CloudWatchAccount, service: str) -> None:
        self._account, self._service = account, service
        self._client: Any = None
        self._opened_s = 0.0

    def get(self) -> Any:
        """The client that is open. Raises as `open_client`."""
        if self._client is None or time.monotonic() - self._opened_s > OPEN_AGAIN_S:
            self._client = open_client(self._account, self._service)
            self._opened_s = time.monotonic()
        return self._client

    def page(self, operation: str, **request: Any) -> Iterator[dict[str, Any]]:
        """The answers to a request, page after page."""
        yield from self.get().get_paginator(operation).paginate(**request)


class CloudWatchMetrics:
    """The metrics of GPUs of one account in one region."""

    def __init__(self, account: CloudWatchAccount) -> None:
        self.settled_s = SETTLED_S
        self.step_ms = round(account.period.s) * MS_PER_S
        self._account = account
        self._client = AmazonClient(account, CLOUDWATCH)
        self._listed_s = -LIST_EVERY_S
        self._chosen: dict[CloudWatchMetric, dict[str, str]] = {}

    @property
    def lacking(self) -> str:
        """That nothing is listed which is understood: agents may not run, or name their metrics otherwise."""
        where = ", ".join(self._account.namespaces)
        problem = f"no metric of a GPU that is understood is listed in {where}; docs/connect-clouds.md"
        return "" if self._chosen else problem

    def read(self, from_ms: int, to_ms: int) -> list[CloudSeries]:
        """The series of this time; metrics are listed anew every `LIST_EVERY_S`. Raises FetchError in CloudWatch's words."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            if time.monotonic() - self._listed_s >= LIST_EVERY_S:
                self._chosen = choose_metrics(self._list_metrics(), self._account.label)
                self._listed_s = time.monotonic()
            metrics = list(self._chosen)
            found: list[CloudSeries] = []
            for i in range(0, len(metrics), MOST_QUERIES):
                found += self._read_series(metrics[i : i + MOST_QUERIES], from_ms, to_ms)
            return found
        except (ClientError, BotoCoreError) as error:
            self._client = AmazonClient(self._account, CLOUDWATCH)  # credentials may be others by the next time
            raise FetchError(describe_error(error)) from error

    def _list_metrics(self) -> Iterator[CloudWatchMetric]:
        for namespace in self._account.namespaces:
            for page in self._client.page("list_metrics", Namespace=namespace):
                for item in page["Metrics"]:
                    if item.get("MetricName") in NAMES and (metric := read_metric(item)) is not None:
                        yield metric

    def _read_series(self, metrics: Sequence[CloudWatchMetric], from_ms: int, to_ms: int) -> Iterator[CloudSeries]:
        stat = {"Period": round(self._account.period.s), "Stat": "Average"}
        queries = [
            {"Id": f"m{i}", "MetricStat": {**stat, "Metric": metric.query()}, "ReturnData": True}
            for i, metric in enumerate(metrics)
        ]
        pages = self._client.page(
            "get_metric_data",
            MetricDataQueries=queries,
            StartTime=_instant(from_ms),  # the end of a period is ours, its beginning theirs
            EndTime=_instant(to_ms),
            ScanBy="TimestampAscending",
            MaxDatapoints=MOST_POINTS,
        )
        points: dict[str, list[tuple[int, float]]] = {}
        for page in pages:
            for result in page["MetricDataResults"]:
                if result.get("StatusCode") in ("Forbidden", "InternalError"):
                    raise FetchError(f"CloudWatch answers {result['StatusCode']} for {result.get('Label', 'a metric')}")
                began = [round(at.timestamp() * MS_PER_S) for at in result["Timestamps"]]
                points.setdefault(result["Id"], []).extend(end_points(began, result["Values"], self.step_ms))
        for i, metric in enumerate(metrics):
            kept = [point for point in points.get(f"m{i}", ()) if from_ms < point[0] <= to_ms]
            if kept:
                yield CloudSeries(self._chosen[metric], kept)


def _instant(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / MS_PER_S, UTC)


class Ec2Instances:
    """The instances with GPUs of one account in one region."""

    parts = tuple(NEEDS)

    def __init__(self, account: CloudWatchAccount) -> None:
        self._client = AmazonClient(account, EC2)
        self._has_gpus: dict[str, bool] = {}
        self._types: dict[str, Item] = {}
        self._spot: list[Item] = []
        self._priced_s = -PRICES_EVERY_S

    @staticmethod
    def name(instance: Item) -> str:
        """Its id."""
        return str(instance["InstanceId"])

    def ask(self, part: str) -> dict[str, Sequence[Item]]:
        """Answer of EC2. Raises FetchError in its words; NotPermittedError with the line of the policy that is missing."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            if part == INSTANCES:
                return self._list_instances()
            return self._list_requests() if part == SPOT_REQUESTS else self._list_prices()
        except (ClientError, BotoCoreError) as error:
            raise make_error(error) from error

    def _list_instances(self) -> dict[str, Sequence[Item]]:
        """All pages; one that fails fails the question, so that no instance is missed that is on a later one."""
        pages = self._client.page("describe_instances", PaginationConfig={"PageSize": PAGE})
        instances = [
            item for page in pages for reservation in page["Reservations"] for item in reservation["Instances"]
        ]
        new = sorted({item["InstanceType"] for item in instances} - self._has_gpus.keys())
        for i in range(0, len(new), TYPES_AT_ONCE):
            pages = self._client.page("describe_instance_types", InstanceTypes=new[i : i + TYPES_AT_ONCE])
            answer = [item for page in pages for item in page["InstanceTypes"]]
            self._has_gpus |= {item["InstanceType"]: bool((item.get("GpuInfo") or {}).get("Gpus")) for item in answer}
            kept = ("InstanceType", "GpuInfo")
            self._types |= {item["InstanceType"]: {key: item[key] for key in kept if key in item} for item in answer}
        gpus = [_prune(item) for item in instances if self._has_gpus.get(item["InstanceType"])]
        self._spot = [item for item in gpus if "InstanceLifecycle" in item]
        used = sorted({item["InstanceType"] for item in gpus})
        return {TYPES: [self._types[name] for name in used], INSTANCES: gpus}

    def _list_requests(self) -> dict[str, Sequence[Item]]:
        """Requests whose instance Amazon takes away or took; no call is made where there is no spot instance."""
        if not self._spot:
            return {}
        pages = self._client.page("describe_spot_instance_requests")
        requests = [item for page in pages for item in page["SpotInstanceRequests"] if item.get("InstanceId")]
        return {
            REQUESTS: [
                _prune_request(item)
                for item in requests
                if SpotRequest(item["InstanceId"], item["Status"]["Code"], 0).is_interruption
            ]
        }

    def _list_prices(self) -> dict[str, Sequence[Item]]:
        """Steps of the prices where there are spot instances, since the oldest of a type began to run."""
        if not self._spot or time.monotonic() - self._priced_s < PRICES_EVERY_S:
            return {}
        oldest_of: dict[str, datetime] = {}
        for item in self._spot:
            began = datetime.fromisoformat(item["LaunchTime"])
            oldest_of[item["InstanceType"]] = min(began, oldest_of.get(item["InstanceType"], began))
        zones = {(item["InstanceType"], item["Placement"]["AvailabilityZone"]) for item in self._spot}
        found: list[Item] = []
        for kind, began in oldest_of.items():
            since = max(began, datetime.now(UTC) - OLDEST_PRICE)
            for page in self._client.page("describe_spot_price_history", InstanceTypes=[kind], StartTime=since):
                found += (
                    _as_json(item) for item in page["SpotPriceHistory"] if (kind, item["AvailabilityZone"]) in zones
                )
        self._priced_s = time.monotonic()
        return {PRICES: found}


def make_error(error: Exception) -> FetchError:
    """The message of an error of Amazon; of a refusal with the line of the policy that would allow it."""
    response = getattr(error, "response", None)
    code = response.get("Error", {}).get("Code") if isinstance(response, dict) else None
    operation = getattr(error, "operation_name", "")
    if code in _REFUSED and operation:
        line = f'{{"Effect": "Allow", "Action": "{EC2}:{operation}", "Resource": "*"}}'
        return NotPermittedError(f"may not {EC2}:{operation}; add {line} to its policy (docs/connect-clouds.md)")
    return FetchError(describe_error(error))


def find_refused(account: CloudWatchAccount) -> Iterator[tuple[str, str]]:
    """Each question to EC2, and why it is not permitted; empty where it is. Only permissions are tested."""
    from botocore.exceptions import BotoCoreError, ClientError

    for part, operations in NEEDS.items():
        error = ""
        try:
            client = open_client(account, EC2)
            for operation in operations:
                try:
                    getattr(client, operation)(DryRun=True)
                except ClientError as answer:
                    if answer.response.get("Error", {}).get("Code") != "DryRunOperation":
                        raise
        except (ClientError, BotoCoreError) as refused:
            error = str(make_error(refused))
        yield part, error


def _prune(instance: Mapping[str, Any]) -> Item:
    """Fields of an instance that the decoder reads; of its tags those that are not secret."""
    tags = {str(tag["Key"]): str(tag["Value"]) for tag in instance.get("Tags") or ()}
    chosen = [{"Key": key, "Value": value} for key, value in sorted(tags.items()) if choose_texts({key: value}, {})]
    answer = {key: instance[key] for key in _KEPT if instance.get(key)}
    zone = (instance.get("Placement") or {}).get("AvailabilityZone")
    code = (instance.get("StateReason") or {}).get("Code")
    answer |= {"LaunchTime": instance["LaunchTime"], "Tags": chosen, "Placement": {"AvailabilityZone": zone}}
    pruned: Item = _as_json({**answer, "StateReason": {"Code": code}})
    read_instance(pruned)  # what cannot be read is this answer's fault, not that of what is kept
    return pruned


def _prune_request(request: Mapping[str, Any]) -> Item:
    status = {key: request["Status"][key] for key in ("Code", "UpdateTime")}
    return {"InstanceId": request["InstanceId"], "Status": _as_json(status)}


def _as_json(answer: Any) -> Any:
    if isinstance(answer, Mapping):
        return {key: _as_json(value) for key, value in answer.items()}
    if isinstance(answer, datetime):
        return answer.isoformat()
    return [_as_json(item) for item in answer] if isinstance(answer, list) else answer


class S3Object(NamedTuple):
    """One object as it is listed."""

    key: str
    etag: str
    size: int
    modified_ms: int


def split_s3_address(url: str) -> tuple[str, str]:
    """Bucket and prefix of an address. Raises InputError where it names no bucket.

    >>> split_s3_address("s3://bills/cur/2024")
    ('bills', 'cur/2024')
    """
    bucket, _, prefix = url.removeprefix(S3_SCHEME).partition("/")
    if not bucket:
        raise InputError(f"{url} names no bucket; write s3://bucket/prefix")
    return bucket, prefix


class S3Objects:
    """The objects under one prefix."""

    def __init__(self, account: CloudWatchAccount, url: str) -> None:
        """`url`: s3://bucket/prefix. Raises InputError where it names no bucket."""
        self.bucket, self.prefix = split_s3_address(url)
        self._client = AmazonClient(account, S3)

    def name(self, key: str) -> str:
        """The address of an object."""
        return f"{S3_SCHEME}{self.bucket}/{key}"

    def list_after(self, key: str) -> Iterator[S3Object]:
        """Those that come after a key in the order of keys, page after page. Raises FetchError in S3's words."""
        after = {"StartAfter": key} if key else {}
        with self._explaining() as client:
            for page in client.page("list_objects_v2", Bucket=self.bucket, Prefix=self.prefix, **after):
                for item in page.get("Contents", ()):
                    modified_ms = round(item["LastModified"].timestamp() * MS_PER_S)
                    yield S3Object(item["Key"], item["ETag"].strip('"'), item["Size"], modified_ms)

    def download(self, key: str, path: Path) -> bool:
        """Write an object into a file; False where it is there no more. Raises FetchError in S3's words."""
        with self._explaining() as explained:
            client = explained.get()
            try:
                client.download_file(self.bucket, key, str(path))
            except client.exceptions.ClientError as error:
                if error.response.get("Error", {}).get("Code") in _GONE:
                    return False
                raise
        return True

    @contextmanager
    def _explaining(self) -> Iterator[AmazonClient]:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield self._client
        except ClientError as error:
            raise FetchError(self._describe_refusal(error) or describe_error(error)) from error
        except BotoCoreError as error:
            raise FetchError(describe_error(error)) from error

    def _describe_refusal(self, error: Any) -> str:
        if error.response.get("Error", {}).get("Code") not in _S3_REFUSED:
            return ""
        is_list = error.operation_name == "ListObjectsV2"
        action, of = ("s3:ListBucket", self.bucket) if is_list else ("s3:GetObject", f"{self.bucket}/{self.prefix}*")
        line = f'{{"Effect": "Allow", "Action": "{action}", "Resource": "arn:aws:s3:::{of}"}}'
        return f"may not {action}; add {line} to its policy (docs/connect-clouds.md)"
