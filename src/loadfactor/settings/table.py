"""The base class of all tables of `loadfactor.toml`, and the types of their settings."""

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, GetCoreSchemaHandler, model_validator
from pydantic_core import PydanticCustomError, core_schema

from loadfactor.base.errors import InputError, no_such
from loadfactor.base.paths import read_path
from loadfactor.base.quantities import parse_duration_s

UNKNOWN_SETTING = "unknown_setting"
"""The type of the error for a name that a table does not have."""
URL = r"^https?://[^\s/]+\S*$"
ItemT = TypeVar("ItemT")


class SettingsTable(BaseModel):
    """A table of `loadfactor.toml`. It never changes; a name that it does not have gets the nearest one it has."""

    # a table is compiled with the one that it is in, or when it is first read by itself
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    @model_validator(mode="before")
    @classmethod
    def _knows_its_names(cls, given: Any) -> Any:
        known = [field.alias or name for name, field in cls.model_fields.items()]
        for name in given if isinstance(given, Mapping) else ():
            if name not in known:
                message = str(no_such("setting", name, known))
                raise PydanticCustomError(UNKNOWN_SETTING, "{message}", {"message": message, "name": name})
        return given

    def as_json(self) -> dict[str, Any]:
        """Its settings by name."""
        return {name: getattr(self, name) for name in type(self).model_fields}


class Duration(str):
    """A length of time as people write it: 30s, 5min, 14d."""

    allows_zero: ClassVar[bool] = False

    @property
    def s(self) -> float:
        """It in seconds."""
        return 0.0 if self.strip() in ("0", "0s") else parse_duration_s(self)

    @classmethod
    def read(cls, text: str) -> "Duration":
        """The length that a text gives. Raises ValueError where it is none."""
        if not (cls.allows_zero and text.strip() in ("0", "0s")):
            try:
                parse_duration_s(text)
            except InputError as error:
                raise ValueError(str(error)) from error
        return cls(text)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_after_validator_function(
            cls.read, core_schema.str_schema(), serialization=core_schema.to_string_ser_schema()
        )


class DurationOrZero(Duration):
    """A length of time, or 0s."""

    allows_zero: ClassVar[bool] = True


def read_amount(given: Any, what: str = "it") -> Decimal:
    """An amount as it is written in TOML: a number, or a text with one. Raises ValueError naming `what`.

    >>> read_amount(0.1), read_amount("12000.50")
    (Decimal('0.1'), Decimal('12000.50'))
    """
    try:
        amount = Decimal(str(given)) if not isinstance(given, bool) else Decimal("NaN")
    except InvalidOperation:
        amount = Decimal("NaN")
    if not amount.is_finite():
        raise ValueError(f"{what} is {given!r}, which is no number; write it like 12000 or 12000.50")
    return amount


HomePath = Annotated[Path, AfterValidator(read_path)]
"""A path whose ~ is the home folder."""
Amount = Annotated[Decimal, BeforeValidator(read_amount)]
"""An exact number, of money as a rule."""


def unique(message: str, *names: str) -> AfterValidator:
    """A check that no two items of a list have the same values of `names`; `message` may name what both have: {item.label}."""

    def check(items: tuple[ItemT, ...]) -> tuple[ItemT, ...]:
        seen = set()
        for item in items:
            key = tuple(getattr(item, name) for name in names)
            if key in seen:
                raise ValueError(message.format(item=item))
            seen.add(key)
        return items

    return AfterValidator(check)
