/* The place where a run writes: made exclusively, locked for as long as the process lives, proven
 * writable before anything is computed.
 *
 * The lock is the system's lock on the file `lock`, which ends with the process; its text says who
 * holds it, and text without a holder means that the run died. Only where the file system is shared
 * between machines the system's answer cannot be trusted, so a lock of another machine (other host
 * and other boot) is refused. */
#include "base/log.h"
#include "base/rng.h"
#include "base/sys.h"
#include "exec/folder.h"
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

enum { MAX_RUNS = 1000000, LOCK_TEXT = 512 };

/* Files that belong to a run, besides step-N.bin. */
static const char *const run_files[] = {
    "config.yaml", "resolved.yaml", "metrics.jsonl", "metrics.csv", "last.bin",     "best.bin",
    "log.txt",     "status.json",   "report.html",   "crash.txt",   "skipped.jsonl"};
enum { N_RUN_FILE = sizeof run_files / sizeof run_files[0] };

DltStatus dlt_folder_error(const DltRunFolder *f, const char *what, const char *path, DltErr *err)
{
    int reason = errno;
    DltArena *arena = dlt_arena_new(); /* any thread */
    (void)f;
    (void)dlt_err(err, DLT_E_RESOURCE, "cannot %s %s: %s", what,
                  arena != NULL ? dlt_path_absolute(arena, path) : path, strerror(reason));
    dlt_arena_free(arena);
    return DLT_E_RESOURCE;
}

static const char *inside(const DltRunFolder *f, const char *name)
{
    return dlt_path_join(f->arena, f->path, name);
}

