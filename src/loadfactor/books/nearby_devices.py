"""The GPUs whose samples decide what the hours of one job say: those of its nodes, as GPUs of a node may be one scope."""

from loadfactor.store.sample_files import quote
from loadfactor.store.session import Session
from loadfactor.tables.schema import Span


def read_nearby_devices(session: Session, job: str, span: Span) -> list[str] | None:
    """Their names, in order; None where somebody holds unnamed GPUs of a pool or of the fleet then: any may be its own.

    A node has one name before its first dot, so more GPUs may be listed than are needed, and never fewer.
    """
    for name in ("allocations", "devices"):
        session.view_table(name, name)
    then = f"coalesce(from_utc < {span[1]}, true) AND coalesce(to_utc > {span[0]}, true)"
    unnamed = f"SELECT 1 FROM allocations WHERE {then} AND device_id IS NULL AND node IS NULL LIMIT 1"
    if session.raw.execute(unnamed).fetchall():
        return None
    of_job = f"FROM allocations WHERE {then} AND job_id = {quote(job)}"
    own = f"(SELECT device_id {of_job})"
    nodes = f"""(SELECT split_part(node, '.', 1) {of_job} AND node IS NOT NULL
                 UNION SELECT split_part(node, '.', 1) FROM devices WHERE device_id IN {own} AND node IS NOT NULL)"""
    found = session.raw.execute(
        f"SELECT DISTINCT device_id FROM devices WHERE device_id IN {own} OR split_part(node, '.', 1) IN {nodes} ORDER BY ALL"
    )
    return [device for (device,) in found.fetchall()]
