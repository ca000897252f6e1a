"""What the decoder of saved objects makes of some, as plain rows."""

import json
from collections import defaultdict
from typing import Any

from loadfactor.sources.base import Gap, Input, ReadOptions
from loadfactor.sources.kubernetes.saved import decode_objects
from loadfactor.store.row_checks import validate_rows

Rows = dict[str, list[dict[str, Any]]]


def decode(*documents: Any, at_ms: int | None = None) -> Rows:
    """Rows by table, without empty cells, each as the store would take it; gaps under `gaps`."""
    content = "\n".join(json.dumps(one) for one in documents).encode()
    found: Rows = defaultdict(list)
    for item in decode_objects([Input("pods.json", [content])], ReadOptions(at_ms=at_ms)):
        if isinstance(item, Gap):
            found["gaps"].append({"what": item.what, "count": item.count})
            continue
        rows = validate_rows(item, 0).to_pylist()
        found[item.table] += [{k: v for k, v in row.items() if v is not None} for row in rows]
    return found


def gpu_hours(rows: Rows) -> dict[str, float]:
    """GPU-hours of each job in the allocations."""
    found: dict[str, float] = defaultdict(float)
    for row in rows["allocations"]:
        gpus = row.get("gpus", 1) * row.get("share", 1)
        found[row["job_id"]] += gpus * (row["to_utc"] - row["from_utc"]) / 3_600_000
    return {job: round(hours, 9) for job, hours in found.items()}
