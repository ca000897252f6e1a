"""What the sources make of real logs passes the door of the store, whole and only once."""

from zoneinfo import ZoneInfo

from loadfactor.sources import dcgm, nvidia_smi
from loadfactor.sources.base import ReadOptions
from loadfactor.store.importing import import_files
from loadfactor.store.store import Store

OPTIONS = ReadOptions(timezone=ZoneInfo("UTC"), at_ms=1_700_000_000_000)


def test_every_capture_enters_once(shared, tmp_path):
    """All captures of nvidia-smi and dcgm-exporter are admitted, and a second import of the same files adds nothing."""
    metrics, store = shared / "data" / "metrics", Store(tmp_path)

    def add(source, path):
        with store.write() as writer:
            return import_files(writer, source, (path,), OPTIONS, lambda *_: None)

    for source, folder, samples in (
        (nvidia_smi.SOURCE, "nvidia_smi_captures", 8),
        (nvidia_smi.SOURCE, "nvidia_smi_xml", 7),
        (dcgm.SOURCE, "dcgm_exporter", 5),
    ):
        receipt = add(source, metrics / folder)
        assert receipt.rows["samples"] == samples
        assert add(source, metrics / folder).already
    with store.read() as session:
        session.view_table("devices", "devices")
        assert session.fetch_one("SELECT sum(share) FROM devices WHERE device_id LIKE '%GPU-7099682b%'") == (1,)
