/* A libnvidia-ml.so.1 without GPUs. The file FAKE_NVML_STATE is read at every call; without it nothing ever changes, and
   FAKE_NVML_PID says which process holds every GPU.

   A line is "GPU KEY NUMBER"; GPU is a number, or * for all. Keys: count (of GPU *), util, mem_util, used_mib, power_mw, energy_mj,
   temp, clock, throttle, tx, rx (KB/s), sm, tensor, dram (percent), ecc, replays, nvlink_kib, xid, pid, gi (of that process), mig
   (instances), lost, hang, old (no GPM). With -DOLD_DRIVER several functions are not there at all. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef unsigned int U;
typedef unsigned long long UL;
typedef struct { int gpu, place; } Device; /* place: of a MIG device; -1: the GPU */
enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, SMALL = 7, TIMEOUT = 10, LOST = 15 };
enum { MOST = 16, PLACES = 7 };
static Device gpus[MOST], parts[MOST][PLACES];

static double state(int gpu, const char *key, double otherwise) {
    const char *path = getenv("FAKE_NVML_STATE");
    FILE *file = path ? fopen(path, "r") : 0;
    if (!file) return otherwise;
    char of[16], name[32];
    double number;
    while (fscanf(file, "%15s %31s %lf", of, name, &number) == 3)
        if (!strcmp(name, key) && (of[0] == '*' || atoi(of) == gpu)) otherwise = number;
    fclose(file);
    return otherwise;
}
static int count(void) { return (int)state(-1, "count", 8); }
static int check(Device *d) {
    while (state(d->gpu, "hang", 0)) usleep(20000);
    return state(d->gpu, "lost", 0) ? LOST : OK;
}
#define CHECK(d) do { int wrong = check(d); if (wrong) return wrong; } while (0)
static UL energy(Device *d) { return (UL)state(d->gpu, "energy_mj", 1000000.0 * (d->gpu + 1)); }

