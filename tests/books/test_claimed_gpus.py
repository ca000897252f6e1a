"""GPUs that Kubernetes gave by claims, in books whose GPUs an exporter or a list knows."""

import json
from pathlib import Path

import pytest
from tests.sources.kubernetes.objects import listed, node
from tests.sources.kubernetes.test_claims import GPUS, asking, claim, gpu, resource_slice

from loadfactor import Books


def test_the_books_know_which_gpu_a_pod_has(tmp_path: Path) -> None:
    """Hours of each pod on the GPU that its claim names, a shared one divided, and nothing twice."""
    claims = [claim("own", "gpu-0"), claim("both", "gpu-1"), claim("gone", "gpu-9")]
    pods = [asking("a", "own", bound=2, ended=4), asking("b", "both", bound=2, ended=4), asking("c", "both", bound=3, ended=5),
            asking("d", "gone", bound=6, ended=7)]  # fmt: skip
    saved = tmp_path / "pods.json"
    saved.write_text(json.dumps(listed(node("n1"), resource_slice(gpu(0), gpu(1), gpu(2)), *claims, *pods)))
    devices = tmp_path / "devices.csv"
    rows = [f"{gpu_id},n1,2026-11-02T00:00:00Z,2026-11-02T12:00:00Z\n" for gpu_id in GPUS]
    devices.write_text("device_id,node,from_utc,to_utc\n" + "".join(rows))
    books = Books.open(tmp_path / "books", create=True)
    books.add("tables", [devices])
    books.add("kubernetes", [saved])
    found = {
        (reading.by["job"], reading.by["device"]): reading.value
        for reading in books.show(["allocated_gpu_hours"], by=["job", "device"])
        if reading.value
    }
    assert found == {
        ("team-a/a", GPUS[0]): pytest.approx(2),
        ("team-a/b", GPUS[1]): pytest.approx(1.5),
        ("team-a/c", GPUS[1]): pytest.approx(1.5),
        ("team-a/d", None): pytest.approx(1),
    }