static bool exists(const DltRunFolder *f, const char *name)
{
    int fd = dlt_sys_open(inside(f, name), O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
    if (fd >= 0) dlt_sys_close(fd);
    return fd >= 0;
}

/* ---- the place ---------------------------------------------------------------------------- */

/* Letters, digits, dot, dash and underscore stay; the rest becomes a dash. */
static const char *file_name(DltArena *arena, const char *name)
{
    char *clean = dlt_arena_str(arena, name != NULL && name[0] != '\0' ? name : "run");
    for (char *c = clean; *c != '\0'; c++) {
        bool letter = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z');
        bool digit = *c >= '0' && *c <= '9';
        if (!letter && !digit && *c != '.' && *c != '_') *c = '-';
    }
    if (clean[0] == '.') clean[0] = '-';
    return clean;
}

/* runs/NAME-K with the smallest K that nobody has. */
static DltStatus make_next(DltRunFolder *f, const char *name, DltErr *err)
{
    f->path = "runs";
    if (dlt_sys_mkdir("runs", 0777) != 0 && errno != EEXIST)
        return dlt_folder_error(f, "create the folder", "runs", err);
    for (int k = 1; k < MAX_RUNS; k++) {
        f->path = dlt_arena_printf(f->arena, "runs/%s-%d", name, k);
        f->made = dlt_sys_mkdir(f->path, 0777) == 0;
        if (f->made) return DLT_OK;
        if (errno != EEXIST) break;
    }
    return dlt_folder_error(f, "create the run folder", f->path, err);
}

/* The folder asked for, with the ones above it. */
static DltStatus make_asked(DltRunFolder *f, DltErr *err)
{
    for (size_t i = 1; f->path[i] != '\0'; i++) {
        if (f->path[i] != '/') continue;
        if (dlt_sys_mkdir(dlt_arena_strn(f->arena, f->path, i), 0777) != 0 && errno != EEXIST &&
            errno != EACCES && errno != EROFS)
            break; /* the last one tells why */
    }
    f->made = dlt_sys_mkdir(f->path, 0777) == 0;
    if (f->made || errno == EEXIST) return DLT_OK;
    return dlt_folder_error(f, "create the run folder", f->path, err);
}

/* ---- the lock ----------------------------------------------------------------------------- */

/* First line of a small system file, "" when it is not there. */
static void read_line(const char *path, char *text, size_t size)
{
    text[0] = '\0';
    int fd = dlt_sys_open(path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) return;
    int64_t n = dlt_sys_read(fd, text, size - 1);
    text[n > 0 ? n : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    dlt_sys_close(fd);
}

typedef struct Holder { /* as the lock's text has it */
    char pid[24], host[128], boot[64], since[24];
} Holder;

static Holder ourselves(void)
{
    Holder h;
    snprintf(h.pid, sizeof h.pid, "%ld", (long)getpid());
    snprintf(h.since, sizeof h.since, "%.0f", dlt_sys_wall_s());
    memset(h.host, 0, sizeof h.host);
    if (gethostname(h.host, sizeof h.host - 1) != 0 || h.host[0] == '\0')
        snprintf(h.host, sizeof h.host, "unknown");
    read_line("/proc/sys/kernel/random/boot_id", h.boot, sizeof h.boot);
    if (h.boot[0] == '\0') snprintf(h.boot, sizeof h.boot, "unknown");
    return h;
}

/* True when the file names a holder. */
static bool read_holder(int fd, Holder *h)
{
    char text[LOCK_TEXT];
    *h = (Holder){0};
    int64_t n = dlt_sys_pread(fd, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    return sscanf(text, "pid %23s host %127s boot %63s since %23s", h->pid, h->host, h->boot,
                  h->since) == 4;
}

static DltStatus held(const DltRunFolder *f, const Holder *h, DltErr *err)
{
    if (h->pid[0] == '\0')
        return dlt_err(err, DLT_E_RESOURCE, "%s: another run is just starting in this folder",
                       dlt_path_absolute(f->arena, f->path));
    return dlt_err(err, DLT_E_RESOURCE,
                   "%s: a run is writing into this folder: process %s on %s; wait for its end, or "
                   "give --out another folder",
                   dlt_path_absolute(f->arena, f->path), h->pid, h->host);
}

/* *stale: the last holder died without giving the lock up. */
static DltStatus take_lock(DltRunFolder *f, bool *stale, DltErr *err)
{
    const char *path = inside(f, "lock");
    Holder old, us = ourselves();
    f->lock_fd = dlt_sys_open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (f->lock_fd < 0) return dlt_folder_error(f, "create the lock", path, err);
    bool locked = dlt_sys_lock(f->lock_fd) == 0;
    int reason = errno;
    *stale = read_holder(f->lock_fd, &old);
    if (!locked && (reason == EWOULDBLOCK || reason == EINTR)) return held(f, &old, err);
    if (*stale && strcmp(old.boot, us.boot) != 0 && strcmp(old.host, us.host) != 0)
        return dlt_err(err, DLT_E_RESOURCE,
                       "%s: the lock was taken by process %s on another machine, %s; if that run "
                       "is dead, remove the file `lock`",
                       dlt_path_absolute(f->arena, f->path), old.pid, old.host);
    if (*stale)
        dlt_log("taking over the lock of process %s on %s, which is gone: that run was killed, it "
                "left no end record",
                old.pid, old.host);
    char text[LOCK_TEXT];
    int n = snprintf(text, sizeof text, "pid %s host %s boot %s since %s\n", us.pid, us.host,
                     us.boot, us.since);
    if (dlt_sys_truncate(f->lock_fd, 0) == 0 && dlt_sys_write_all(f->lock_fd, text, (size_t)n))
        return DLT_OK;
    return dlt_folder_error(f, "write", path, err);
}

/* ---- a folder that holds a run ------------------------------------------------------------ */

typedef struct Move {
    const DltRunFolder *f;
    const char *to;
    int failed;
} Move;

static void move_file(Move *m, const char *name)
{
    const char *to = dlt_path_join(m->f->arena, m->to, name);
    if (dlt_sys_rename(inside(m->f, name), to) != 0 && errno != ENOENT) m->failed = errno;
}

static void move_step_file(void *ctx, const char *name)
{
    size_t n = strlen(name);
    if (strncmp(name, "step-", 5) == 0 && n > 9 && strcmp(name + n - 4, ".bin") == 0)
        move_file(ctx, name);
}

/* What a dead run left moves aside whole, so that nothing it saved is written over. */
static DltStatus move_aside(DltRunFolder *f, DltErr *err)
{
    Move m = {.f = f};
    bool made = false;
    for (int k = 1; k < MAX_RUNS && !made; k++) {
        m.to = inside(f, dlt_arena_printf(f->arena, "previous-%d", k));
        made = dlt_sys_mkdir(m.to, 0777) == 0;
        if (!made && errno != EEXIST) break;
    }
    if (!made) return dlt_folder_error(f, "create", m.to, err);
    for (int i = 0; i < N_RUN_FILE; i++)
        move_file(&m, run_files[i]);
    if (!dlt_sys_list(f->path, move_step_file, &m)) m.failed = errno;
    errno = m.failed;
    if (m.failed != 0) return dlt_folder_error(f, "move a dead run's files into", m.to, err);
    dlt_log("what the dead run left is now in %s", m.to);
    return DLT_OK;
}

static DltStatus check_free(DltRunFolder *f, bool stale, DltErr *err)
{
    bool taken = exists(f, "config.yaml") || exists(f, "last.bin") || exists(f, "metrics.jsonl");
    if (!taken) return DLT_OK;
    if (stale) return move_aside(f, err);
    return dlt_err(err, DLT_E_RESOURCE,
                   "%s: the folder holds a run already; `dltrain resume %s` goes on with it, "
                   "another --out makes a new one",
                   dlt_path_absolute(f->arena, f->path), f->path);
}

/* ---- opening and closing ------------------------------------------------------------------ */

static DltStatus write_text(DltRunFolder *f, const char *name, const char *text, DltErr *err)
{
    DltAtomic *file = NULL;
    DLT_TRY(dlt_atomic_open(f->arena, inside(f, name), &file, err));
    DLT_TRY(dlt_atomic_write(file, text, strlen(text), err));
    return dlt_atomic_commit(file, err);
}

static DltStatus open_log(DltRunFolder *f, DltErr *err)
{
    const char *path = inside(f, "log.txt");
    f->log_fd = dlt_sys_open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (f->log_fd < 0) return dlt_folder_error(f, "create", path, err);
    dlt_log_copy_to(f->log_fd);
    return DLT_OK;
}

/* Files that a killed run had begun. */
static void remove_temp(void *ctx, const char *name)
{
    if (name[0] == '.' && strstr(name, ".tmp.") != NULL) dlt_sys_unlink(inside(ctx, name));
}

static DltStatus fill(DltRunFolder *f, const DltSpec *spec, bool resume, DltErr *err)
{
    bool stale = false;
    DLT_TRY(take_lock(f, &stale, err));
    if (stale && !dlt_sys_list(f->path, remove_temp, f))
        return dlt_folder_error(f, "list", f->path, err);
    if (!resume) DLT_TRY(check_free(f, stale, err));
    dlt_sys_unlink(inside(f, "status.json"));
    if (spec->text != NULL && !(resume && exists(f, "config.yaml")))
        DLT_TRY(write_text(f, "config.yaml", spec->text, err));
    if (spec->resolved != NULL)
        DLT_TRY(write_text(f, "resolved.yaml",
                           dlt_yaml_write(f->arena, dlt_spec_resolve(spec, spec->folder)), err));
    DLT_TRY(open_log(f, err));
    return dlt_metrics_open(f, spec, err);
}

static void close_hook(void *folder)
{
    DltRunFolder *f = folder;
    dlt_run_folder_close(f);
    dlt_arena_free(f->saves);
    f->saves = NULL;
}

DltStatus dlt_run_folder_open(DltArena *arena, const DltSpec *spec, const char *out, bool resume,
                              DltRunFolder **folder, DltErr *err)
{
    DltRunFolder *f = DLT_NEW(arena, DltRunFolder);
    *f = (DltRunFolder){.arena = arena,
                        .path = out,
                        .lock_fd = -1,
                        .log_fd = -1,
                        .jsonl_fd = -1,
                        .csv_fd = -1,
                        .last_step = -1};
    f->saves = dlt_arena_new();
    if (f->saves == NULL) return dlt_err(err, DLT_E_RESOURCE, "out of memory");
    dlt_arena_on_free(arena, close_hook, f);
    if (out != NULL) {
        DLT_TRY(make_asked(f, err));
    } else {
        DLT_TRY(make_next(f, file_name(arena, spec->name), err));
    }
    DltStatus status = fill(f, spec, resume, err);
    if (status != DLT_OK) {
        dlt_run_folder_discard(f);
        return status;
    }
    *folder = f;
    return DLT_OK;
}

DltStatus dlt_run_folder_needs(const DltRunFolder *f, int64_t checkpoint_bytes, DltErr *err)
{
    int64_t free_bytes = 0;
    if (!dlt_sys_free_bytes(f->path, &free_bytes) || free_bytes / 2 >= checkpoint_bytes)
        return DLT_OK;
    return dlt_err(err, DLT_E_RESOURCE,
                   "%s: two checkpoints need %lld bytes, the disk has %lld free",
                   dlt_path_absolute(f->arena, f->path), (long long)checkpoint_bytes * 2,
                   (long long)free_bytes);
}

const char *dlt_run_folder_path(const DltRunFolder *f)
{
    return f->path;
}

static void close_fd(int *fd)
{
    if (*fd >= 0) dlt_sys_close(*fd);
    *fd = -1;
}

void dlt_run_folder_close(DltRunFolder *f)
{
    if (f == NULL || f->closed) return;
    f->closed = true;
    if (f->log_fd >= 0) dlt_log_copy_to(-1);
    close_fd(&f->log_fd);
    close_fd(&f->jsonl_fd);
    close_fd(&f->csv_fd);
    Holder h, us = ourselves();
    bool ours = f->lock_fd >= 0 && read_holder(f->lock_fd, &h) && strcmp(h.pid, us.pid) == 0 &&
                dlt_sys_lock(f->lock_fd) == 0;
    if (ours && dlt_sys_truncate(f->lock_fd, 0) != 0) dlt_log_debug("the lock keeps its text");
    close_fd(&f->lock_fd);
}

static void remove_file(void *ctx, const char *name)
{
    const DltRunFolder *f = ctx;
    bool ours = strcmp(name, "lock") == 0 || strstr(name, ".tmp.") != NULL ||
                (strncmp(name, "step-", 5) == 0 && strstr(name, ".bin") != NULL);
    for (int i = 0; i < N_RUN_FILE; i++)
        ours |= strcmp(name, run_files[i]) == 0;
    if (ours) dlt_sys_unlink(inside(f, name));
}

void dlt_run_folder_remove(DltArena *arena, const char *path)
{
    DltRunFolder f = {.arena = arena, .path = path};
    if (dlt_sys_list(path, remove_file, &f)) dlt_sys_rmdir(path);
}

void dlt_run_folder_discard(DltRunFolder *f)
{
    if (f == NULL) return;
    bool remove = f->made && f->n_file == 0 && f->newest == NULL && f->last_step < 0;
    dlt_run_folder_close(f);
    if (!remove) return;
    for (int i = 0; i < N_RUN_FILE; i++)
        dlt_sys_unlink(inside(f, run_files[i]));
    dlt_sys_unlink(inside(f, "lock"));
    dlt_sys_rmdir(f->path); /* stays when something else lies in it */
}

/* ---- the end ------------------------------------------------------------------------------ */

/* Text as the inside of a JSON string. */
static const char *json_text(DltArena *arena, const char *text)
{
    char *out = dlt_arena_new_bytes(arena, strlen(text) * 6 + 1, 1), *at = out;
    for (const char *c = text; *c != '\0'; c++) {
        if (*c == '"' || *c == '\\') *at++ = '\\';
        if ((unsigned char)*c < 0x20) {
            snprintf(at, 7, "\\u%04x", (unsigned)*c);
            at += 6;
        } else {
            *at++ = *c;
        }
    }
    return out;
}

DltStatus dlt_run_folder_end(DltRunFolder *f, DltStatus status, const char *reason, DltErr *err)
{
    const char *line = dlt_arena_printf(f->arena, "end: exit %d: %s\n", (int)status, reason);
    if (!dlt_sys_write_all(f->log_fd, line, strlen(line)))
        return dlt_folder_error(f, "write", inside(f, "log.txt"), err);
    char time[32];
    snprintf(time, sizeof time, "%.0f", dlt_sys_wall_s());
    const char *newest = f->newest != NULL ? strrchr(f->newest, '/') : NULL;
    const char *text =
        dlt_arena_printf(f->arena,
                         "{\"exit\": %d, \"reason\": \"%s\", \"step\": %lld, \"checkpoint\": "
                         "%s%s%s, \"time\": %s}\n",
                         (int)status, json_text(f->arena, reason), (long long)f->last_step,
                         newest != NULL ? "\"" : "", newest != NULL ? newest + 1 : "null",
                         newest != NULL ? "\"" : "", time);
    return write_text(f, "status.json", text, err);
}
