"""Cleanup of what killed writers left: staging folders, what had left them unpublished, and manifests half written.

Only names that the store gives are touched, and only beside a manifest that can be read.
"""

import re
import shutil
from pathlib import Path

from loadfactor.store import disk
from loadfactor.store.manifest import NAME, OWN_NAME, Manifest
from loadfactor.store.writer import MOVED

_STAGING = re.compile(r"staging-[0-9a-f]{32}")
_HALF_WRITTEN = re.compile(re.escape(NAME) + r"\.[0-9a-f]{32}\.tmp")


def remove_leftovers(folder: Path, manifest: Manifest) -> None:
    """Remove all of it. For who holds the store's lock; `manifest` is the newest one."""
    named = {f.name for f in manifest.files}
    for path in list(folder.iterdir()):
        if _HALF_WRITTEN.fullmatch(path.name):
            disk.remove(path)
        elif _STAGING.fullmatch(path.name) and path.is_dir() and not path.is_symlink():
            for name in _read_moved(path):
                if OWN_NAME.fullmatch(name) and name not in named:
                    disk.remove(folder / name)
            shutil.rmtree(path, ignore_errors=True)


def list_unfinished(folder: Path) -> set[str]:
    """The files of writers that died while they moved them into the store, before they could publish any."""
    moves = [_read_moved(p) for p in folder.iterdir() if _STAGING.fullmatch(p.name) and p.is_dir()]
    return {name for names in moves if any(not (folder / n).exists() for n in names) for name in names}


def _read_moved(staging: Path) -> list[str]:
    try:
        return (staging / MOVED).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return []
