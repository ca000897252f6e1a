"""Cleanup of what killed imports left: staging folders, spilled queries of dead processes, files no manifest names."""

import os
import shutil
from pathlib import Path


def remove_leftovers(folder: Path, named: set[str]) -> None:
    """Remove all of it; `named` are the files that a manifest still needs. Only for who holds the store's lock."""
    for path in folder.iterdir():
        spilled = path.name.startswith("spill-") and not _alive(int(path.name.removeprefix("spill-")))
        if path.name.startswith("staging-") or spilled:
            shutil.rmtree(path, ignore_errors=True)
        elif (path.suffix == ".parquet" and path.name not in named) or path.suffix == ".tmp":
            path.unlink()


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
