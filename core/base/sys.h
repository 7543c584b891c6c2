/* The one seam to the system: memory, files, time, signals, threads. Nothing else in the project
 * calls malloc, open, write or clock_gettime. In the fault build (-DDLT_FAULTS) every call is
 * counted and may be made to fail (fault.h); release builds are plain calls. */
#ifndef DLT_SYS_H
#define DLT_SYS_H

#include "base/err.h"
#include <pthread.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Memory: NULL when out. dlt_sys_alloc is 64-byte aligned and not cleared. */
void *dlt_sys_alloc(size_t bytes);
void *dlt_sys_realloc(void *ptr, size_t old_bytes, size_t bytes);
void dlt_sys_free(void *ptr);
enum { DLT_HUGE_PAGE = 2 << 20 };
/* Large regions: anonymous pages, zeroed, aligned to a huge page, huge pages advised. The end of what is
 * no multiple of one lies in ordinary pages. */
void *dlt_sys_pages(size_t bytes);
void dlt_sys_pages_free(void *ptr, size_t bytes);
/* After dlt_mem_freeze() any dlt_sys_alloc/realloc/pages from the calling process is a BUG (prints
 * and aborts) until dlt_mem_thaw(): nothing is allocated inside a step. Counted, so they nest. */
void dlt_mem_freeze(void);
void dlt_mem_thaw(void);
/* The calling thread works beside the steps (it writes checkpoints): it may allocate at any time. */
void dlt_mem_beside(void);
/* Number of allocations so far. */
uint64_t dlt_mem_count(void);

/* Files: results as the system calls (-1 and errno), EINTR retried, short reads and writes
 * completed by the _all forms. */
int dlt_sys_open(const char *path, int flags, int mode);
int dlt_sys_close(int fd);
int64_t dlt_sys_read(int fd, void *buf, size_t bytes);
int64_t dlt_sys_write(int fd, const void *buf, size_t bytes);
int64_t dlt_sys_pread(int fd, void *buf, size_t bytes, int64_t offset);
bool dlt_sys_read_all(int fd, void *buf, size_t bytes);
bool dlt_sys_write_all(int fd, const void *buf, size_t bytes);
int dlt_sys_fsync(int fd);
int dlt_sys_rename(const char *from, const char *to);
int dlt_sys_link(const char *from, const char *to); /* a second name of a file */
int dlt_sys_unlink(const char *path);
int dlt_sys_mkdir(const char *path, int mode);
int dlt_sys_rmdir(const char *path);
int dlt_sys_truncate(int fd, int64_t bytes);
/* Takes the file's exclusive lock without waiting; the system gives it up when the process ends, in
 * whatever way. -1 with EWOULDBLOCK: another process has it. */
int dlt_sys_lock(int fd);
/* each(ctx, name) for every entry of a folder but . and .., in no order; false when unreadable. */
bool dlt_sys_list(const char *folder, void (*each)(void *ctx, const char *name), void *ctx);
int64_t dlt_sys_file_bytes(int fd); /* -1 when it is no regular file */
bool dlt_sys_free_bytes(const char *folder, int64_t *bytes);
bool dlt_sys_cwd(char *buf, size_t n); /* the current folder */
/* Calls each(ctx, path) for the paths that match a shell pattern, in byte order. Their number, or
 * -1 when a folder cannot be read. */
int64_t dlt_sys_glob(const char *pattern, void (*each)(void *ctx, const char *path), void *ctx);

/* Time: monotonic nanoseconds; wall-clock seconds since 1970. */
int64_t dlt_sys_now_ns(void);
double dlt_sys_wall_s(void);
void dlt_sys_pause_ms(int ms); /* a signal ends it early */

/* Signals: after install, the flags below tell what arrived; a second SIGINT or SIGTERM leaves at
 * once with 130 or 143. SIGHUP (unless nohup) counts as SIGTERM; SIGPIPE and SIGXFSZ are ignored. 0
 * when none arrived, else the signal number (SIGINT, SIGTERM, SIGUSR1). */
void dlt_sys_signals_install(void);
int dlt_sys_signal_seen(void);
/* How such a signal asks to end: DLT_SIGINT, DLT_SIGTERM, DLT_STOPPED; DLT_OK: none came. What takes long
 * before a run begins returns it, without a report. */
DltStatus dlt_sys_asked_to_stop(void);

/* Runs a program (argv[0] is its path) with its output in a file, and waits. Its exit code, 128 + the
 * signal that ended it, or -1 when it did not start. */
int dlt_sys_run(const char *const argv[], const char *output);

/* Threads. */
int dlt_sys_n_cpu(void); /* usable by this process */
bool dlt_sys_thread(pthread_t *thread, void *(*run)(void *), void *ctx);

/* Fault build: replaces DLT_FAULT and restarts the count ("" ends it); false when malformed. In
 * other builds always false. */
bool dlt_sys_fault_set(const char *spec);
/* Asked by the emulated GPU before each of its calls: CUDA's error code to fail with, 0: none. */
int dlt_sys_device_fault(void);

#ifdef __cplusplus
}
#endif

#endif
