"""Quotas of Kueue, watched through the official client: listed, changed, and found gone after 410."""

import threading
import time
from pathlib import Path
from typing import Any

from tests.live.fake_kubernetes import FakeKubernetes
from tests.sources.kubernetes.test_quotas import cluster_queue

from loadfactor.collect.kubernetes_api import RESOURCES, KubernetesApi
from loadfactor.collect.kubernetes_watch import KindWatch
from loadfactor.settings.sources import KubernetesCluster
from loadfactor.sources.base import Rows
from loadfactor.sources.kubernetes.live_decoder import LiveKubernetesDecoder

QUEUES = next(resource for resource in RESOURCES if resource.plural == "clusterqueues")


def test_quotas_go_on_after_a_watch_that_is_too_old(tmp_path: Path) -> None:
    """A change is seen in a watch; what vanished while nobody watched is found out by the list after 410 Gone."""
    decoder, cursor, stopped = LiveKubernetesDecoder("prod"), dict[str, str](), threading.Event()
    rows: dict[tuple[str, float], Any] = {}

    def keep(events: list[Any], new: Any) -> None:
        decoder.feed(events)
        cursor.update(new)
        for item in decoder.drain():
            for row in item.data.to_pylist() if isinstance(item, Rows) else ():
                rows[row["queue"], row["gpus"]] = row.get("to_utc")

    def wait_for(wanted: dict[tuple[str, float], bool]) -> None:
        end = time.monotonic() + 120
        while {key: to_ms is None for key, to_ms in rows.items()} != wanted:
            assert time.monotonic() < end, f"it did not come: {rows}"
            time.sleep(0.05)

    eight, twelve, four = ({"h100": {"nvidia.com/gpu": n}} for n in (8, 12, 4))
    with FakeKubernetes() as api:
        api.bookmark_every_s = 3600.0  # else a bookmark may say that it is still young enough
        client = KubernetesApi(KubernetesCluster(kubeconfig=api.write_kubeconfig(tmp_path / "kubeconfig")))
        api.put(cluster_queue("a", eight), cluster_queue("b", four))
        watch = KindWatch("prod: clusterqueues", QUEUES, cursor, keep, stopped)
        thread = threading.Thread(target=watch.run, args=(lambda: client,), daemon=True)
        thread.start()
        wait_for({("a", 8): True, ("b", 4): True})
        api.put(cluster_queue("a", twelve, generation=2))
        wait_for({("a", 8): False, ("a", 12): True, ("b", 4): True})
        api.delete(cluster_queue("b", four), silently=True)
        api.forget_history()
        api.cut()
        wait_for({("a", 8): False, ("a", 12): True, ("b", 4): False})
        assert watch.status().status == "ok"
        stopped.set()
        watch.stop()
        api.cut()
        thread.join(60)
