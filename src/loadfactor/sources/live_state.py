"""State of a decoder that works live: a dataclass with a version, as compressed JSON that names its fields."""

import json
import zlib
from functools import cache
from typing import Any, Final, TypeVar, cast

from pydantic import TypeAdapter

from loadfactor.base.errors import SourceError

State = TypeVar("State")
_QUICK: Final = 1


@cache
def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def pack_state(state: Any) -> bytes:
    """A state as bytes that `unpack_state` reads."""
    kind: Any = type(state)
    fields = _adapter(kind).dump_python(state, mode="json")
    return zlib.compress(json.dumps(fields, separators=(",", ":")).encode(), _QUICK)


def unpack_state(kind: type[State], packed: bytes, name: str) -> State:
    """The state of `name` in bytes. Raises SourceError where it is damaged or of another version."""
    try:
        found: State = _adapter(cast(Any, kind)).validate_python(json.loads(zlib.decompress(packed)))
        return found
    except (zlib.error, ValueError, KeyError, TypeError, AttributeError) as error:
        why = " ".join(str(error).splitlines()[:3])
        raise SourceError(f"the state of {name} cannot be read ({type(error).__name__}: {why})") from error
