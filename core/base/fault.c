/* Counts calls and says which one fails (fault.h). The spec is read from the environment at the first
 * call, or set by a test inside the process. */
#include "base/fault.h"
#include "base/sys.h"

#ifdef DLT_FAULTS

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

static const char *const class_names[DLT_N_FAULT] = {"mem", "file", "thread", "device"};
static const struct {
    const char *name;
    int value;
} errors[] = {{"ENOMEM", ENOMEM},
              {"EIO", EIO},
              {"ENOSPC", ENOSPC},
              {"EACCES", EACCES},
              {"EMFILE", EMFILE},
              {"EAGAIN", EAGAIN},
              {"ENOENT", ENOENT},
              {"EROFS", EROFS},
              {"EDQUOT", EDQUOT},
              {"EINTR", EINTR},
              {"EPERM", EPERM},
              {"SHORT", DLT_FAULT_SHORT},
              {"HANG", DLT_FAULT_HANG},
              {"SIGINT", DLT_FAULT_SIGNAL - SIGINT},
              {"SIGTERM", DLT_FAULT_SIGNAL - SIGTERM},
              {"SIGUSR1", DLT_FAULT_SIGNAL - SIGUSR1}};

static struct {
    int class; /* DLT_N_FAULT: none */
    long long k;
    int error;
    bool forever;
} fault = {.class = DLT_N_FAULT};
static atomic_llong calls[DLT_N_FAULT];
static atomic_llong blocks_out;
static atomic_bool met;
static int fds_before;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static void (*watcher)(void *ctx, const DltSysCall *call);
static void *watcher_ctx;

static int error_of(const char *name, int class)
{
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
        if (strcmp(name, errors[i].name) == 0) return errors[i].value;
    return class == DLT_FAULT_DEVICE ? (int)strtol(name, NULL, 10) : 0;
}

/* spec: class:k:error:once|forever */
static bool parse(const char *spec)
{
    char class[16], error[16], how[16];
    long long k;
    fault.class = DLT_N_FAULT;
    for (int i = 0; i < DLT_N_FAULT; i++)
        calls[i] = 0;
    if (spec == NULL || spec[0] == '\0') return true;
    if (sscanf(spec, "%15[^:]:%lld:%15[^:]:%15s", class, &k, error, how) != 4) return false;
    int found = DLT_N_FAULT;
    for (int i = 0; i < DLT_N_FAULT; i++)
        if (strcmp(class, class_names[i]) == 0) found = i;
    fault.k = k;
    fault.error = error_of(error, found);
    fault.forever = strcmp(how, "forever") == 0;
    bool ok = fault.error != 0 && (fault.forever || strcmp(how, "once") == 0);
    if (ok) fault.class = found;
    return fault.class != DLT_N_FAULT;
}

static int open_files(void)
{
    int n = 0;
    DIR *dir = opendir("/proc/self/fd");
    for (struct dirent *e = dir != NULL ? readdir(dir) : NULL; e != NULL; e = readdir(dir))
        n += e->d_name[0] != '.';
    if (dir != NULL) closedir(dir);
    return n;
}

static void report(void)
{
    FILE *out = fopen(getenv("DLT_FAULT_REPORT"), "w");
    if (out == NULL) return;
    fprintf(out, "mem %lld file %lld thread %lld device %lld met %d blocks %lld files %d\n",
            (long long)calls[DLT_FAULT_MEM], (long long)calls[DLT_FAULT_FILE],
            (long long)calls[DLT_FAULT_THREAD], (long long)calls[DLT_FAULT_DEVICE], met ? 1 : 0,
            (long long)blocks_out, open_files() - 1 - fds_before);
    fclose(out);
}

static void from_environment(void)
{
    fds_before = open_files();
    if (getenv("DLT_FAULT_REPORT") != NULL) atexit(report);
    if (!parse(getenv("DLT_FAULT"))) dlt_bug(__FILE__, __LINE__, "DLT_FAULT is malformed");
}

int dlt_fault(DltFaultClass class)
{
    pthread_once(&once, from_environment);
    long long call = atomic_fetch_add(&calls[class], 1) + 1;
    if (fault.class != (int)class) return 0;
    bool hit = fault.forever ? call >= fault.k : call == fault.k;
    if (!hit) return 0;
    met = true;
    while (fault.error == DLT_FAULT_HANG)
        pause();
    if (fault.error <= DLT_FAULT_SIGNAL) {
        kill(getpid(), DLT_FAULT_SIGNAL - fault.error);
        return 0;
    }
    if (fault.error > 0) errno = fault.error;
    return fault.error;
}

void dlt_fault_done(const DltSysCall *call)
{
    int reason = errno;
    if (watcher != NULL) watcher(watcher_ctx, call);
    errno = reason;
}

void dlt_fault_memory(int blocks)
{
    atomic_fetch_add(&blocks_out, blocks);
}

void dlt_fault_watch(void (*each)(void *ctx, const DltSysCall *call), void *ctx)
{
    watcher_ctx = ctx;
    watcher = each;
}

bool dlt_sys_fault_set(const char *spec)
{
    pthread_once(&once, from_environment);
    return parse(spec);
}

int dlt_sys_device_fault(void)
{
    return dlt_fault(DLT_FAULT_DEVICE);
}

#else

bool dlt_sys_fault_set(const char *spec)
{
    (void)spec;
    return false;
}

int dlt_sys_device_fault(void)
{
    return 0;
}

#endif
