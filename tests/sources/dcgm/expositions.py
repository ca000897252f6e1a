"""Random expositions: what exporters write, in any order and with anything wrong in them."""

from random import Random

AT_MS = 1_700_000_000_000
STEP_MS = 30_000
NAMES = (
    *("DEV_GPU_UTIL", "DEV_FB_USED", "DEV_FB_FREE", "DEV_FB_USED_PERCENT", "DEV_FB_TOTAL", "DEV_FB_RESERVED"),
    *("PROF_SM_ACTIVE", "PROF_GR_ENGINE_ACTIVE", "PROF_PIPE_TENSOR_ACTIVE", "PROF_SM_OCCUPANCY", "DEV_POWER_USAGE"),
    *("DEV_TOTAL_ENERGY_CONSUMPTION", "DEV_CLOCK_THROTTLE_REASONS", "PROF_PCIE_TX_BYTES", "PROF_PCIE_TX_BYTES_TOTAL"),
    *("PROF_NVLINK_TX_BYTES", "PROF_NVLINK_RX_BYTES", "PROF_NVLINK_RX_BYTES_total"),
    *("DEV_XID_ERRORS", "DEV_ECC_DBE_VOL_TOTAL"),
)
VALUES = (
    *("NaN", "+Inf", "-Inf", "nan", "1e400", "-0", "0x10", "1_0", "", "x", "1.", "-.5", ".", "1e", "1e+", "1e-7", "٣"),
    *(
        "9223372036854775794",
        "2147483631",
        "2147483632",
        "2147483635",
        "2147483636",
        "140737488355330.0",
        "1e23",
        "1e22",
    ),
    *(
        "12345678901234567",
        "0.30000000000000004",
        "9007199254740993",
        "9007199254740992",
        "0.1e-22",
        "00012",
        "+7",
        "-3",
    ),
)
TIMES = (
    *(" 1700000000.5", " 1700000030", " -1", " nan", " 99999999999999999999", " x y", " 1e9", " 1.7000001e12", " 0"),
    *(" 99999999999", " 100000000000", " 1700000000.0005", " +5", "\t1700000000000", "  1700000060000  "),
)
LABEL_VALUES = ('a\\"b', "a}b", "{", "#", "\\\\", "é", "a b", "\\n", "x" * 5000)
ODD_LINES = (
    *("\n", " \n", "title\n", "{}\n", '{"}\n', "#\n", "# EOF\n", "}} 1\n", "a{b}} 1\n", "go_x 3 5\n", "go_x 3 5 6\n"),
    *("DCGM_FI_DEV_GPU_UTIL 5\n", 'DCGM_FI_DEV_GPU_UTIL {UUID="G"} 7\n', 'DCGM_FI_DEV_GPU_UTIL{UUID="G"}7\n'),
    *('DCGM_FI_DEV_GPU_UTIL{UUID="G"} 50 # {trace_id="x"} 1.0 1700000000.0\n', 'go{a="b"} 1\n', "1abc 5\n", "\x0b\n"),
    *("# TYPE DCGM_FI_PROF_PCIE_TX_BYTES counter\n", "#TYPE x counter\n", "go_\u2028x 1\n", "a\r 1\n"),
    *('DCGM_FI_DEV_GPU_UTIL{UUID="A",pod="x} 5"} 9\n', 'DCGM_FI_DEV_GPU_UTIL{UUID="A#"} 9 1700000000000\n'),
)


def make_labels(r: Random, gpu: int, instance: int, pod: str) -> str:
    """Labels of a GPU or of one of its MIG instances, now and then without some, in another order or with escapes."""
    found = [("gpu", str(gpu)), ("UUID", f"GPU-{gpu}"), ("Hostname", r.choice(["n"] * 20 + ["nvidia-dcgm-exporter-x"]))]
    found = found[: r.choice([3] * 40 + [1, 0])]
    found.append(("modelName", r.choice(["NVIDIA H100 80GB HBM3"] * 20 + ["Tesla T4", "weird"])))
    if instance:
        found += [("GPU_I_ID", str(instance)), ("GPU_I_PROFILE", "2g.10gb")][: r.choice([2] * 20 + [1])]
    if pod:
        found += [("pod", pod), ("namespace", "n")]
    if r.random() < 0.05:
        found.append(("other", r.choice(LABEL_VALUES)))
    if r.random() < 0.05:
        r.shuffle(found)
    return ",".join(f'{name}="{value}"' for name, value in found)


def make_exposition(r: Random) -> bytes:
    """Some scrapes of some GPUs, with times, without, or mixed."""
    odd, titled, timed = r.random() * 0.3, r.random() < 0.6, r.choice([1.0, 0.0, 0.5])
    gpus = [(gpu, instance) for gpu in range(r.randint(1, 4)) for instance in (range(r.choice([1, 1, 1, 3])))]
    series = [make_labels(r, gpu, i, r.choice(["", f"p{gpu}"])) for gpu, i in gpus]
    if r.random() < 0.2:  # shared by several pods
        series += [make_labels(r, gpu, i, f"s{gpu}") for gpu, i in gpus]
    names = [f"DCGM_FI_{name}" for name in r.sample(NAMES, r.randint(1, 9))]
    lines = []
    for scrape in range(r.randint(1, 7)):
        if r.random() < 0.2:  # a pod goes, another comes
            series[0] = make_labels(r, *gpus[0], f"q{scrape}")
        for name in names if r.random() < 0.8 else r.sample(names, len(names)):
            if titled:
                lines.append(f"# HELP {name} words in (MB).\n# TYPE {name} {r.choice(['gauge'] * 9 + ['counter'])}\n")
            for labels in series:
                value = (
                    r.choice(VALUES) if r.random() < odd else r.choice([f"{r.random():.6f}", str(r.randrange(10**9))])
                )
                time = f" {AT_MS + scrape * STEP_MS}" if r.random() < timed else ""
                lines.append(f"{name}{{{labels}}} {value}{r.choice(TIMES) if time and r.random() < odd else time}\n")
                if r.random() < odd * 0.2:
                    lines.append(r.choice([*ODD_LINES, lines[-1], lines[0]]))
    text = "".join(lines).replace("\n", "\r\n" if r.random() < 0.1 else "\n").encode()
    if r.random() < 0.2:
        text = text[: -r.randint(1, 30)]
    if r.random() < 0.02:
        text = text[: len(text) // 2] + b"\xff\n" + text[len(text) // 2 :]
    return text
