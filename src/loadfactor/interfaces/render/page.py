"""What a Python function answers with: a document that prints itself, shows itself in notebooks and writes itself into files."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
        """What the answer is made of: a frozen dataclass."""
        return self.document.data

    @property
    def headline(self) -> str:
        """The answer in one sentence."""
        return self.document.headline

    def to_json(self) -> str:
        """The data as JSON text, as `--format json` prints it."""
        return render_json(self.document)

    def save(self, path: str | Path) -> None:
        """Write the answer into a file: .html, .md, .json, .csv, .txt, .png or .svg."""
        write_document(self.document, Path(path))

    def __repr__(self) -> str:
        return render_text(self.document)

    def _repr_html_(self) -> str:
        """The page for notebooks."""
        return render_body(self.document)
