"""Settings of the user, typed; the only reader of `loadfactor.toml` and the environment.

An option on the command line comes before the environment (`LOADFACTOR_STORE=…`), that before `loadfactor.toml` in the working
folder, that before the defaults here.
"""

import os
import re
from collections import Counter
from contextlib import suppress
from functools import cache
from pathlib import Path
from tomllib import TOMLDecodeError, loads
from typing import Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from loadfactor.base.errors import InputError, no_such
from loadfactor.base.paths import read_path, read_store
from loadfactor.base.quantities import parse_duration_s
from loadfactor.settings.alerts import AlertTables
from loadfactor.settings.asked_source import AskedSource
from loadfactor.settings.billing import BillingSettings
from loadfactor.settings.clouds import CloudSource, CloudWatchAccount, MonitoredProject
from loadfactor.settings.clusters import AskedSlurm, WatchedCluster
from loadfactor.settings.exporters import DcgmExporters, ExporterGroup, ServingEngines
from loadfactor.settings.file import CHOSEN
from loadfactor.settings.levers import DoneLever
from loadfactor.settings.money import Budgets, ChargebackPolicy
from loadfactor.settings.networks import JobNetwork
from loadfactor.settings.notify import AlertsTable
from loadfactor.settings.owned import OwnedPools
from loadfactor.settings.projects import ProjectPlans
from loadfactor.tables.schema import CURRENCY, IDLE_BELOW
from loadfactor.tables.tagging_rules import read_rules


def name_server(url: str) -> str:
    """What to call a server: its host and port, without what an address may hold of passwords.

    >>> name_server("https://user:secret@prometheus.example:9090/path")
    'prometheus.example:9090'
    """
    return url.split("://", 1)[1].split("/", 1)[0].rsplit("@", 1)[-1]


class PulledServer(AskedSource):
    """A Prometheus-compatible server that `loadfactor up` asks: a table [[prometheus]]. By default its host is its name."""

    url: str = Field(pattern=r"^https?://[^\s/]+\S*$", description="What comes before /api/v1/query.")
    match: str = Field(default="", description='Which series: {cluster="a"}. By default, all that are understood.')
    bearer_token_file: Path | None = Field(default=None, description="File with the token it asks for.")
    serving: bool | None = Field(
        default=None,
        description="Whether to ask for serving engines, too. By default where there is no [[serving]].",
    )

    @property
    def label(self) -> str:
        """What to call it; without what an address may hold of passwords."""
        return self.name or name_server(self.url)


class ServerSettings(BaseModel):
    """How `loadfactor up` listens: the table [server]."""

    model_config = ConfigDict(extra="forbid")

    tls_cert: Path | None = Field(default=None, description="File with the certificate of the server.")
    tls_key: Path | None = Field(default=None, description="File with its key.")
    flush_every: str = Field(default="5min", description="How often live rows become files.")
    trusted_proxies: tuple[str, ...] = Field(
        default=(), description="Addresses of proxies that ask who is there, and are believed."
    )

    @field_validator("flush_every")
    @classmethod
    def _long(cls, text: str) -> str:
        parse_duration_s(text)
        return text

    @property
    def flush_every_s(self) -> float:
        """Seconds between two flushes."""
        return parse_duration_s(self.flush_every)


class TaggingSettings(BaseModel):
    """Where experiment, team, project and purpose of jobs come from besides rules: the table [tagging]."""

    model_config = ConfigDict(extra="forbid")

    mapping: Path | None = Field(default=None, description="CSV that says, with dates, whose jobs were of what.")

    @field_validator("mapping")
    @classmethod
    def _at_home(cls, path: Path | None) -> Path | None:
        return path and read_path(path)


class PrivacySettings(BaseModel):
    """What the books say of people: the table [privacy]."""

    model_config = ConfigDict(extra="forbid")

    users: Literal["names", "pseudonyms"] = Field(default="names", description="What stands for users in the books.")
    key_file: Path | None = Field(default=None, description="File with the key of pseudonyms.")

    @field_validator("key_file")
    @classmethod
    def _at_home(cls, path: Path | None) -> Path | None:
        return path and read_path(path)


