"""The files of `loadfactor generate grafana`: dashboards, and beside them what has Grafana load them."""

from pathlib import Path
from typing import Final

import yaml

from loadfactor.base.errors import InputError
from loadfactor.interfaces.grafana.dashboards import DASHBOARDS
from loadfactor.interfaces.grafana.gauges import Gauges
from loadfactor.interfaces.output_files import replacing

DASHBOARDS_FOLDER: Final = "dashboards"
ON_GRAFANA: Final = "/var/lib/grafana/dashboards/loadfactor"
"""Where Grafana looks for the dashboards, by the file beside them."""


def list_files(currency: str, prometheus: str, runbooks: str) -> dict[str, str]:
    """Every file by its path in the folder. `prometheus`: the address under which Grafana reaches it."""
    from loadfactor.interfaces.grafana.build import write_dashboard  # a moment to import

    pages = [build(Gauges(currency)) for build in DASHBOARDS]
    return {
        **{f"{DASHBOARDS_FOLDER}/{page.uid}.json": write_dashboard(page, runbooks) for page in pages},
        "provisioning/datasources/loadfactor.yaml": _write_yaml(
            "The Prometheus that scrapes `loadfactor up`.",
            {
                "datasources": [
                    {
                        "name": "Prometheus",
                        "type": "prometheus",
                        "access": "proxy",
                        "url": prometheus,
                        "isDefault": True,
                    }
                ]
            },
        ),
        "provisioning/dashboards/loadfactor.yaml": _write_yaml(
            f"Has Grafana load the dashboards; put the folder {DASHBOARDS_FOLDER} where `path` says.",
            {
                "providers": [
                    {
                        "name": "loadfactor",
                        "folder": "loadfactor",
                        "type": "file",
                        "disableDeletion": False,
                        "allowUiUpdates": False,
                        "options": {"path": ON_GRAFANA},
                    }
                ]
            },
        ),
    }


def write_files(folder: Path, files: dict[str, str]) -> None:
    """Write them into a folder, which is made; files of these names are replaced, others stay. Raises InputError."""
    for name, text in files.items():
        path = folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"--output {folder}: cannot be written ({error.strerror or error})") from error
        with replacing(path) as beside:
            beside.write_text(text, encoding="utf-8")


def _write_yaml(about: str, content: dict[str, object]) -> str:
    return f"# {about}\n{yaml.safe_dump({'apiVersion': 1, **content}, sort_keys=False)}"
