"""`make screenshots`: a picture of the first screen of every page over a demo store, for docs/look-at-the-pages.md.

The pages are of a copy of the store, beside a contract on availability and with a saved view.

python -m tests.browser.screenshots STORE FOLDER [WIDTH]
"""

import sys
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import copytree
from tempfile import TemporaryDirectory
from typing import Any

from tests.browser.chromium import serve, start_chromium

from loadfactor.base.clock import now_ms
from loadfactor.books.books import Books
from loadfactor.interfaces.web.pages import PAGES
from loadfactor.interfaces.web.views import SavedView, name_owner, save_view

DESK_PX, HIGH_PX = 1280, 900
WEBP = {"format": "webp", "quality": 55}
LONGEST_MS = 300_000  # a diagnosis, made anew
THINGS = {"/teams/{id}": "team", "/teams/{id}/statement": "team", "/jobs/{id}": "job", "/gpus/{id}": "device"}

VIEW = SavedView("Idle by team, by day", "/time?by=team,day&metric=idle_gpu_hours", now_ms())


@contextmanager
def prepare(store: Path) -> Iterator[Path]:
    """A copy of a store with the view."""
    with TemporaryDirectory() as folder:
        copy = copytree(store, Path(folder) / store.name)
        save_view(copy, name_owner("", ""), VIEW, [page.path for page in PAGES])
        yield copy


def name_pages(store: Path) -> dict[str, str]:
    """The address of each page, of a thing the costliest, by the name of its picture."""
    with Books.open(store).snapshot() as snapshot:
        found = {path: snapshot.show(("cost",), (by,)).arrange("cost", True).keys for path, by in THINGS.items()}
    first = {path: next(str(key[0]) for key in keys if key[0]) for path, keys in found.items()}
    names = {page.path: page.path.replace("/{id}", "-one").strip("/").replace("/", "-") or "fleet" for page in PAGES}
    return {names[page.path]: page.path.replace("{id}", first.get(page.path, "")) for page in PAGES}


def take(page: Any, folder: Path, name: str) -> None:
    """One picture of what is on the screen."""
    page.locator("[data-poll]").wait_for(state="detached", timeout=LONGEST_MS)  # until a long answer is there
    page.wait_for_load_state("networkidle")  # and the heat map
    shot = page.context.new_cdp_session(page).send("Page.captureScreenshot", WEBP)
    (folder / f"{name}.webp").write_bytes(b64decode(shot["data"]))


def main(store: Path, folder: Path, width: int = DESK_PX) -> None:
    """Write the pictures of all pages."""
    folder.mkdir(parents=True, exist_ok=True)
    with prepare(store) as copy, serve(copy) as address, start_chromium() as browser:
        page = browser.new_page(base_url=address, viewport={"width": width, "height": HIGH_PX})
        for name, path in name_pages(store).items():
            page.set_viewport_size({"width": width, "height": HIGH_PX})
            page.goto(path, timeout=LONGEST_MS)
            take(page, folder, name)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]), *map(int, sys.argv[3:]))
