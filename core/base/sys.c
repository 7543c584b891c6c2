/* The seam to the system: thin calls with EINTR retried, short transfers completed, and the checks
 * that only one place can make (frozen memory; faults on request in the test build). */
#include "base/sys.h"
#include "base/fault.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* True when a test wants this call to fail; errno says how. */
static bool fails(DltFaultClass class)
{
    return dlt_fault(class) > 0;
}

/* The same for calls that signals do not interrupt. */
static bool fails_whole(DltFaultClass class)
{
    return fails(class) && errno != EINTR;
}

static void done(const char *what, const char *path, int fd)
{
    dlt_fault_done(&(DltSysCall){.what = what, .path = path, .fd = fd});
}

/* ---- memory ------------------------------------------------------------------------------- */

static atomic_int frozen;
static _Thread_local bool beside; /* this thread may allocate while it is frozen */
static atomic_ullong n_allocations;

enum { ALIGN = 64 };

static bool may_allocate(void)
{
    if (frozen > 0 && !beside)
        dlt_bug(__FILE__, __LINE__, "memory was allocated while it is frozen");
    atomic_fetch_add(&n_allocations, 1);
    return !fails(DLT_FAULT_MEM);
}

void *dlt_sys_alloc(size_t bytes)
{
    void *ptr = NULL;
    if (!may_allocate()) return NULL;
    if (posix_memalign(&ptr, ALIGN, bytes > 0 ? bytes : 1) != 0) return NULL;
    dlt_fault_memory(1);
    return ptr;
}

void *dlt_sys_realloc(void *ptr, size_t old_bytes, size_t bytes)
{
    void *moved = dlt_sys_alloc(bytes);
    if (moved == NULL || ptr == NULL) return moved;
    memcpy(moved, ptr, old_bytes < bytes ? old_bytes : bytes);
    dlt_sys_free(ptr);
    return moved;
}

void dlt_sys_free(void *ptr)
{
    if (ptr != NULL) dlt_fault_memory(-1);
    free(ptr);
}

/* bytes rounded up to whole pages; 0 when that overflows. */
static size_t page_bytes(size_t bytes)
{
    size_t whole = bytes > 0 ? bytes : 1, page = (size_t)sysconf(_SC_PAGESIZE);
    if (whole > SIZE_MAX - 2 * (size_t)DLT_HUGE_PAGE) return 0;
    return (whole + page - 1) / page * page;
}

