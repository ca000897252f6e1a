"""ResourceSlices, Cohorts and quotas of Kueue, watched through the official client: listed, changed, and gone after 410."""

import threading
import time
from pathlib import Path
from typing import Any

from tests.live.fake_kubernetes import FakeKubernetes
from tests.sources.kubernetes.test_claims import GPUS, gpu, resource_slice
from tests.sources.kubernetes.test_quotas import cluster_queue, cohort

from loadfactor.collect.kubernetes_api import RESOURCES, KubernetesApi
from loadfactor.collect.kubernetes_watch import KindWatch
from loadfactor.settings.sources import KubernetesCluster
from loadfactor.sources.base import Rows
from loadfactor.sources.kubernetes.live_decoder import LiveKubernetesDecoder


def end_all(api: FakeKubernetes, threads: list[threading.Thread]) -> None:
    """Cut watches until all have seen that they are to stop: one may have been on its way to a new watch at the first cut."""
    for thread in threads:
        while thread.is_alive():
            api.cut()
            thread.join(0.2)


def test_gpus_and_cohorts_go_on_after_a_watch_that_is_too_old(tmp_path: Path) -> None:
    """GPUs taken out of a slice, and put back, are seen in a watch; what vanished unseen is found by the list after 410 Gone."""
    decoder, stopped = LiveKubernetesDecoder("prod"), threading.Event()
    keeping, cursor, rows = threading.Lock(), dict[str, str](), dict[str, Any]()

    def keep(events: list[Any], new: Any) -> None:
        with keeping:
            decoder.feed(events)
            cursor.update(new)
            for item in decoder.drain():
                for row in item.data.to_pylist() if isinstance(item, Rows) else ():
                    rows[row.get("device_id") or row["queue"]] = row.get("to_utc")

    def wait_for(wanted: dict[str, bool]) -> None:
        end = time.monotonic() + 120
        while {key: to_ms is None for key, to_ms in dict(rows).items()} != wanted:
            assert time.monotonic() < end, f"it did not come: {rows}"
            time.sleep(0.05)

    shared = {"h100": {"nvidia.com/gpu": 8}}
    with FakeKubernetes() as api:
        api.absent = set()
        api.bookmark_every_s = 3600.0  # else a bookmark may say that it is still young enough
        client = KubernetesApi(KubernetesCluster(kubeconfig=api.write_kubeconfig(tmp_path / "kubeconfig")))
        both = resource_slice(gpu(0), gpu(1), api="v1beta1")
        api.put(both, cohort("all", "", shared))
        kinds = [one for one in RESOURCES if one.plural in ("resourceslices", "cohorts")]
        watches = [KindWatch(f"prod: {kind.plural}", kind, cursor, keep, stopped) for kind in kinds]
        threads = [threading.Thread(target=watch.run, args=(lambda: client,), daemon=True) for watch in watches]
        for thread in threads:
            thread.start()
        wait_for({GPUS[0]: True, GPUS[1]: True, "cohort/all": True})
        api.put(resource_slice(gpu(0), api="v1beta1"))
        wait_for({GPUS[0]: True, GPUS[1]: False, "cohort/all": True})
        api.put(resource_slice(api="v1beta1"))
        wait_for({GPUS[0]: False, GPUS[1]: False, "cohort/all": True})
        api.put(resource_slice(gpu(0), api="v1beta1"))
        wait_for({GPUS[0]: True, GPUS[1]: False, "cohort/all": True})
        api.delete(both, cohort("all", "", shared), silently=True)
        api.forget_history()
        api.cut()
        wait_for({GPUS[0]: False, GPUS[1]: False, "cohort/all": False})
        assert {watch.status().status for watch in watches} == {"ok"}
        stopped.set()
        for watch in watches:
            watch.stop()
        end_all(api, threads)


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
        end_all(api, [thread])
