"""Settings of the user, typed; the only reader of `loadfactor.toml` and the environment.

An option on the command line comes before the environment (`LOADFACTOR_STORE=…`), that before `loadfactor.toml` in the working
folder, that before the defaults here.
"""

import os
import re
from contextlib import suppress
from pathlib import Path
from tomllib import TOMLDecodeError, loads
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import Field, ValidationError, ValidationInfo, field_validator

from loadfactor.base.errors import InputError
from loadfactor.base.paths import check_names_one_store, read_path, read_store
from loadfactor.base.removed import find_removal
from loadfactor.settings.alerts import AlertsTable, AlertTables
from loadfactor.settings.digests import Digests, MailServer
from loadfactor.settings.energy import EnergySettings
from loadfactor.settings.jobs import JobNetwork, PrivacySettings, TaggingSettings
from loadfactor.settings.money import BillingSettings, Budgets, ChargebackPolicy, DoneLever, OwnedPools, ProjectPlans
from loadfactor.settings.notices import NoticesTable, WastefulRule
from loadfactor.settings.retention import RetentionSettings
from loadfactor.settings.server import BackupSettings, ServerSettings
from loadfactor.settings.sources import (
    CloudWatchAccounts,
    ExporterGroup,
    GcpProjects,
    KubernetesClusters,
    PrometheusSettings,
    Scraped,
    ScrapedDcgm,
    ScrapedEngines,
    SlurmClusters,
)
from loadfactor.settings.table import UNKNOWN_SETTING, SettingsTable
from loadfactor.settings.targets import Targets
from loadfactor.tables.schema import CURRENCY, IDLE_BELOW
from loadfactor.tables.tagging_rules import read_rules

FILE: Final = "loadfactor.toml"
Signature = tuple[int, int] | None


