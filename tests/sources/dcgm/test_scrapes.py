"""Scrapes of real exporters: MIG, shared GPUs, labels of every age, titles between the lines, many files.

They are of run-ai/fake-gpu-operator and DataDog/integrations-core.
"""

import pytest

from loadfactor.base.errors import SourceError

AT_MS = 1_700_000_000_000
UUID = "GPU-7099682b-a20d-2bcc-74ab-b9060454d81e"
MODEL = 'modelName="NVIDIA A100-SXM4-40GB"'


def line(name: str, value: object, labels: str, step: int | None = None) -> str:
    """One line of exposition, `step` times 30 s after the beginning."""
    time = "" if step is None else f" {AT_MS + step * 30_000}"
    return f"DCGM_FI_{name}{{{labels}}} {value}{time}\n"


def mig(instance: int, profile: str, pod: str = "", model: str = MODEL) -> str:
    return f'UUID="{UUID}",{model},GPU_I_ID="{instance}",GPU_I_PROFILE="{profile}",pod="{pod}",namespace="ml"'


def test_a_real_mig_instance(shared, read_paths):
    """The active 1g.5gb instance is a device of a seventh, the rest of the GPU another; what is of the whole is not its own."""
    seen = read_paths(shared / "data/metrics/dcgm_exporter/dcgm_a100_mig_active_1g5gb.prom")
    expected = [(f"{UUID}/gi-9", 1 / 7, "a100-sxm-40gb"), (f"{UUID}/rest", 6 / 7, "a100-sxm-40gb")]
    assert [(d["device_id"], d["share"], d["accelerator"]) for d in seen.devices] == expected
    assert seen.measured() == {
        "engine_active_share": 0.999892,
        "tensor_active_share": 0.000118,
        "dram_active_share": 0.622646,
        "mem_used_bytes": 4384 * 2**20,
        "mem_total_bytes": 4864 * 2**20,
    }
    assert seen.gaps["skipped: not a DCGM metric"] == 1  # the title
    assert seen.gaps["DCGM_FI_DEV_POWER_USAGE of the whole GPU on the row of a MIG instance"] == 1
    assert seen.allocations == []


def test_a_real_file_that_holds_its_scrape_twice(shared, read_paths):
    """A second scrape without a time of its own is a gap, or one step later when the step is known."""
    path = shared / "data/metrics/dcgm_exporter/dcgm_a100_mig_disabled_idle.prom"
    seen = read_paths(path)
    assert [(r["device_id"], r["busy_share"], r["power_w"]) for r in seen.samples] == [(UUID, 0.0, 45.999)]
    assert seen.gaps["skipped: a further scrape without a time (say the step with --step)"] == 12
    assert seen.gaps["last line without an end: it may be cut off"] == 1
    assert [r["to_utc"] for r in read_paths(path, step_s=30.0).samples] == [AT_MS, AT_MS + 30_000]


def test_a_real_reservation_and_two_t4(shared, read_paths):
    """A pod in the labels holds its GPU; the other GPU is nobody's."""
    seen = read_paths(shared / "data/metrics/dcgm_exporter/dcgm_fraction_1_workload.prom")
    assert [r["mem_used_bytes"] for r in seen.samples] == [128 * 2**20, 5 * 2**20]
    assert [d["accelerator"] for d in seen.devices] == ["t4", "t4"]
    (held,) = seen.allocations
    assert held["job_id"] == "runai-reservation/runai-reservation-gpu-qa-mig-worker-gpu-1-kvltw"
    assert (held["share"], held["from_utc"], held["to_utc"]) == (None, AT_MS - 30_000, AT_MS)


def test_a_real_file_of_two_joined_scrapes(shared, read_paths):
    """Two machines in one file stay apart, each with what is known of it."""
    seen = read_paths(shared / "data/metrics/dcgm_exporter/dcgm_tesla_t4_datadog_fixture.prom")
    assert [d["node"] for d in seen.devices] == ["424773df46e0", "551bdf382151"]
    assert seen.measured(0)["mem_total_bytes"] == 15109 * 2**20
    assert seen.measured(1) == {"mem_total_bytes": 15109 * 2**20}  # its last line has no end