int nvmlInit_v2(void) {
    while (state(-1, "hang_init", 0)) usleep(20000);
    for (int i = 0; i < MOST; i++) {
        gpus[i] = (Device){i, -1};
        for (int k = 0; k < PLACES; k++) parts[i][k] = (Device){i, k};
    }
    return OK;
}
int nvmlInitWithFlags(U flags) { (void)flags; return nvmlInit_v2(); }
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) { return code == NOT_SUPPORTED ? "Not Supported" : code == LOST ? "GPU is lost" : "fake error"; }
int nvmlSystemGetDriverVersion(char *text, U size) { snprintf(text, size, "550.54.15"); return OK; }
int nvmlDeviceGetCount_v2(U *n) { *n = count(); return OK; }
int nvmlDeviceGetHandleByIndex_v2(U i, Device **d) { if (i >= (U)count()) return INVALID; *d = &gpus[i]; return OK; }
int nvmlDeviceGetUUID(Device *d, char *text, U size) {
    if (d->place < 0) snprintf(text, size, "GPU-%08x-0000-4000-8000-000000000000", d->gpu);
    else snprintf(text, size, "MIG-%08x-000%d-4000-8000-000000000000", d->gpu, d->place);
    return OK;
}
int nvmlDeviceGetName(Device *d, char *text, U size) { (void)d; snprintf(text, size, "NVIDIA H100 80GB HBM3"); return OK; }
struct pci { char legacy[16]; U domain, bus, device, id, sub; char bus_id[32]; };
int nvmlDeviceGetPciInfo_v3(Device *d, struct pci *p) {
    memset(p, 0, sizeof *p);
    snprintf(p->bus_id, sizeof p->bus_id, "00000000:%02X:00.0", d->gpu + 1);
    return OK;
}
int nvmlDeviceGetUtilizationRates(Device *d, U *u) {
    CHECK(d); u[0] = state(d->gpu, "util", 50 + d->gpu); u[1] = state(d->gpu, "mem_util", 20); return OK;
}
static UL used(Device *d) { return (UL)state(d->gpu, "used_mib", 40000) << 20; }
int nvmlDeviceGetMemoryInfo(Device *d, UL *m) {
    CHECK(d); m[0] = 81559ULL << 20; m[2] = used(d); m[1] = m[0] - m[2]; return OK;
}
int nvmlDeviceGetPowerUsage(Device *d, U *milliwatts) { CHECK(d); *milliwatts = state(d->gpu, "power_mw", 350000); return OK; }
int nvmlDeviceGetTemperature(Device *d, int sensor, U *t) { (void)sensor; CHECK(d); *t = state(d->gpu, "temp", 60); return OK; }
int nvmlDeviceGetClockInfo(Device *d, int which, U *mhz) {
    CHECK(d); *mhz = which == 1 ? (U)state(d->gpu, "clock", 1980) : 2619; return OK;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(Device *d, UL *mask) { CHECK(d); *mask = state(d->gpu, "throttle", 0); return OK; }
int nvmlDeviceGetPcieThroughput(Device *d, int way, U *rate) { CHECK(d); *rate = state(d->gpu, way ? "rx" : "tx", 1000); return OK; }

/* fields */
struct value { U id, scope; long long at, took; int type, result; union { double d; U u; UL ull; } is; };
int nvmlDeviceGetFieldValues(Device *d, int n, struct value *f) {
    CHECK(d);
    for (int i = 0; i < n; i++) {
        f[i].result = OK;
        if (f[i].id == 83) { f[i].type = 3; f[i].is.ull = energy(d); }
        else if (f[i].id == 82) { f[i].type = 1; f[i].is.u = state(d->gpu, "temp", 60) + 8; }
        else if (f[i].id >= 3 && f[i].id <= 6) { f[i].type = 3; f[i].is.ull = state(d->gpu, "ecc", 0); }
        else if (f[i].id == 94) { f[i].type = 1; f[i].is.u = (U)state(d->gpu, "replays", 0); }
        else if ((f[i].id == 138 || f[i].id == 139) && state(d->gpu, "old", 0)) {
            f[i].type = 3; f[i].is.ull = (UL)state(d->gpu, "nvlink_kib", 0);
        } else f[i].result = NOT_SUPPORTED;
    }
    return OK;
}

/* processes: {pid, memory, GPU instance, compute instance} */
struct process { U pid; UL memory; U gi, ci; };
int nvmlDeviceGetComputeRunningProcesses_v3(Device *d, U *n, struct process *p) {
    CHECK(d);
    const char *always = getenv("FAKE_NVML_PID");
    U pid = (U)state(d->gpu, "pid", always ? atoi(always) : 0), room = *n;
    *n = pid ? 1 : 0;
    if (!pid) return OK;
    if (!p || !room) return SMALL;
    p[0] = (struct process){pid, used(d), (U)state(d->gpu, "gi", 0xFFFFFFFFu), 0xFFFFFFFFu};
    return OK;
}
int nvmlDeviceGetMPSComputeRunningProcesses_v3(Device *d, U *n, struct process *p) { (void)p; CHECK(d); *n = 0; return OK; }

/* events: each change of a GPU's xid is one */
struct event { Device *device; UL type, data; U gi, ci; };
static int told[MOST];
int nvmlEventSetCreate(void **set) { *set = told; return OK; }
int nvmlDeviceRegisterEvents(Device *d, UL types, void *set) { (void)types; (void)set; told[d->gpu] = 0; return OK; }
int nvmlEventSetWait_v2(void *set, struct event *e, U ms) {
    (void)set; (void)ms;
    for (int i = 0; i < count(); i++) {
        int xid = (int)state(i, "xid", 0);
        if (xid == told[i]) continue;
        told[i] = xid;
        *e = (struct event){&gpus[i], 8, (UL)xid, 0xFFFFFFFFu, 0xFFFFFFFFu};
        return OK;
    }
    return TIMEOUT;
}

#ifndef OLD_DRIVER
struct memory2 { U version; UL total, reserved, free, used; };
int nvmlDeviceGetMemoryInfo_v2(Device *d, struct memory2 *m) {
    CHECK(d);
    m->total = (d->place < 0 ? 81559ULL : 20096ULL) << 20;
    m->reserved = 500ULL << 20;
    m->used = d->place < 0 ? used(d) : (1000ULL * (d->place + 1)) << 20;
    m->free = m->total - m->reserved - m->used;
    return OK;
}
/* MIG */
static int instances(Device *d) { return (int)state(d->gpu, "mig", 0); }
int nvmlDeviceGetMigMode(Device *d, U *now, U *then) { CHECK(d); *now = *then = instances(d) > 0; return OK; }
int nvmlDeviceGetMaxMigDeviceCount(Device *d, U *n) { (void)d; *n = PLACES; return OK; }
int nvmlDeviceGetMigDeviceHandleByIndex(Device *d, U i, Device **part) {
    if ((int)i >= instances(d)) return NOT_FOUND;
    *part = &parts[d->gpu][i];
    return OK;
}
int nvmlDeviceGetGpuInstanceId(Device *d, U *id) { *id = 1 + d->place; return OK; }
struct attributes { U sms, copy, decode, encode, jpeg, ofa, slices, compute_slices; UL memory_mb; };
int nvmlDeviceGetAttributes_v2(Device *d, struct attributes *a) {
    (void)d; memset(a, 0, sizeof *a); a->slices = 2; a->memory_mb = 20096; return OK;
}
/* GPM: a sample remembers the device it was taken of */
struct sample { double sm, tensor, dram, tx, rx; };
struct support { U version, has; };
int nvmlGpmQueryDeviceSupport(Device *d, struct support *s) { s->has = !state(d->gpu, "old", 0); return OK; }
int nvmlGpmSampleAlloc(void **s) { *s = calloc(1, sizeof(struct sample)); return OK; }
int nvmlGpmSampleFree(void *s) { free(s); return OK; }
int nvmlGpmSampleGet(Device *d, struct sample *s) {
    CHECK(d);
    *s = (struct sample){state(d->gpu, "sm", 45.5), state(d->gpu, "tensor", 12.25), state(d->gpu, "dram", 30),
                         state(d->gpu, "tx", 1000), state(d->gpu, "rx", 2000)};
    return OK;
}
int nvmlGpmMigSampleGet(Device *d, U instance, struct sample *s) {
    int wrong = nvmlGpmSampleGet(d, s);
    s->sm = 10.0 * instance;
    return wrong;
}
struct metric { U id; int result; double value; const char *texts[3]; };
struct asked { U version, n; struct sample *first, *second; struct metric metrics[]; };
int nvmlGpmMetricsGet(struct asked *a) {
    for (U i = 0; i < a->n; i++) {
        struct metric *m = &a->metrics[i];
        m->result = OK;
        switch (m->id) {
        case 1: m->value = a->second->sm; break;
        case 2: m->value = a->second->sm; break;
        case 5: m->value = a->second->tensor; break;
        case 10: m->value = a->second->dram; break;
        case 20: m->value = a->second->tx / 1024; break;
        case 21: m->value = a->second->rx / 1024; break;
        default: m->result = NOT_SUPPORTED;
        }
    }
    return OK;
}
#endif