class Settings(SettingsTable):
    """Everything that can be set once."""

    store: Path = Field(
        default=Path("books"), description="Where the books are kept: a folder, or s3://, gs:// or az://."
    )
    local_folder: Path | None = Field(
        default=None,
        description="Folder on a local disk beside books in a bucket: live rows, tokens, what alerts have sent.",
    )
    cache_gb: float = Field(
        default=20, ge=0, description="GB of copies of files of books in a bucket that this machine keeps."
    )
    timezone: str = Field(default="UTC", description="Zone in which days begin and times without a zone are meant.")
    idle_below: float = Field(default=IDLE_BELOW, gt=0, lt=1, description="Held, and activity under this share: idle.")

    currency: str | None = Field(
        default=None, description="Reporting currency of the books, three letters. USD for new ones."
    )

    memory: str = Field(default="1000MB", description="Memory that a question or an import may take: 500MB, 4GB.")

    prometheus: tuple[PrometheusSettings, ...] = Field(
        default=(), description="Servers that `loadfactor up` asks for samples."
    )
    dcgm: ScrapedDcgm = Field(default=(), description="dcgm-exporters that `loadfactor up` scrapes.")
    scrape: Scraped = Field(default=(), description="Exporters of any kind that it scrapes.")
    serving: ScrapedEngines = Field(default=(), description="Serving engines whose metrics it scrapes.")
    kubernetes: KubernetesClusters = Field(default=(), description="Clusters of Kubernetes that it watches.")
    cloudwatch: CloudWatchAccounts = Field(default=(), description="Accounts whose CloudWatch it asks.")
    gcp_monitoring: GcpProjects = Field(
        default=(), alias="gcp-monitoring", description="Projects whose Cloud Monitoring it asks."
    )
    slurm: SlurmClusters = Field(default=(), description="Clusters of Slurm that it asks.")
    server: ServerSettings = Field(default=ServerSettings(), description="How `loadfactor up` listens.")
    retention: RetentionSettings = Field(
        default=RetentionSettings(), description="How long what the books hold is kept."
    )
    backup: BackupSettings = Field(
        default=BackupSettings(), description="Copies of the books that `loadfactor up` makes on a schedule."
    )
    tag: tuple[dict[str, Any], ...] = Field(
        default=(), description="Rules that give jobs experiment, team, project and purpose: tables [[tag]]."
    )
    tagging: TaggingSettings = Field(default=TaggingSettings(), description="What the rules leave open.")
    accelerator_names: dict[str, str] = Field(
        default={},
        description='What a site calls its GPUs, and what they are: a table [accelerator_names], gpu_large = "h100-sxm".',
    )
    serving_jobs: dict[str, tuple[str, ...]] = Field(
        default={},
        description='Jobs that serve a model which gateways log: a table [serving_jobs], llama-70b = ["chat-1", "chat-2"].',
    )
    tenant_teams: dict[str, str] = Field(
        default={},
        description='Teams that gateways call otherwise: a table [tenant_teams], acme = "vision". Others are called alike.',
    )
    network: tuple[JobNetwork, ...] = Field(default=(), description="Networks that jobs train, for MFU.")
    privacy: PrivacySettings = Field(default=PrivacySettings(), description="What the books say of people.")
    billing: BillingSettings = Field(default=BillingSettings(), description="How lines of bills become GPUs of nodes.")
    chargeback: ChargebackPolicy = Field(default=ChargebackPolicy(), description="Who pays for what.")
    alert: AlertTables = Field(default=(), description="Rules of alerts that are changed or added.")
    alerts: AlertsTable = Field(default=AlertsTable(), description="How alerts are judged, and who is notified.")
    mail: MailServer | None = Field(default=None, description="The server that digests are mailed through.")
    digest: Digests = Field(default=(), description="What is sent to whom each day, week or month.")
    notices: NoticesTable = Field(default=NoticesTable(), description="Whom notices of their own jobs reach.")
    wasteful: WastefulRule = Field(default=WastefulRule(), description="Which users `users --wasteful` names.")
    budget: Budgets = Field(default=(), description="What teams and projects may spend.")
    project: ProjectPlans = Field(default=(), description="Projects as they were planned.")
    lever: tuple[DoneLever, ...] = Field(default=(), description="Levers that were applied, to be followed up.")
    target: Targets = Field(default=(), description="What metrics are to be, by when.")
    owned: OwnedPools = Field(default=(), description="GPUs that are owned, and what their servers cost.")

    energy: EnergySettings = Field(
        default=EnergySettings(), description="What energy at the meter and its carbon are worked out of."
    )

    @property
    def exporters(self) -> tuple[ExporterGroup, ...]:
        """All groups that are scraped."""
        return (*self.dcgm, *self.scrape, *self.serving)

    @field_validator("store", mode="before")
    @classmethod
    def _is_one(cls, written: object) -> object:
        check_names_one_store(*(written if isinstance(written, list) else [str(written)]))
        return written

    @field_validator("store")
    @classmethod
    def _found(cls, folder: Path) -> Path:
        return read_store(folder)

    @field_validator("local_folder")
    @classmethod
    def _expanded(cls, folder: Path | None) -> Path | None:
        return None if folder is None else read_path(folder)

    @field_validator("tag")
    @classmethod
    def _understood(cls, tables: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
        read_rules(tables)
        return tables

    @field_validator("retention")
    @classmethod
    def _keeps_what_is_fetched(cls, given: RetentionSettings, others: ValidationInfo) -> RetentionSettings:
        for name in ("prometheus", "cloudwatch", "gcp_monitoring"):
            for source in others.data.get(name, ()):
                if source.backfill.s > given.samples.s:
                    raise ValueError(
                        f"samples = {given.samples} is less than backfill = {source.backfill} of {source.label}, which would be"
                        " dropped at once; keep samples as long, or begin later"
                    )
        return given

    @field_validator("digest")
    @classmethod
    def _in_zones(cls, tables: Digests) -> Digests:
        for table in tables:
            zone(table.timezone or "UTC")
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


class SettingsFile:
    """A file that settings come from: what they were when it was read last, and what it looked like then."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.found: Settings | None = None
        self._seen: Signature = None

    def look(self) -> Settings:
        """Its settings as they are now; changes count from now on. Raises as `settings`."""
        seen = sign_file(self.path)
        self.found = self.read()
        self._seen = seen
        return self.found

    def read(self) -> Settings:
        """The same, which changes nothing."""
        return read_settings(self.path)

    def has_changed(self) -> bool:
        """True where it is another than when it was looked at."""
        return sign_file(self.path) != self._seen


CHOSEN: Final = SettingsFile(Path(FILE))
"""That of this process."""


def sign_file(path: Path) -> Signature:
    """A stamp that changes when a file does; None where there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


class _SettingsHere:
    """Gives the settings that hold here, read once."""

    def __call__(self) -> Settings:
        """Raises InputError naming the line or the setting that is wrong."""
        return CHOSEN.found or CHOSEN.look()

    def cache_clear(self) -> None:
        """Read them again the next time."""
        CHOSEN.found = None


settings: Final = _SettingsHere()


def choose_file(path: Path) -> Settings:
    """Take the settings of this process from this file in place of loadfactor.toml. Raises as `settings`."""
    CHOSEN.path = path
    settings.cache_clear()
    return settings()


def take_changes() -> None:
    """Take the settings anew where their file changed; those of before stay where it cannot be read, as while it is written."""
    if CHOSEN.has_changed():
        with suppress(InputError):
            CHOSEN.look()


def read_settings(path: Path) -> Settings:
    """Settings from a file like loadfactor.toml, under those of the environment. Raises as `settings`; no file is an empty one."""
    try:
        written = loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        return Settings(**{**written, **read_environment()})
    except TOMLDecodeError as error:
        raise InputError(f"{path}: {str(error)[:1].lower()}{str(error)[1:]}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        message = first["msg"].removeprefix("Value error, ")
        if first["type"] == UNKNOWN_SETTING:
            tables = [part for part in first["loc"] if isinstance(part, str)]
            removal = find_removal("settings", ".".join([*tables, first["ctx"]["name"]]))
            if removal is not None:
                raise InputError(f"{path}: {removal.sentence}") from error
            raise InputError(f"{path}: {f'{name}: ' if name else ''}{message}") from error
        raise InputError(f"setting {name!r} in {path} or LOADFACTOR_{name.upper()}: {message}") from error


def read_environment() -> dict[str, str]:
    """The settings that the environment gives, by name."""
    given = {name: os.environ.get(f"LOADFACTOR_{name.upper()}") for name in Settings.model_fields}
    return {name: value for name, value in given.items() if value}


def list_own_files() -> list[Path]:
    """Files of the settings of this process: loadfactor.toml, and the key of pseudonyms where one is named."""
    return [path for path in (settings().privacy.key_file, CHOSEN.path) if path is not None]


def is_debugging() -> bool:
    """True where LOADFACTOR_DEBUG asks for tracebacks."""
    return os.environ.get("LOADFACTOR_DEBUG", "") not in ("", "0")


def smtp_password() -> str | None:
    """The password for SMTP servers that the environment names."""
    return os.environ.get("LOADFACTOR_SMTP_PASSWORD")


def zone(name: str) -> ZoneInfo:
    """A time zone by its name; InputError when there is none."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InputError(f"no time zone called {name!r}; write it as Europe/Berlin or UTC") from error