def test_instances_and_rest_sum_to_one_gpu(read):
    """Instances count by their compute slices; what is in none is the rest, and nothing is left over of a full GPU."""
    seen = read(
        line("PROF_GR_ENGINE_ACTIVE", 0.5, mig(1, "3g.20gb")) + line("PROF_GR_ENGINE_ACTIVE", 0.5, mig(2, "4g.20gb"))
    )
    assert {d["device_id"]: d["share"] for d in seen.devices} == {f"{UUID}/gi-1": 3 / 7, f"{UUID}/gi-2": 4 / 7}
    a30 = read(line("PROF_GR_ENGINE_ACTIVE", 0.5, mig(1, "1g.6gb", model='modelName="NVIDIA A30"')))
    assert [d["share"] for d in a30.devices] == [1 / 4, 3 / 4]
    whole = read(line("PROF_GR_ENGINE_ACTIVE", 0.5, mig(0, "7g.40gb")))
    assert [d["share"] for d in whole.devices] == [1.0]


def test_instances_that_are_more_than_their_gpu_are_one_gpu(read):
    """Whatever labels claim, a GPU is paid once: a thousand instances of it share it, and no profile is endless."""
    text = "".join(line("PROF_GR_ENGINE_ACTIVE", 0.5, mig(i, "7g.40gb")) for i in range(1_000))
    seen = read(text + line("PROF_GR_ENGINE_ACTIVE", 0.5, mig(1_000, "9" * 5_000 + "g.1gb")))
    assert sum(device["share"] for device in seen.devices) == pytest.approx(1)
    assert seen.gaps["MIG instances that are more than their GPU"] == 1


def test_a_gpu_cut_anew(read):
    """When instances come and go each device is there for its time, and the shares sum to one at any time."""
    text = line("PROF_GR_ENGINE_ACTIVE", 0.5, f'UUID="{UUID}",{MODEL}', 0)
    for step, instances in ((1, (1,)), (2, (1, 2)), (3, (1, 2))):
        text += "".join(line("PROF_GR_ENGINE_ACTIVE", 0.5, mig(i, "3g.20gb"), step) for i in instances)
    rows = {(d["device_id"].removeprefix(UUID), d["share"]): (d["from_utc"], d["to_utc"]) for d in read(text).devices}
    t = [AT_MS + step * 30_000 for step in (-1, 0, 1, 2, 3)]
    assert rows == {
        ("", None): (t[0], t[1]),
        ("/gi-1", 3 / 7): (t[1], t[4]),
        ("/rest", 4 / 7): (t[1], t[2]),
        ("/gi-2", 3 / 7): (t[2], t[4]),
        ("/rest", 1 / 7): (t[2], t[4]),
    }


def test_the_whole_gpu_beside_its_instances_is_not_counted_again(read):
    """Where the exporter also prints the GPU itself, its instances are the devices."""
    text = line("PROF_GR_ENGINE_ACTIVE", 0.2, f'UUID="{UUID}",{MODEL}') + line(
        "PROF_GR_ENGINE_ACTIVE", 0.9, mig(3, "1g.5gb")
    )
    seen = read(text)
    assert [r["device_id"] for r in seen.samples] == [f"{UUID}/gi-3"]
    assert seen.gaps == {"values of a whole GPU beside those of its MIG instances": 1}


def test_an_instance_without_profile(read):
    """An instance whose size nobody says is a gap, not a whole GPU."""
    seen = read(
        line("PROF_GR_ENGINE_ACTIVE", 0.9, f'UUID="{UUID}",GPU_I_ID="3"') + line("DEV_GPU_UTIL", 5, 'UUID="GPU-2"')
    )
    assert [d["device_id"] for d in seen.devices] == ["GPU-2"]


