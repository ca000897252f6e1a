"""Settings of the user, typed; the only reader of `loadfactor.toml` and the environment.

An option on the command line comes before the environment (`LOADFACTOR_STORE=…`), that before `loadfactor.toml` in the working
folder, that before the defaults here.
"""

import os
import re
from functools import cache
from pathlib import Path
from tomllib import TOMLDecodeError, loads
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from loadfactor.errors import InputError, no_such
from loadfactor.paths import read_store
from loadfactor.quantities import parse_duration_s
from loadfactor.tables import CURRENCY, IDLE_BELOW

FILE = "loadfactor.toml"


def name_server(url: str) -> str:
    """What to call a server: its host and port, without what an address may hold of passwords.

    >>> name_server("https://user:secret@prometheus.example:9090/path")
    'prometheus.example:9090'
    """
    return url.split("://", 1)[1].split("/", 1)[0].rsplit("@", 1)[-1]


class PulledServer(BaseModel):
    """A Prometheus-compatible server that `loadfactor up` asks for samples: a table [[prometheus]]."""

    model_config = ConfigDict(extra="forbid")

    url: str = Field(pattern=r"^https?://[^\s/]+\S*$", description="What comes before /api/v1/query.")
    name: str = Field(default="", max_length=100, description="What to call it. By default, its host.")
    every: str = Field(default="60s", description="How often it is asked: 30s, 5min.")
    backfill: str = Field(default="", description="How far back to begin the first time: 30d. By default, an hour.")
    match: str = Field(default="", description='Which series: {cluster="a"}. By default, all that are understood.')
    bearer_token_file: Path | None = Field(default=None, description="File with the token it asks for.")

    @field_validator("every", "backfill")
    @classmethod
    def _long(cls, text: str) -> str:
        if text:
            parse_duration_s(text)
        return text

    @property
    def label(self) -> str:
        """What to call it; without what an address may hold of passwords."""
        return self.name or name_server(self.url)

    @property
    def every_s(self) -> float:
        """Seconds between two questions."""
        return parse_duration_s(self.every)

    @property
    def backfill_s(self) -> float:
        """How many seconds back it begins where nothing was pulled yet."""
        return parse_duration_s(self.backfill or "1h")


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
    server: ServerSettings = Field(default=ServerSettings(), description="How `loadfactor up` listens.")

    @field_validator("store")
    @classmethod
    def _found(cls, folder: Path) -> Path:
        return read_store(folder)

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
    return read_settings(Path(FILE))


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


def cache_folder() -> Path:
    """Where what can be worked out again is kept between runs: of this user, outside every store."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "loadfactor"


def zone(name: str) -> ZoneInfo:
    """A time zone by its name; InputError when there is none."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InputError(f"no time zone called {name!r}; write it as Europe/Berlin or UTC") from error