void *dlt_sys_pages(size_t bytes)
{
    size_t size = page_bytes(bytes);
    if (size == 0 || !may_allocate()) return NULL;
    char *raw = mmap(NULL, size + DLT_HUGE_PAGE, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (raw == MAP_FAILED) return NULL;
    size_t before = (DLT_HUGE_PAGE - (uintptr_t)raw % DLT_HUGE_PAGE) % DLT_HUGE_PAGE;
    char *ptr = raw + before;
    if (before > 0) munmap(raw, before);
    if (before < DLT_HUGE_PAGE) munmap(ptr + size, DLT_HUGE_PAGE - before);
    madvise(ptr, size, MADV_HUGEPAGE);
    dlt_fault_memory(1);
    return ptr;
}

void dlt_sys_pages_free(void *ptr, size_t bytes)
{
    if (ptr == NULL) return;
    dlt_fault_memory(-1);
    munmap(ptr, page_bytes(bytes));
}

void dlt_mem_freeze(void)
{
    atomic_fetch_add(&frozen, 1);
}

void dlt_mem_thaw(void)
{
    int before = atomic_fetch_sub(&frozen, 1);
    DLT_BUG_ON(before <= 0);
}

void dlt_mem_beside(void)
{
    beside = true;
}

uint64_t dlt_mem_count(void)
{
    return n_allocations;
}

/* ---- files -------------------------------------------------------------------------------- */

int dlt_sys_open(const char *path, int flags, int mode)
{
    int fd;
    do {
        fd = fails(DLT_FAULT_FILE) ? -1 : open(path, flags, mode);
    } while (fd < 0 && errno == EINTR);
    if (fd >= 0) done("open", path, fd);
    return fd;
}

int dlt_sys_close(int fd)
{
    bool failed = fails_whole(DLT_FAULT_FILE);
    int reason = errno;
    int result = close(fd); /* never retried: the descriptor is gone even after EINTR */
    if (!failed) {
        if (result == 0) done("close", NULL, fd);
        return result;
    }
    errno = reason;
    return -1;
}

/* Bytes to ask for under a fault: none (-1), or half of them. */
static int64_t allowed(size_t bytes)
{
    int fault = dlt_fault(DLT_FAULT_FILE);
    if (fault > 0) return -1;
    return (int64_t)(fault == DLT_FAULT_SHORT && bytes > 1 ? bytes / 2 : bytes);
}

int64_t dlt_sys_read(int fd, void *buf, size_t bytes)
{
    int64_t n;
    do {
        int64_t ask = allowed(bytes);
        n = ask < 0 ? -1 : read(fd, buf, (size_t)ask);
    } while (n < 0 && errno == EINTR);
    return n;
}

int64_t dlt_sys_write(int fd, const void *buf, size_t bytes)
{
    int64_t n;
    do {
        int64_t ask = allowed(bytes);
        n = ask < 0 ? -1 : write(fd, buf, (size_t)ask);
    } while (n < 0 && errno == EINTR);
    if (n > 0) dlt_fault_done(&(DltSysCall){.what = "write", .fd = fd, .data = buf, .bytes = n});
    return n;
}

int64_t dlt_sys_pread(int fd, void *buf, size_t bytes, int64_t offset)
{
    int64_t n;
    do {
        int64_t ask = allowed(bytes);
        n = ask < 0 ? -1 : pread(fd, buf, (size_t)ask, offset);
    } while (n < 0 && errno == EINTR);
    return n;
}

bool dlt_sys_read_all(int fd, void *buf, size_t bytes)
{
    char *at = buf;
    while (bytes > 0) {
        int64_t n = dlt_sys_read(fd, at, bytes);
        if (n <= 0) return false;
        at += n;
        bytes -= (size_t)n;
    }
    return true;
}

bool dlt_sys_write_all(int fd, const void *buf, size_t bytes)
{
    const char *at = buf;
    while (bytes > 0) {
        int64_t n = dlt_sys_write(fd, at, bytes);
        if (n < 0) return false;
        at += n;
        bytes -= (size_t)n;
    }
    return true;
}

int dlt_sys_fsync(int fd)
{
    int result;
    do {
        result = fails(DLT_FAULT_FILE) ? -1 : fsync(fd);
    } while (result < 0 && errno == EINTR);
    if (result == 0) done("fsync", NULL, fd);
    return result;
}

/* The result of a call about names, told when it succeeded. */
static int named(const char *what, const char *path, const char *to, int result)
{
    if (result == 0) dlt_fault_done(&(DltSysCall){.what = what, .path = path, .to = to, .fd = -1});
    return result;
}

int dlt_sys_rename(const char *from, const char *to)
{
    return fails_whole(DLT_FAULT_FILE) ? -1 : named("rename", from, to, rename(from, to));
}

int dlt_sys_link(const char *from, const char *to)
{
    return fails_whole(DLT_FAULT_FILE) ? -1 : named("link", from, to, link(from, to));
}

int dlt_sys_unlink(const char *path)
{
    return fails_whole(DLT_FAULT_FILE) ? -1 : named("unlink", path, NULL, unlink(path));
}

int dlt_sys_mkdir(const char *path, int mode)
{
    return fails_whole(DLT_FAULT_FILE) ? -1 : named("mkdir", path, NULL, mkdir(path, (mode_t)mode));
}

int dlt_sys_rmdir(const char *path)
{
    return fails_whole(DLT_FAULT_FILE) ? -1 : named("rmdir", path, NULL, rmdir(path));
}

int dlt_sys_truncate(int fd, int64_t bytes)
{
    if (fails_whole(DLT_FAULT_FILE) || ftruncate(fd, bytes) != 0) return -1;
    dlt_fault_done(&(DltSysCall){.what = "truncate", .fd = fd, .bytes = bytes});
    return 0;
}

int dlt_sys_lock(int fd)
{
    return fails_whole(DLT_FAULT_FILE) ? -1 : flock(fd, LOCK_EX | LOCK_NB);
}

bool dlt_sys_list(const char *folder, void (*each)(void *ctx, const char *name), void *ctx)
{
    DIR *dir = fails_whole(DLT_FAULT_FILE) ? NULL : opendir(folder);
    if (dir == NULL) return false;
    for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        bool dots = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
        if (!dots) each(ctx, entry->d_name);
    }
    return closedir(dir) == 0;
}

int64_t dlt_sys_file_bytes(int fd)
{
    struct stat info;
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) return -1;
    return info.st_size;
}

bool dlt_sys_free_bytes(const char *folder, int64_t *bytes)
{
    struct statvfs info;
    if (statvfs(folder, &info) != 0) return false;
    return !__builtin_mul_overflow(info.f_bavail, info.f_frsize, bytes);
}

