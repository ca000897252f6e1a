"""Deliveries of one period beside one another in a folder: clouds deliver a month again and again, and the last one counts.

Folders of a period are named 20240901-20241001 (AWS, Azure) or BILLING_PERIOD=2024-09 (AWS Data Exports). In them lies one folder a
delivery: an assembly of AWS, which the manifest of the period names; a run of Azure or of AWS Data Exports, named by its time.
Earlier exports of Azure write one file a run, `name_<guid>.csv`, into the folder of the period.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from loadfactor.base.errors import SourceError
from loadfactor.base.units import BYTES_PER_MIB

_PERIOD: Final = re.compile(r"[0-9]{8}-[0-9]{8}|billing_period=.+", re.IGNORECASE)
_BY_TIME: Final = re.compile(r"[0-9]{4}-?[0-9]{2}-?[0-9]{2}.*")
_ONE_A_RUN: Final = re.compile(r"(.*_)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}((?:\.[a-z]+)+)", re.IGNORECASE)


def find_replaced(paths: Iterable[Path]) -> dict[Path, str]:
    """Files of deliveries that a later one of the same period replaces, and what is to be said of each.

    Raises SourceError when nothing tells which of two deliveries is the later one.
    """
    periods: dict[tuple[Path, str], dict[Path, list[Path]]] = defaultdict(lambda: defaultdict(list))
    for path in paths:
        period = next((folder for folder in path.parents if _PERIOD.fullmatch(folder.name)), None)
        if period is None:
            continue
        delivery = period / path.relative_to(period).parts[0]
        one = _ONE_A_RUN.fullmatch(path.name)
        if delivery != path:
            periods[period, ""][delivery].append(path)
        elif one is not None:
            periods[period, one[1]][delivery].append(path)
    replaced: dict[Path, str] = {}
    for (period, _), deliveries in periods.items():
        if len(deliveries) > 1:
            last = _find_last(period, deliveries)
            for delivery, files in deliveries.items():
                if delivery != last:
                    replaced |= dict.fromkeys(files, f"an earlier delivery of its period; {last} replaces it")
    return replaced


def _find_last(period: Path, deliveries: dict[Path, list[Path]]) -> Path:
    """The delivery that the manifest names, else the last by the times in their names, else by when they were written."""
    for manifest in sorted(period.glob("*anifest.json")):
        named = period / str(_read_manifest(manifest).get("assemblyId", ""))
        if named in deliveries:
            return named
    if all(_BY_TIME.fullmatch(delivery.name) for delivery in deliveries):
        return max(deliveries)
    written = {d: max(f.stat().st_mtime_ns for f in files) for d, files in deliveries.items()}
    last = max(written, key=written.__getitem__)
    same = [d for d, at in written.items() if at == written[last] and d != last]
    if same:
        raise SourceError(
            f"{last} and {same[0]} deliver the same period, and nothing tells which is later; name one of them"
        )
    return last


def _read_manifest(path: Path) -> dict[str, object]:
    if path.stat().st_size > BYTES_PER_MIB:
        return {}
    try:
        found = json.loads(path.read_text())
    except (ValueError, OSError):
        return {}
    return found if isinstance(found, dict) else {}
