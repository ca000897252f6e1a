"""Lays the files of src/loadfactor/agent into the agent's own distribution; an sdist has them already."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = "loadfactor_agent"


class AgentFilesHook(BuildHookInterface[Any]):
    """Lays the package `loadfactor.agent` as `loadfactor_agent`."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before each build."""
        del version
        root = Path(self.root)
        if not (root / "src" / PACKAGE).is_dir():
            source = root.parents[1] / "src" / "loadfactor" / "agent"
            build_data["force_include"][str(source)] = PACKAGE if self.target_name == "wheel" else f"src/{PACKAGE}"
