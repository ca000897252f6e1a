"""Requests of commands: frozen dataclasses whose fields are its options, checked when they are made.

    @dataclass(frozen=True, kw_only=True)
    class TrainingRequest(Request):
        model: str = option("Network of the catalog, or a Hugging Face config.json.", short="-m")
        gpus: tuple[int, ...] = option("How many GPUs; several draw the scaling curve.", at_least=1)
        tokens: float = option("Tokens to train on.", 1e12, above=0)

The command line and the public Python functions are made from the same class, so both take the same things under the same
names. Text is read as people write it ("15T", "8,64,512"), and what cannot be is refused in one line that names the option.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from loadfactor.base.errors import InputError, no_such
from loadfactor.base.limits import Limits, shorten
from loadfactor.base.paths import check_names_one_store, read_path
from loadfactor.base.quantities import parse_number
from loadfactor.base.spelling import spell_out_bytes

RequestT = TypeVar("RequestT", bound="Request")
_OPTION, _NAME = "loadfactor.option", "loadfactor.name"


@dataclass(frozen=True)
class Option:
    """One thing a command takes: its name on the command line, what it says, which values make sense."""

    flag: str
    field: str
    default: Any
    kind: type
    many: bool
    optional: bool
    choices: tuple[str, ...]
    help: str
    short: str
    limits: Limits
    is_argument: bool

    @property
    def required(self) -> bool:
        """True when there is no default."""
        return self.default is MISSING

    @property
    def is_store(self) -> bool:
        """True for the folder of the books, of which there is one: given several times it is refused."""
        return self.field == "store"

    @property
    def shown_default(self) -> str:
        """The default as a person writes it; empty where there is none, and for what is off."""
        if self.required or self.default in (None, (), "", False):
            return ""
        default = self.default
        if isinstance(default, tuple):
            return ",".join(str(part) for part in default)
        return "yes" if default is True else f"{default:g}" if isinstance(default, float) else str(default)


def option(
    help: str,
    default: Any = MISSING,
    *,
    name: str = "",
    short: str = "",
    within: Limits | None = None,
    above: float | None = None,
    at_least: float | None = None,
    below: float | None = None,
    at_most: float | None = None,
    is_argument: bool = False,
) -> Any:
    """A field of a Request. `name` is its flag where that is not the field's name with dashes.

    The range is one that has a name in `limits.py` (`within`), or is given by its ends.
    """
    limits = within or Limits(above, at_least, below, at_most)
    declared = {"help": help, "short": short, "limits": limits, "is_argument": is_argument}
    return field(default=default, metadata={_OPTION: declared, _NAME: name})


class Request:
    """Base of what a command takes. Raises InputError when a value is of the wrong kind or outside its range."""

    def __post_init__(self) -> None:
        kind: Any = type(self)
        for item in options_of(kind):
            object.__setattr__(self, item.field, read_value(getattr(self, item.field), item))


@cache
def options_of(request: Callable[..., Any]) -> tuple[Option, ...]:
    """The options of a request class, in the order a person reads them."""
    kinds = get_type_hints(request)
    found = []
    for item in fields(request):  # type: ignore[arg-type]
        declared = item.metadata[_OPTION]
        name = item.name.upper() if declared["is_argument"] else item.metadata[_NAME]
        flag = name or "--" + item.name.replace("_", "-")
        found.append(Option(flag, item.name, item.default, *_kind_of(kinds[item.name]), **declared))
    return tuple(found)


def make_request(request: Callable[..., RequestT], given: Mapping[str, Any]) -> RequestT:
    """The request with these values. Raises InputError naming an argument that is missing or that it does not take."""
    known = {item.field: item for item in options_of(request)}
    for name in given:
        if name not in known:
            raise no_such("argument", name, known)
    for name, item in known.items():
        if item.required and name not in given:
            raise InputError(f"{item.flag} is missing: {item.help}")
    return request(**given)


def _kind_of(hint: Any) -> tuple[type, bool, bool, tuple[str, ...]]:
    """The meaning of a type hint: the kind of one value, whether there may be many or none, and the choices."""
    optional = False
    if get_origin(hint) in (Union, UnionType):
        inner = [part for part in get_args(hint) if part is not NoneType]
        optional, hint = len(inner) < len(get_args(hint)), inner[0]
    many = get_origin(hint) is tuple
    if many:
        hint = get_args(hint)[0]
    if get_origin(hint) is Literal:
        return str, many, optional, tuple(get_args(hint))
    return hint, many, optional, ()


def read_value(value: Any, item: Option) -> Any:
    """The value of an option as its request has it. Raises InputError that begins with its flag, or names its choices."""
    if item.is_store and isinstance(value, (list, tuple)):
        check_names_one_store(*value)
        value = value[0] if value else None
    if value is None:
        if item.optional:
            return None
        raise InputError(f"{item.flag} needs a value: {item.help}")
    if not item.many:
        return _read_one(value, item)
    parts: Sequence[Any] = value if isinstance(value, (list, tuple)) or hasattr(value, "tolist") else (value,)
    splits = item.kind is not Path  # a comma may be part of a file's name
    pieces = [piece for part in parts for piece in (part.split(",") if splits and isinstance(part, str) else (part,))]
    values = tuple(_read_one(piece, item) for piece in pieces if piece != "")
    if not values and item.required:
        raise InputError(f"{item.flag} needs a value: {item.help}")
    return values


def _read_one(value: Any, item: Option) -> Any:
    if item.kind is bool:
        if not isinstance(value, bool):
            raise InputError(f"{item.flag} is true or false, got {value!r}")
        return value
    if item.kind is Path:
        try:
            return read_path(value)
        except TypeError as error:
            raise InputError(f"{item.flag} must be a path, got {value!r}") from error
        except InputError as error:
            raise InputError(f"{item.flag} {error}") from error
    if item.kind is str:
        text = str(value).strip()
        # Names of files, which may have any bytes, are what commands take several of.
        if spell_out_bytes(text) != text and not (item.is_argument and item.many):
            raise InputError(f"{item.flag} must be written in UTF-8, got '{spell_out_bytes(text)}'")
        if item.choices and text not in item.choices:
            raise no_such(item.flag.lstrip("-").replace("-", " ").lower(), text, item.choices)
        return text
    number = _read_number(value, item)
    if item.kind is int:
        if number != int(number):
            raise InputError(f"{item.flag} must be a whole number, got {shorten(value)}")
        return int(number)
    return number


def _read_number(value: Any, item: Option) -> float:
    """The number inside its limits. Raises InputError that says the range, whatever is wrong."""
    must = f"{item.flag} must be {item.limits.words}, got {shorten(value)}"
    try:
        if isinstance(value, bool):
            raise TypeError
        number = parse_number(value) if isinstance(value, str) else float(value)
    except OverflowError as error:  # a whole number beyond the floating-point range
        raise InputError(must) from error
    except (InputError, TypeError, ValueError) as error:
        raise InputError(f"{must}, which is no number; write 512, 20k, 1.5M, 15T or 15e12") from error
    if not item.limits.admit(number):
        raise InputError(must)
    return number
