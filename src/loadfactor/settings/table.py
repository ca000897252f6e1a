"""What tables of `loadfactor.toml` have in common: they never change, and a mistyped name gets the nearest one."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

from loadfactor.base.errors import no_such


class SettingsTable(BaseModel):
    """A table of `loadfactor.toml` that never changes; a name that it does not have gets the nearest one it has."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _known(cls, written: Any) -> Any:
        known = [field.alias or name for name, field in cls.model_fields.items()]
        for name in written if isinstance(written, Mapping) else ():
            if name not in known:
                raise ValueError(str(no_such("setting", name, known)))
        return written

    def as_json(self) -> dict[str, Any]:
        """Its settings by name."""
        return {name: getattr(self, name) for name in type(self).model_fields}
