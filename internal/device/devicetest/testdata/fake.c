// A stand-in for libnvidia-ml.so.1. It answers what the file named by FAKE_NVML says, which
// it reads at every call, so that GPUs can change, fail and come back while a program runs.
//
// A line is a key, a space and a value. Keys: driver, nvml, cuda, count, the return values
// init, count_ret, and for GPU i
//
//   i.handle i.uuid_ret i.name_ret i.memory_ret i.memory2_ret i.util_ret i.ecc_ret i.mig_ret i.process_ret   (return values)
//   i.uuid i.name i.total i.used i.free i.reserved i.util i.memutil i.ecc i.mig
//   i.mig_max, and for the MIG instance j: i.mig_handle.j (return value), then the keys of a GPU with "i.mig.j" in place of i
//   i.process.k "pid bytes", and name.pid
//
// A return value that is not given is 0, success; a number that is not given is 0, a text
// empty. While the key "hang" is there, counting the GPUs does not return. Every
// initialization and shutdown is a line in the file that FAKE_NVML_LOG names.
//
// Built with -DOLD it has only what drivers before 510 have, with -DBROKEN not even that.

#include <nvml.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int find(const char *key, char *value, size_t size) {
    const char *path = getenv("FAKE_NVML");
    FILE *f = path ? fopen(path, "r") : NULL;
    if (!f) return 0;
    char line[512];
    size_t n = strlen(key);
    int found = 0;
    while (!found && fgets(line, sizeof line, f)) {
        if (strncmp(line, key, n) == 0 && (line[n] == ' ' || line[n] == '\n')) {
            char *text = line + n + (line[n] == ' ');
            text[strcspn(text, "\n")] = 0;
            snprintf(value, size, "%s", text);
            found = 1;
        }
    }
    fclose(f);
    return found;
}

static unsigned long long number(const char *prefix, const char *key) {
    char full[128], value[512];
    snprintf(full, sizeof full, "%s%s", prefix, key);
    return find(full, value, sizeof value) ? strtoull(value, NULL, 10) : 0;
}

static nvmlReturn_t text(const char *prefix, const char *key, char *to, unsigned int length) {
    char full[128];
    snprintf(full, sizeof full, "%s%s", prefix, key);
    to[0] = 0;
    find(full, to, length);
    return NVML_SUCCESS;
}

static void record(const char *what) {
    const char *path = getenv("FAKE_NVML_LOG");
    FILE *f = path ? fopen(path, "a") : NULL;
    if (!f) return;
    fprintf(f, "%s\n", what);
    fclose(f);
}

const char *nvmlErrorString(nvmlReturn_t result) {
    static char words[64];
    snprintf(words, sizeof words, "fake error %d", (int)result);
    return words;
}

#ifndef BROKEN

// A handle is the prefix of the device's keys. The header is go-nvml's, which wraps it.
static char prefixes[64][32];
static int handles;

static nvmlDevice_t handle(const char *prefix) {
    int i = 0;
    while (i < handles && strcmp(prefixes[i], prefix) != 0) i++;
    if (i == 64) abort();
    if (i == handles) strcpy(prefixes[handles++], prefix);
    nvmlDevice_t device = {(struct nvmlDevice_st *)prefixes[i]};
    return device;
}

#define PREFIX ((const char *)device.handle)
#define FAIL(key) do { nvmlReturn_t ret = (nvmlReturn_t)number(PREFIX, key); if (ret != NVML_SUCCESS) return ret; } while (0)

nvmlReturn_t nvmlInit_v2(void) {
    nvmlReturn_t ret = (nvmlReturn_t)number("", "init");
    if (ret == NVML_SUCCESS) record("init");
    return ret;
}

nvmlReturn_t nvmlShutdown(void) { record("shutdown"); return NVML_SUCCESS; }
nvmlReturn_t nvmlSystemGetDriverVersion(char *to, unsigned int length) { return text("", "driver", to, length); }
nvmlReturn_t nvmlSystemGetNVMLVersion(char *to, unsigned int length) { return text("", "nvml", to, length); }

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count) {
    char value[8];
    while (find("hang", value, sizeof value)) nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    *count = (unsigned int)number("", "count");
    return (nvmlReturn_t)number("", "count_ret");
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *to) {
    char prefix[32];
    snprintf(prefix, sizeof prefix, "%u.", index);
    nvmlDevice_t device = handle(prefix);
    FAIL("handle");
    *to = device;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *to, unsigned int length) { FAIL("uuid_ret"); return text(PREFIX, "uuid", to, length); }
nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *to, unsigned int length) { FAIL("name_ret"); return text(PREFIX, "name", to, length); }

// As the driver does, the first version counts what is reserved as used.
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *m) {
    FAIL("memory_ret");
    m->total = number(PREFIX, "total");
    m->used = number(PREFIX, "used") + number(PREFIX, "reserved");
    m->free = number(PREFIX, "free");
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *u) {
    FAIL("util_ret");
    u->gpu = (unsigned int)number(PREFIX, "util");
    u->memory = (unsigned int)number(PREFIX, "memutil");
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, nvmlEnableState_t *now, nvmlEnableState_t *pending) {
    FAIL("ecc_ret");
    *now = *pending = (nvmlEnableState_t)number(PREFIX, "ecc");
    return NVML_SUCCESS;
}

#ifndef OLD

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) { *version = (int)number("", "cuda"); return NVML_SUCCESS; }

nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char *to, unsigned int length) {
    char key[32];
    snprintf(key, sizeof key, "name.%u", pid);
    to[0] = 0;
    return find(key, to, length) ? NVML_SUCCESS : NVML_ERROR_NO_PERMISSION;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *m) {
    FAIL("memory_ret");
    FAIL("memory2_ret");
    if (m->version != nvmlMemory_v2) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    m->total = number(PREFIX, "total");
    m->reserved = number(PREFIX, "reserved");
    m->used = number(PREFIX, "used");
    m->free = number(PREFIX, "free");
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *now, unsigned int *pending) {
    FAIL("mig_ret");
    *now = *pending = (unsigned int)number(PREFIX, "mig");
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count) {
    *count = (unsigned int)number(PREFIX, "mig_max");
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *to) {
    char key[64];
    snprintf(key, sizeof key, "mig_handle.%u", index);
    FAIL(key);
    snprintf(key, sizeof key, "%smig.%u.", PREFIX, index);
    *to = handle(key);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *to) {
    FAIL("process_ret");
    unsigned int room = *count;
    for (*count = 0;; (*count)++) {
        char key[64], value[64];
        unsigned int pid;
        unsigned long long used;
        snprintf(key, sizeof key, "%sprocess.%u", PREFIX, *count);
        if (!find(key, value, sizeof value) || sscanf(value, "%u %llu", &pid, &used) != 2) break;
        if (*count < room) to[*count] = (nvmlProcessInfo_t){.pid = pid, .usedGpuMemory = used};
    }
    return *count > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

#endif
#endif
