"""Python functions made from requests: they take what a command takes and return the page it prints."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec

from loadfactor.base.request import RequestT, make_request, options_of
from loadfactor.interfaces.document import Document
from loadfactor.interfaces.render.html import render_body
from loadfactor.interfaces.render.json import render_json
from loadfactor.interfaces.render.present import write_document
from loadfactor.interfaces.render.terminal import render_text


@dataclass(frozen=True, repr=False)
class Page:
    """One answer. `data` holds its numbers, unrounded; print it to read it."""

    document: Document

    @property
    def data(self) -> Any:
        """The numbers of the answer: a frozen dataclass."""
        return self.document.data

    @property
    def headline(self) -> str:
        """The answer in one sentence."""
        return self.document.headline

    def to_json(self) -> str:
        """The data as JSON text, as `--format json` prints it."""
        return render_json(self.document)

    def save(self, path: str | Path) -> None:
        """Write the answer into a file: .html, .pdf, .xlsx, .md, .json, .csv, .txt, .png or .svg."""
        write_document(self.document, Path(path))

    def __repr__(self) -> str:
        return render_text(self.document)

    def _repr_html_(self) -> str:
        return render_body(self.document)


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