def test_pods_that_share_a_gpu(read):
    """One series a pod repeats the device: one sample, and each of n pods holds 1/n of it."""
    text = "".join(
        line(name, value, f'UUID="{UUID}",pod="{pod}",namespace="ml"', step)
        for step in range(4)
        for name, value in (("DEV_GPU_UTIL", 60), ("DEV_FB_USED", 100))
        for pod in (("a", "b") if step < 2 else ("a",))
    )
    seen = read(text)
    assert [r["busy_share"] for r in seen.samples] == [0.6] * 4
    expected = {("ml/a", 0.5, -30_000, 30_000), ("ml/b", 0.5, -30_000, 30_000), ("ml/a", None, 30_000, 90_000)}
    assert {(a["job_id"], a["share"], a["from_utc"] - AT_MS, a["to_utc"] - AT_MS) for a in seen.allocations} == expected


def test_virtual_gpus_report_by_process(read):
    """GPU_UTIL and FB_USED that differ by pod are of processes, so the device's are unknown; PROF is of the device."""

    def text(extra: str = "") -> str:
        return extra + "".join(
            line(name, value, f'UUID="{UUID}",vgpu="{i}",pod="p{i}"')
            for name, values in (
                ("DEV_GPU_UTIL", (40, 30)),
                ("DEV_FB_USED", (100, 101)),
                ("PROF_SM_ACTIVE", (0.55, 0.55)),
            )
            for i, value in enumerate(values)
        )

    seen = read(text())
    assert seen.measured() == {"sm_active_share": 0.55}
    assert seen.gaps["DCGM_FI_DEV_GPU_UTIL read by process (virtual GPUs), not of the device"] == 1
    assert read(text(line("DEV_GPU_UTIL", 66, f'UUID="{UUID}"'))).measured()["busy_share"] == 0.66


@pytest.mark.parametrize("suffix", ["-0", "-13", "::2"])
def test_replicas_of_a_time_sliced_gpu_are_one_gpu(read, suffix):
    """The device plugin's replicas are not GPUs."""
    text = line("DEV_GPU_UTIL", 5, f'UUID="{UUID}{suffix}",pod="a"') + line("DEV_GPU_UTIL", 5, f'UUID="{UUID}",pod="b"')
    seen = read(text)
    assert [d["device_id"] for d in seen.devices] == [UUID]
    assert sorted((a["job_id"], a["share"]) for a in seen.allocations) == [("a", 0.5), ("b", 0.5)]


@pytest.mark.parametrize(
    ("labels", "job"),
    [
        ('pod="p",namespace="n"', "n/p"),
        ('pod_name="p",pod_namespace="n"', "n/p"),
        ('pod="dcgm-exporter-x",namespace="gpu",exported_pod="p",exported_namespace="n"', "n/p"),
        ('pod="nvidia-dcgm-exporter-x",namespace="gpu"', None),
        ('hpc_job="4711",pod=""', "4711"),
        ('pod="",namespace=""', None),
    ],
)
def test_who_holds_it(read, labels, job):
    """Labels of every age name the workload; the exporter's own pod is none."""
    seen = read(line("DEV_GPU_UTIL", 5, f'uuid="{UUID}",hostname="n1",{labels}'))
    team = "n" if job == "n/p" else None  # as through Prometheus
    assert [(a["job_id"], a["team"]) for a in seen.allocations] == ([(job, team)] if job else [])
    assert seen.devices[0]["node"] == "n1"


def test_without_uuid_by_node_and_number(read):
    """A GPU without UUID is called by its node and number."""
    assert read(line("DEV_GPU_UTIL", 5, 'gpu="3",Hostname="n1"')).devices[0]["device_id"] == "n1/3"
    assert read(line("DEV_GPU_UTIL", 5, 'gpu="3"'), node="x").devices[0]["device_id"] == "x/3"


def test_many_files_are_many_scrapes(read):
    """Scrapes in files of their own, in any order, join to one series."""
    texts = [
        line("DEV_TOTAL_ENERGY_CONSUMPTION", step * 9_000_000, f'UUID="{UUID}",pod="p"', step) for step in (2, 0, 1)
    ]
    seen = read(*texts)
    assert [r["power_w"] for r in seen.samples] == [None, 300, 300]
    assert len(seen.allocations) == 1
    assert seen.devices[0]["from_utc"] == AT_MS - 30_000