bool dlt_sys_cwd(char *buf, size_t n)
{
    return getcwd(buf, n) != NULL;
}

static int glob_failed(const char *path, int reason)
{
    (void)path;
    errno = reason;
    return 1;
}

int64_t dlt_sys_glob(const char *pattern, void (*each)(void *ctx, const char *path), void *ctx)
{
    if (fails_whole(DLT_FAULT_FILE)) return -1;
    glob_t found = {0};
    int result = glob(pattern, 0, glob_failed, &found);
    for (size_t i = 0; result == 0 && i < found.gl_pathc; i++)
        each(ctx, found.gl_pathv[i]);
    int64_t n = result == 0 ? (int64_t)found.gl_pathc : 0;
    globfree(&found);
    return result == 0 || result == GLOB_NOMATCH ? n : -1;
}

/* ---- time --------------------------------------------------------------------------------- */

int64_t dlt_sys_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

double dlt_sys_wall_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void dlt_sys_pause_ms(int ms)
{
    struct timespec t = {ms / 1000, (long)(ms % 1000) * 1000000};
    (void)nanosleep(&t, NULL);
}

/* ---- signals ------------------------------------------------------------------------------ */

static atomic_int signal_seen; /* two signals may be handled in two threads at once */

/* A closed terminal may send several SIGHUP: they count as one SIGTERM and never leave at once. */
static void on_signal(int number)
{
    int seen = signal_seen;
    do {
        bool stopping = seen == SIGINT || seen == SIGTERM;
        if (stopping && (number == SIGINT || number == SIGTERM)) _exit(128 + number);
        if (stopping) return;
    } while (
        !atomic_compare_exchange_weak(&signal_seen, &seen, number == SIGHUP ? SIGTERM : number));
}

void dlt_sys_signals_install(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART}, old;
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGUSR1, &action, NULL);
    bool nohup = sigaction(SIGHUP, NULL, &old) == 0 && old.sa_handler == SIG_IGN;
    if (!nohup) sigaction(SIGHUP, &action, NULL);
    action.sa_handler = SIG_IGN; /* these are failed writes, not ends */
    sigaction(SIGPIPE, &action, NULL);
    sigaction(SIGXFSZ, &action, NULL);
}

int dlt_sys_signal_seen(void)
{
    return signal_seen;
}

DltStatus dlt_sys_asked_to_stop(void)
{
    static const struct {
        int signal;
        DltStatus status;
    } requests[] = {{SIGINT, DLT_SIGINT}, {SIGTERM, DLT_SIGTERM}, {SIGUSR1, DLT_STOPPED}};
    int seen = signal_seen;
    for (size_t i = 0; i < sizeof requests / sizeof requests[0]; i++)
        if (requests[i].signal == seen) return requests[i].status;
    return DLT_OK;
}

/* ---- processes ---------------------------------------------------------------------------- */

int dlt_sys_run(const char *const argv[], const char *output)
{
    pid_t pid = -1;
    int status = 0, failed = 0;
    posix_spawn_file_actions_t files;
    if (posix_spawn_file_actions_init(&files) != 0) return -1;
    failed |=
        posix_spawn_file_actions_addopen(&files, 1, output, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    failed |= posix_spawn_file_actions_adddup2(&files, 1, 2);
    if (!failed)
        failed = posix_spawn(&pid, argv[0], &files, NULL, (char *const *)(uintptr_t)argv, environ);
    posix_spawn_file_actions_destroy(&files);
    if (failed) return -1;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* ---- threads ------------------------------------------------------------------------------ */

/* CPUs that the control group's quota pays for (cgroup v2 "quota period"), or a large number. */
static int quota_cpus(void)
{
    char text[64] = "";
    int fd = open("/sys/fs/cgroup/cpu.max", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 1 << 20;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    char *rest = text;
    long long quota = n > 0 ? strtoll(text, &rest, 10) : 0, period = strtoll(rest, NULL, 10);
    if (quota <= 0 || period <= 0) return 1 << 20; /* "max": no quota */
    long long cpus = (quota + period - 1) / period;
    return cpus > 1 ? (int)cpus : 1;
}

int dlt_sys_n_cpu(void)
{
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    int quota = quota_cpus();
    return n < quota ? n : quota;
}

bool dlt_sys_thread(pthread_t *thread, void *(*run)(void *), void *ctx)
{
    return !fails(DLT_FAULT_THREAD) && pthread_create(thread, NULL, run, ctx) == 0;
}
