"""What is wrong with a request, as an answer: a status, and `{"error": one line}`."""

import json
import re
from math import ceil

from starlette.responses import Response

from loadfactor.base.errors import BusyError, InputError, LoadfactorError, StoreError
from loadfactor.base.spelling import spell_out
from loadfactor.interfaces.server.guard import RefusedError
from loadfactor.interfaces.server.request_log import hide_secrets
from loadfactor.sources.prometheus.remote_write import BodyTooLarge

STORE_RETRY_S = 5
_FLAG = re.compile(r"(`[^`]*`)|(?<![\w-])--([a-z])")


def refuse(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    """The answer to a request that is not served."""
    line = hide_secrets(spell_out(" ".join(message.split())))
    body = json.dumps({"error": line}, ensure_ascii=False).encode("utf-8", "replace")
    return Response(body, status, headers, "application/json")


def answer_error(error: Exception) -> Response:
    """The answer where a request failed with this; the words of the command line's options become those of parameters."""
    message = _FLAG.sub(lambda found: found[1] or found[2], str(error))
    if isinstance(error, RefusedError):
        return refuse(error.status, message, {"WWW-Authenticate": "Bearer"} if error.status == 401 else None)
    if isinstance(error, BusyError):
        return refuse(429, message, {"Retry-After": str(max(1, ceil(error.retry_after_s)))})
    if isinstance(error, BodyTooLarge):
        return refuse(413, message)
    if isinstance(error, InputError):
        return refuse(400, message)
    if isinstance(error, StoreError):
        return refuse(503, message, {"Retry-After": str(STORE_RETRY_S)})
    if isinstance(error, LoadfactorError):
        return refuse(500, message)
    return refuse(
        500, f"an error in loadfactor itself ({type(error).__name__}); the log says more under this request id"
    )