def test_files_without_times(read):
    """Without times the n-th scrape of a GPU comes n - 1 steps after --at; another GPU's first is at --at as well."""
    a, b = (line("DEV_GPU_UTIL", 5, f'UUID="GPU-{x}"') for x in "ab")
    seen = read(a, b, a, step_s=15.0)
    expected = [("GPU-a", 0), ("GPU-a", 15_000), ("GPU-b", 0)]
    assert sorted((r["device_id"], r["to_utc"] - AT_MS) for r in seen.samples) == expected
    assert len(read(a, b, a).samples) == 2


def log_of(prefix, gpus, steps):
    """A log of GPUs whose utilization and memory stand at 10."""
    fields = [(step, name) for step in range(steps) for name in ("DEV_GPU_UTIL", "DEV_FB_USED")]
    return "".join(line(name, 10, f'UUID="{prefix}{gpu}"', step) for step, name in fields for gpu in gpus)


def assert_all_alike(seen, samples):
    assert len(seen.samples) == samples
    assert all(r["busy_share"] == 0.1 and r["mem_used_bytes"] == 10 * 2**20 for r in seen.samples)


def test_a_long_series_is_read_in_bounded_memory(read, monkeypatch):
    """Scrapes leave the window in the order of time; a file sorted by series that overflows it is refused, not misread."""
    monkeypatch.setattr("loadfactor.sources.dcgm.scrape_window.SCRAPES_HELD", 8)
    lines = [
        (step, name, line(name, 10, f'UUID="{UUID}"', step))
        for step in range(50)
        for name in ("DEV_GPU_UTIL", "DEV_FB_USED")
    ]
    seen = read("".join(text for _, _, text in lines))
    assert_all_alike(seen, 50)
    with pytest.raises(SourceError, match="sort the lines by time"):
        read("".join(text for _, _, text in sorted(lines, key=lambda x: x[1])))


def test_a_scrape_larger_than_the_window(read, monkeypatch):
    """One scrape of more GPUs than the window holds is read whole."""
    monkeypatch.setattr("loadfactor.sources.dcgm.scrape_window.SCRAPES_HELD", 4)
    assert_all_alike(read(log_of("GPU-", range(20), 3)), 60)


def test_long_logs_of_two_machines(read, monkeypatch):
    """The log of a second machine goes back to the beginning of the first one's time."""
    monkeypatch.setattr("loadfactor.sources.dcgm.scrape_window.SCRAPES_HELD", 8)
    seen = read(*(log_of(f"GPU-{node}", range(2), 40) for node in "ab"))
    assert_all_alike(seen, 160)
    assert len(seen.devices) == 4


def test_openmetrics_times_are_seconds(read):
    """OpenMetrics writes seconds and ends with # EOF."""
    seen = read(f'DCGM_FI_DEV_GPU_UTIL{{UUID="{UUID}"}} 5 1700000000.5\n# EOF\n')
    assert seen.samples[0]["to_utc"] == AT_MS + 500


def test_a_cut_log(read):
    """A log cut in its last time loses that line."""
    text = line("DEV_GPU_UTIL", 5, f'UUID="{UUID}"', 0) + line("DEV_GPU_UTIL", 6, f'UUID="{UUID}"', 1)
    assert len(read(text[:-4]).samples) == 1


