"""What goes wrong where a server is asked."""

from loadfactor.base.errors import LoadfactorError


class FetchError(LoadfactorError):
    """A server could not be asked, or its answer is not what was asked for."""


class TooMuchError(FetchError):
    """The answer would be larger than the server or we allow."""


class LateError(FetchError):
    """The answer did not come in time."""