class Settings(BaseModel):
    """Everything that can be settled once."""

    model_config = ConfigDict(extra="forbid")

    store: Path = Field(default=Path("books"), description="Folder of the books.")
    timezone: str = Field(default="UTC", description="Zone in which days begin and times without a zone are meant.")
    idle_below: float = Field(default=IDLE_BELOW, gt=0, lt=1, description="Held, and activity under this share: idle.")

    currency: str | None = Field(
        default=None, description="Reporting currency of the books, three letters. USD for new ones."
    )

    memory: str = Field(default="1000MB", description="Memory that a question or an import may take: 500MB, 4GB.")

    prometheus: tuple[PulledServer, ...] = Field(
        default=(), description="Servers that `loadfactor up` asks for samples."
    )
    dcgm: tuple[DcgmExporters, ...] = Field(default=(), description="dcgm-exporters that `loadfactor up` scrapes.")
    scrape: tuple[ExporterGroup, ...] = Field(default=(), description="Exporters of any kind that it scrapes.")
    serving: tuple[ServingEngines, ...] = Field(default=(), description="Serving engines whose metrics it scrapes.")
    kubernetes: tuple[WatchedCluster, ...] = Field(default=(), description="Clusters of Kubernetes that it watches.")
    cloudwatch: tuple[CloudWatchAccount, ...] = Field(default=(), description="Accounts whose CloudWatch it asks.")
    gcp_monitoring: tuple[MonitoredProject, ...] = Field(
        default=(), alias="gcp-monitoring", description="Projects whose Cloud Monitoring it asks."
    )
    slurm: tuple[AskedSlurm, ...] = Field(default=(), description="Clusters of Slurm that it asks.")
    server: ServerSettings = Field(default=ServerSettings(), description="How `loadfactor up` listens.")
    tag: tuple[dict[str, Any], ...] = Field(
        default=(), description="Rules that give jobs experiment, team, project and purpose: tables [[tag]]."
    )
    tagging: TaggingSettings = Field(default=TaggingSettings(), description="What the rules leave open.")
    network: tuple[JobNetwork, ...] = Field(default=(), description="Networks that jobs train, for MFU.")
    privacy: PrivacySettings = Field(default=PrivacySettings(), description="What the books say of people.")
    billing: BillingSettings = Field(default=BillingSettings(), description="How lines of bills become GPUs of nodes.")
    chargeback: ChargebackPolicy = Field(default=ChargebackPolicy(), description="Who pays for what.")
    alert: AlertTables = Field(default=(), description="Rules of alerts that are changed or added.")
    alerts: AlertsTable = Field(default=AlertsTable(), description="How alerts are judged, and who is told of them.")
    budget: Budgets = Field(default=(), description="What teams and projects may spend.")
    project: ProjectPlans = Field(default=(), description="Projects as they were planned.")
    lever: tuple[DoneLever, ...] = Field(default=(), description="Levers that were pulled, to be followed up.")
    owned: OwnedPools = Field(default=(), description="GPUs that are owned, and what their servers cost.")

    @property
    def exporters(self) -> tuple[ExporterGroup, ...]:
        """All groups that are scraped."""
        return (*self.dcgm, *self.scrape, *self.serving)

    @field_validator("dcgm", "scrape", "serving")
    @classmethod
    def _told_apart(cls, groups: tuple[ExporterGroup, ...]) -> tuple[ExporterGroup, ...]:
        for label, count in Counter(group.label for group in groups).items():
            if count > 1:
                raise ValueError(f"{count} groups are called {label!r}; give each a name")
        return groups

    @field_validator("kubernetes")
    @classmethod
    def _named_apart(cls, clusters: tuple[WatchedCluster, ...]) -> tuple[WatchedCluster, ...]:
        if len({cluster.name for cluster in clusters}) < len(clusters):
            raise ValueError("two clusters of Kubernetes have one name; give each its own")
        return clusters

    @field_validator("cloudwatch", "gcp_monitoring")
    @classmethod
    def _called_apart(cls, sources: tuple[CloudSource, ...]) -> tuple[CloudSource, ...]:
        for label, count in Counter(source.label for source in sources).items():
            if count > 1:
                raise ValueError(f"{count} sources of this cloud are called {label!r}; give each a name")
        return sources

    @field_validator("slurm")
    @classmethod
    def _slurm_told_apart(cls, clusters: tuple[AskedSlurm, ...]) -> tuple[AskedSlurm, ...]:
        if len({cluster.name for cluster in clusters}) < len(clusters):
            raise ValueError("two clusters of Slurm have one name; give each its own")
        return clusters

    @field_validator("store")
    @classmethod
    def _found(cls, folder: Path) -> Path:
        return read_store(folder)

    @field_validator("tag")
    @classmethod
    def _understood(cls, tables: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
        read_rules(tables)
        return tables

    @field_validator("memory")
    @classmethod
    def _measured(cls, size: str) -> str:
        if not re.fullmatch(r"\d+(\.\d+)? ?[MGT]i?B", size) or not float(re.split("[^0-9.]", size)[0]):
            raise ValueError(f"{size!r} is no amount of memory; write 500MB or 4GB")
        return size

    @field_validator("timezone")
    @classmethod
    def _known(cls, name: str) -> str:
        zone(name)
        return name

    @field_validator("currency")
    @classmethod
    def _written(cls, code: str | None) -> str | None:
        if code is not None and not re.match(CURRENCY, code):
            raise ValueError(f"{code!r} is no currency; write three capital letters, like EUR")
        return code


@cache
def settings() -> Settings:
    """The settings of this process. Raises InputError naming the line or the setting that is wrong."""
    return read_settings(CHOSEN.look())


def choose_file(path: Path) -> Settings:
    """Take the settings of this process from this file in place of loadfactor.toml. Raises as `settings`."""
    CHOSEN.path = path
    settings.cache_clear()
    return settings()


def take_changes() -> None:
    """Take the settings anew where their file changed; those of before stay where it cannot be read, as while it is written."""
    if CHOSEN.has_changed():
        with suppress(InputError):
            read_settings(CHOSEN.path)
            settings.cache_clear()
            settings()


def read_settings(path: Path) -> Settings:
    """Settings from a file like loadfactor.toml, under those of the environment. Raises as `settings`; no file is an empty one."""
    try:
        written = loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        given = {name: os.environ.get(f"LOADFACTOR_{name.upper()}") for name in Settings.model_fields}
        return Settings(**{**written, **{name: value for name, value in given.items() if value}})
    except TOMLDecodeError as error:
        raise InputError(f"{path}: {str(error)[:1].lower()}{str(error)[1:]}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            raise InputError(f"{path}: {no_such('setting', name, Settings.model_fields)}") from error
        said = first["msg"].removeprefix("Value error, ")
        raise InputError(f"setting {name!r} in {path} or LOADFACTOR_{name.upper()}: {said}") from error


def is_debugging() -> bool:
    """True where LOADFACTOR_DEBUG asks for tracebacks."""
    return os.environ.get("LOADFACTOR_DEBUG", "") not in ("", "0")


def smtp_password() -> str | None:
    """The password for SMTP servers that the environment names."""
    return os.environ.get("LOADFACTOR_SMTP_PASSWORD")


def cache_folder() -> Path:
    """Where what can be worked out again is kept between runs: of this user, outside every store."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "loadfactor"


def zone(name: str) -> ZoneInfo:
    """A time zone by its name; InputError when there is none."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InputError(f"no time zone called {name!r}; write it as Europe/Berlin or UTC") from error
