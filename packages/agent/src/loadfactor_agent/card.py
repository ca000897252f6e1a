"""Asking NVML about one card: what the card or its driver lacks is said once and not asked again."""

from collections.abc import Callable
from typing import Any, Final

import pynvml

from .notices import Notices

_LACKING: Final = {
    pynvml.NVML_ERROR_NOT_SUPPORTED,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    pynvml.NVML_ERROR_NO_PERMISSION,
    pynvml.NVML_ERROR_INVALID_ARGUMENT,
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
}
_LOST: Final = {
    pynvml.NVML_ERROR_GPU_IS_LOST,
    pynvml.NVML_ERROR_RESET_REQUIRED,
    pynvml.NVML_ERROR_UNINITIALIZED,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
    pynvml.NVML_ERROR_GPU_NOT_FOUND,
}


class CardLostError(Exception):
    """The card does not answer any more, until it or its driver is set back."""


class Card:
    """One card. `model` is what it is called in what is said; the same is said once of all cards of a model."""

    def __init__(self, model: str, notices: Notices) -> None:
        self.model = model
        self._notices = notices
        self._lacks: set[str] = set()

    def ask(self, what: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """What the function answers; None where it has no answer now or ever. Raises CardLostError."""
        if what in self._lacks:
            return None
        try:
            return function(*arguments)
        except pynvml.NVMLError as error:
            self.refuse(what, error.value)
            return None

    def refuse(self, what: str, code: int) -> None:
        """Notes that a question was answered with this error. Raises CardLostError where that says that the card is lost."""
        if code in _LOST:
            raise CardLostError(_name_error(code))
        if code in _LACKING:
            self._lacks.add(what)
            self._notices.say(f"{self.model} {what}", f"{self.model} gives no {what} ({_name_error(code)}); left out")

    def lacks(self, what: str) -> bool:
        """Whether it was found not to have this."""
        return what in self._lacks


def _name_error(code: int) -> str:
    try:
        return str(pynvml.nvmlErrorString(code))
    except (pynvml.NVMLError, AttributeError):
        return f"error {code}"
