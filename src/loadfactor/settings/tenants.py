"""The tenants of a server that keeps many books: tables [[tenant]]."""

from pathlib import Path
from typing import Annotated, Final

from pydantic import Field, field_validator

from loadfactor.base.paths import read_store
from loadfactor.settings.server import check_roles
from loadfactor.settings.table import HomePath, SettingsTable, unique

TENANT_NAME: Final = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
"""As labels of DNS are, so that a name stands in an address as it is."""


class TenantSettings(SettingsTable):
    """The books of one tenant of a server, who may ask only them, and what they may take: a table [[tenant]]."""

    name: str = Field(pattern=f"^{TENANT_NAME}$", description="Its name in addresses: /t/NAME/. As a host is called.")
    store: Path = Field(description="Where its books are kept, and its tokens: a folder, or s3://, gs:// or az://.")
    config: HomePath | None = Field(
        default=None,
        description="Its own configuration: sources, prices, alerts, digests and what else one has; its store is the one here.",
    )
    rows_per_s: float | None = Field(
        default=None, gt=0, description="Samples and records that it may send a second, in the long run."
    )
    series: int | None = Field(default=None, gt=0, description="Series of samples that it may send.")
    store_gb: float | None = Field(
        default=None, gt=0, description="GB that its books may take; then it may send no more."
    )
    questions: int | None = Field(
        default=None, gt=0, description="Questions of it that are worked on at once; four times as many may wait."
    )

    groups: dict[str, str] = Field(
        default={},
        description="Role of each group of whom trusted proxies name: everything, read, or team:NAME, as in [server].",
    )

    @field_validator("groups")
    @classmethod
    def _known(cls, groups: dict[str, str]) -> dict[str, str]:
        return check_roles(groups)

    @field_validator("store")
    @classmethod
    def _found(cls, folder: Path) -> Path:
        return read_store(folder)


Tenants = Annotated[
    tuple[TenantSettings, ...],
    unique("two tables [[tenant]] are called {item.name!r}; a name is that of one tenant", "name"),
    unique("two tables [[tenant]] have the store {item.store}; each tenant has its own", "store"),
]
