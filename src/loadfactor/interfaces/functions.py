"""Python functions made from requests: they take what a command takes and return the page it prints."""

import inspect
from collections.abc import Callable
from typing import ParamSpec

from loadfactor.base.request import RequestT, make_request, options_of
from loadfactor.interfaces.document import Document
from loadfactor.interfaces.render.page import Page

Given = ParamSpec("Given")


def make_function(
    name: str, request: Callable[Given, RequestT], build: Callable[[RequestT], Document], about: str
) -> Callable[Given, Page]:
    """A function of the request's fields, typed and completed as its class is. It raises InputError as the command would."""

    def answer(*args: Given.args, **given: Given.kwargs) -> Page:
        if args:
            raise TypeError(f"{name} takes named arguments only: {name}({options_of(request)[0].field}=…)")
        return Page(build(make_request(request, given)))

    lines = [f"    {item.field}: {item.help}" for item in options_of(request)]
    answer.__doc__ = "\n".join([about, "", "Arguments:", *lines])
    answer.__name__ = answer.__qualname__ = name
    answer.__signature__ = inspect.signature(request).replace(return_annotation=Page)  # type: ignore[attr-defined]
    return answer
