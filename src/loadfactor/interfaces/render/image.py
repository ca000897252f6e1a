"""The charts of a document as one picture, PNG or SVG."""

from pathlib import Path

from loadfactor.base.errors import InputError
from loadfactor.interfaces.charts import image
from loadfactor.interfaces.document import Document


def save_image(document: Document, path: Path) -> None:
    """Write the charts under the headline. Raises InputError where the page has none."""
    if not document.charts:
        raise InputError(f"--output {path.suffix}: this answer has no picture; take .html, .json or .txt")
    image.save(document.charts, path, heading=document.headline)
