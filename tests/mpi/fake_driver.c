/* A driver library for tests: the functions of NVIDIA's driver that meshloom calls, over memory files of the host.
 *
 * Addresses of the device are addresses of the process. Each copy runs when its event is asked for, so that a caller that does not wait reads old bytes.
 * What may fail does so where a test says it: fake_fail and fake_copied are for tests alone. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef int status;
enum { SUCCESS = 0, INVALID = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_CONTEXT = 201, NOT_READY = 600, FAILED = 999 };
enum { UNIT = 1 << 16, MOST_COPIES = 1 << 16 };

/* Memory of this library is host memory, its file descriptors are memory files. */
char meshloom_host_memory = 1;

/* What is to fail, and how often: 1 imports, 2 copies bring other bytes, 3 copies, 4 allocations, 5 finding the device. */
static int failing, failures;
static uint64_t copied_bytes;
static int is_initialized, context, stream;
static __thread void *current;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

typedef struct { void *to; const void *from; size_t bytes; } copy;
static copy copies[MOST_COPIES];
static uint64_t begun, done;

void fake_fail(int what, int times) {
    failing = what;
    failures = times;
}
static int fails(int what) { return failing == what && failures > 0 && failures--; }
uint64_t fake_copied(void) { return copied_bytes; }

status cuInit(unsigned flags) { is_initialized = 1; return flags; }
status cuDriverGetVersion(int *version) { *version = 12000; return is_initialized ? SUCCESS : NOT_INITIALIZED; }
status cuDeviceGetByPCIBusId(int *device, const char *address) {
    (void)address;
    *device = 0;
    return fails(5) ? INVALID : is_initialized ? SUCCESS : NOT_INITIALIZED;
}
status cuDevicePrimaryCtxRetain(void **retained, int device) { *retained = &context; return device; }
status cuDevicePrimaryCtxRelease_v2(int device) { return device; }
status cuCtxSetCurrent(void *set) { current = set; return set == &context ? SUCCESS : INVALID; }

typedef struct { int kind, handles, location, device; void *windows; unsigned char flags[8]; } properties;
static status check(const properties *p) {
    if (!current) return NO_CONTEXT;
    return p->kind == 1 && p->handles == 1 && p->location == 1 && p->device == 0 && !p->windows ? SUCCESS : INVALID;
}
status cuMemGetAllocationGranularity(size_t *unit, const properties *p, int option) { *unit = UNIT; return option ? INVALID : check(p); }
status cuMemCreate(uint64_t *handle, size_t bytes, const properties *p, unsigned long long flags) {
    if (fails(4)) return OUT_OF_MEMORY;
    if (check(p) || flags || !bytes || bytes % UNIT) return INVALID;
    int file = memfd_create("fake driver", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (file < 0 || ftruncate(file, bytes) || fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)) return OUT_OF_MEMORY;
    *handle = file;
    return SUCCESS;
}
status cuMemRelease(uint64_t handle) { return close(handle) ? INVALID : SUCCESS; }
status cuMemExportToShareableHandle(int *file, uint64_t handle, int type, unsigned long long flags) {
    *file = fcntl(handle, F_DUPFD_CLOEXEC, 0);
    return type == 1 && !flags && *file >= 0 && current ? SUCCESS : INVALID;
}
status cuMemImportFromShareableHandle(uint64_t *handle, void *file, int type) {
    if (!current || fails(1)) return FAILED;
    int own = fcntl((int)(intptr_t)file, F_DUPFD_CLOEXEC, 0);
    *handle = own;
    return type == 1 && own >= 0 ? SUCCESS : INVALID;
}
status cuMemAddressReserve(uint64_t *address, size_t bytes, size_t alignment, uint64_t wanted, unsigned long long flags) {
    void *place = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *address = (uint64_t)(uintptr_t)place;
    return place == MAP_FAILED || alignment || wanted || flags || bytes % UNIT ? INVALID : SUCCESS;
}
status cuMemAddressFree(uint64_t address, size_t bytes) { return munmap((void *)(uintptr_t)address, bytes) ? INVALID : SUCCESS; }
status cuMemMap(uint64_t address, size_t bytes, size_t offset, uint64_t handle, unsigned long long flags) {
    if (offset || flags || lseek(handle, 0, SEEK_END) < (off_t)bytes) return INVALID;
    /* Without rights: they are set afterwards. */
    return mmap((void *)(uintptr_t)address, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, handle, 0) == MAP_FAILED ? INVALID : SUCCESS;
}
status cuMemUnmap(uint64_t address, size_t bytes) {
    return mmap((void *)(uintptr_t)address, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED ? INVALID : SUCCESS;
}
typedef struct { int location, device, rights; } access_rights;
status cuMemSetAccess(uint64_t address, size_t bytes, const access_rights *rights, size_t count) {
    if (count != 1 || rights->location != 1 || rights->device != 0 || rights->rights != 3) return INVALID;
    return mprotect((void *)(uintptr_t)address, bytes, PROT_READ | PROT_WRITE) ? INVALID : SUCCESS;
}

status cuStreamCreate(void **created, unsigned flags) { *created = &stream; return flags == 1 && current ? SUCCESS : INVALID; }
status cuStreamDestroy_v2(void *destroyed) { return destroyed == &stream ? SUCCESS : INVALID; }
status cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void *on) {
    if (!current || on != &stream || fails(3)) return FAILED;
    pthread_mutex_lock(&mutex);
    copies[begun++ % MOST_COPIES] = (copy){(void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes};
    pthread_mutex_unlock(&mutex);
    return SUCCESS;
}
/* An event knows the number of copies before it, and how often it was asked for. */
typedef struct { uint64_t after; int asked; } event;
status cuEventCreate(void **created, unsigned flags) { *created = calloc(1, sizeof(event)); return flags == 2 && *created ? SUCCESS : INVALID; }
status cuEventRecord(void *recorded, void *on) {
    pthread_mutex_lock(&mutex);
    ((event *)recorded)->after = begun;
    pthread_mutex_unlock(&mutex);
    return on == &stream ? SUCCESS : INVALID;
}
static void run(uint64_t after) {
    pthread_mutex_lock(&mutex);
    for (; done < after; done++) {
        copy c = copies[done % MOST_COPIES];
        memcpy(c.to, c.from, c.bytes);
        if (fails(2)) *(unsigned char *)c.to ^= 1;
        copied_bytes += c.bytes;
    }
    pthread_mutex_unlock(&mutex);
}
status cuEventQuery(void *asked) {
    event *e = asked;
    if (!current) return NO_CONTEXT;
    if (e->asked++ < 2) return NOT_READY;
    run(e->after);
    return SUCCESS;
}
status cuEventSynchronize(void *awaited) { run(((event *)awaited)->after); return SUCCESS; }
status cuEventDestroy_v2(void *destroyed) { free(destroyed); return SUCCESS; }
