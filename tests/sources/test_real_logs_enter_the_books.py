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
    for source, folder, samples in (
        (nvidia_smi.SOURCE, "nvidia_smi_captures", 8),
        (nvidia_smi.SOURCE, "nvidia_smi_xml", 7),
        (dcgm.SOURCE, "dcgm_exporter", 5),
    ):
        receipt = import_files(store, source, (metrics / folder,), OPTIONS, lambda *_: None)
        assert receipt.rows["samples"] == samples
        assert import_files(store, source, (metrics / folder,), OPTIONS, lambda *_: None).already
    a100 = store.relation("devices").filter(lambda t: t.device_id.contains("GPU-7099682b")).to_pyarrow().to_pylist()
    assert sum(row["share"] for row in a100) == 1
