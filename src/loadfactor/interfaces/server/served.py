"""What the endpoints of one server share."""

from dataclasses import dataclass

from loadfactor.books.books import Books
from loadfactor.interfaces.server.bounds import Bounds
from loadfactor.interfaces.server.models import ErrorAnswer
from loadfactor.interfaces.server.question_pool import QuestionPool
from loadfactor.interfaces.server.receiver import Receiver
from loadfactor.interfaces.server.rows import MEDIA

ERRORS = {
    400: "the request cannot be understood",
    401: "a token is needed",
    403: "the token is not enough",
    408: "the body came too slowly",
    413: "the body is too large",
    414: "the address is too long",
    415: "the body is packed or written in another way",
    421: "a server on loopback was asked by another name",
    429: "too much at once: come back after Retry-After seconds",
    431: "the headers are too long",
    500: "an error in loadfactor itself",
    503: "the store cannot be read or written now",
}


@dataclass(frozen=True)
class Served:
    """The books, who takes samples in, the bounds, and the threads for questions, short ones and long ones."""

    books: Books
    receiver: Receiver
    bounds: Bounds
    pool: QuestionPool
    long_pool: QuestionPool


def describe_errors(*answers: int) -> dict[int | str, dict[str, object]]:
    """The responses of an endpoint that are errors, as OpenAPI describes them: those given and those every endpoint may give."""
    every = (400, 401, 403, 414, 421, 429, 431, 500, 503)
    return {status: {"model": ErrorAnswer, "description": ERRORS[status]} for status in sorted({*every, *answers})}


def describe_rows(model: type) -> dict[int | str, dict[str, object]]:
    """The responses of an endpoint that answers with rows in any form."""
    other: dict[str, object] = {MEDIA[form].partition(";")[0]: {} for form in ("csv", "arrow")}
    answers: dict[int | str, dict[str, object]] = {
        200: {"model": model, "description": "the rows", "content": other},
        304: {"description": "unchanged since the answer of this ETag"},
    }
    return answers | describe_errors()
