"""Lays the files of src/loadfactor/tracking into the tracker's own distribution; an sdist has them already."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = "loadfactor_track"


class TrackFilesHook(BuildHookInterface[Any]):
    """Lays the package `loadfactor.tracking` as `loadfactor_track`."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before each build."""
        del version
        root = Path(self.root)
        if not (root / "src" / PACKAGE).is_dir():
            source = root.parents[1] / "src" / "loadfactor" / "tracking"
            build_data["force_include"][str(source)] = PACKAGE if self.target_name == "wheel" else f"src/{PACKAGE}"