def test_an_untimed_scrape_begins_where_a_field_comes_again(read):
    """Pods and GPUs come and go between scrapes without times; each reading is of its own scrape all the same."""

    def scrape(*held: tuple[str, int], titles: bool) -> str:
        text = ""
        for name, more in (("DEV_GPU_UTIL", 0), ("DEV_FB_USED", 1000)):
            text += f"# HELP DCGM_FI_{name} says\n# TYPE DCGM_FI_{name} gauge\n" if titles else ""
            for gpu, (pod, value) in enumerate(held):
                text += f'DCGM_FI_{name}{{gpu="{gpu}",UUID="GPU-{gpu}",pod="{pod}"}} {value + more}\n'
        return text

    for titles in (True, False):
        seen = read(
            scrape(("a", 50), ("b", 60), titles=titles)
            + scrape(("c", 70), ("b", 80), titles=titles)
            + scrape(("c", 10), ("", 20), titles=titles),
            step_s=30.0,
        )
        assert sorted((r["device_id"], r["to_utc"] - AT_MS, r["busy_share"]) for r in seen.samples) == [
            *(("GPU-0", 0, 0.5), ("GPU-0", 30_000, 0.7), ("GPU-0", 60_000, 0.1)),
            *(("GPU-1", 0, 0.6), ("GPU-1", 30_000, 0.8), ("GPU-1", 60_000, 0.2)),
        ]
        assert {(a["job_id"], a["share"], a["from_utc"] - AT_MS, a["to_utc"] - AT_MS) for a in seen.allocations} == {
            ("a", None, -30_000, 0),
            ("b", None, -30_000, 30_000),
            ("c", None, 0, 60_000),
        }
    grown = scrape(("a", 50), titles=True) + scrape(("a", 50), ("b", 60), titles=True)
    assert [r["mem_used_bytes"] for r in read(grown).samples if r["device_id"] == "GPU-1"] == [1060 * 2**20]


def test_the_end_of_a_file_without_a_line_end(read):
    """The last value of a scrape that breaks off may lack digits: it counts only where it ends as the exporter ends fractions."""
    before = f'DCGM_FI_DEV_FB_USED{{UUID="{UUID}"}} 7\n'
    last = f'DCGM_FI_DEV_POWER_USAGE{{UUID="{UUID}"}} '
    assert "power_w" not in read(before + last + "43").measured()
    assert read(before + last + "432.100000").measured()["power_w"] == 432.1
    timed = line("DEV_GPU_UTIL", 5, f'UUID="{UUID}"', 0) + last + "432.100000"
    assert [r.get("power_w") for r in read(timed, at_ms=None).samples] == [None]


def test_the_exporters_own_pod_is_no_node(read):
    """In Kubernetes old exporters give their pod's name as Hostname, a new one after every restart; the node label is better."""
    text = "".join(
        line("DEV_GPU_UTIL", 5, f'UUID="{UUID}",Hostname="nvidia-dcgm-exporter-{pod}",node="worker-3"', step)
        for step, pod in enumerate(("km55s", "drqwq"))
    )
    assert [d["node"] for d in read(text).devices] == ["worker-3"]
    assert [d["node"] for d in read(text.replace(',node="worker-3"', "")).devices] == [None]


def test_escapes_in_labels(read):
    """A backslash that is itself escaped escapes nothing behind it; braces within quotes end no labels."""
    seen = read(f'DCGM_FI_DEV_GPU_UTIL{{UUID="{UUID}",pod="a\\\\nb}} \\"c"}} 5 {AT_MS}\n')
    assert [a["job_id"] for a in seen.allocations] == ['a\\nb} "c']


def test_files_of_any_order_are_one_log(read, monkeypatch):
    """Rotation calls the newest file first; long ones are read in the order of their times."""
    monkeypatch.setattr("loadfactor.sources.dcgm.scrape_window.SCRAPES_HELD", 8)
    texts = [
        "".join(
            line("DEV_TOTAL_ENERGY_CONSUMPTION", s * 9_000_000, f'UUID="{UUID}"', s) for s in range(20 * i, 20 * i + 20)
        )
        for i in (2, 1, 0)
    ]
    seen = read(*texts)
    assert [r["power_w"] for r in seen.samples] == [None, *[300.0] * 59]
    assert len(seen.devices) == 1


def test_scrapes_that_found_no_gpu(read):
    """Among others, an empty file or one of an exporter without GPUs is a gap; alone, or no exposition at all, it is refused."""
    good, none = line("DEV_GPU_UTIL", 5, f'UUID="{UUID}"'), 'up{job="dcgm"} 1\n'
    seen = read(good, "", none)
    assert len(seen.samples) == 1
    assert (seen.gaps["empty file"], seen.gaps["scrape without a GPU"]) == (1, 1)
    for texts in (("",), (none,), (good, "hello\n")):
        with pytest.raises(SourceError):
            read(*texts)
