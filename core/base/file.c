/* Whole files: a bounded read, and a write that appears whole or not at all. Messages show the
 * absolute path and the system's reason. */
#include "base/file.h"
#include "base/fatal.h"
#include "base/rng.h"
#include "base/sys.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

struct DltAtomic {
    DltArena *arena;
    const char *path, *temp; /* temp NULL: committed or abandoned */
    int fd;                  /* -1: closed */
};

static const char no_memory[] = "out of memory";

/* Reads all of fd; the reason of a failure in *why. */
static bool read_fd(DltArena *arena, int fd, int64_t max_bytes, char **bytes, int64_t *n,
                    const char **why)
{
    int64_t size = dlt_sys_file_bytes(fd);
    if (size < 0) {
        *why = "it is no regular file";
        return false;
    }
    if (size > max_bytes) {
        *why = dlt_arena_printf(arena, "it has %lld bytes, more than the limit of %lld",
                                (long long)size, (long long)max_bytes);
        return false;
    }
    char *text = dlt_arena_try(arena, (size_t)size + 1, 1);
    if (text == NULL) {
        *why = no_memory;
        return false;
    }
    errno = 0;
    if (!dlt_sys_read_all(fd, text, (size_t)size)) {
        *why = errno != 0 ? strerror(errno) : "it became shorter while it was read";
        return false;
    }
    *bytes = text;
    *n = size;
    return true;
}

DltStatus dlt_file_read(DltArena *arena, const char *path, DltFileRule rule, char **bytes,
                        int64_t *n, DltErr *err)
{
    const char *why = NULL;
    int fd = dlt_sys_open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
    if (fd < 0) {
        why = strerror(errno);
    } else {
        if (read_fd(arena, fd, rule.max_bytes, bytes, n, &why)) why = NULL;
        dlt_sys_close(fd);
    }
    if (why == NULL) return DLT_OK;
    return dlt_err_at(err, why == no_memory ? DLT_E_RESOURCE : rule.status, rule.at,
                      "cannot read %s: %s", dlt_path_absolute(arena, path), why);
}

static DltStatus write_error(const DltAtomic *file, const char *what, int reason, DltErr *err)
{
    return dlt_err(err, DLT_E_RESOURCE, "cannot %s %s: %s", what,
                   dlt_path_absolute(file->arena, file->path), strerror(reason));
}

static void abandon_hook(void *file)
{
    dlt_atomic_abandon(file);
}

/* A name beside `path` that nobody else uses. */
static const char *temp_name(const DltAtomic *f, const char *path, int try)
{
    const char *slash = strrchr(path, '/');
    int folder_len = slash != NULL ? (int)(slash - path) + 1 : 0;
    int64_t now = dlt_sys_now_ns();
    return dlt_arena_printf(f->arena, "%.*s.%s.tmp.%ld.%08x", folder_len, path, path + folder_len,
                            (long)getpid(), (unsigned)dlt_hash(&now, sizeof now, (uint64_t)try));
}

DltStatus dlt_atomic_open(DltArena *arena, const char *path, DltAtomic **file, DltErr *err)
{
    enum { TRIES = 16 };
    DltAtomic *f = DLT_NEW(arena, DltAtomic);
    *f = (DltAtomic){.arena = arena, .path = dlt_arena_str(arena, path), .fd = -1};
    dlt_arena_on_free(arena, abandon_hook, f);
    for (int i = 0; i < TRIES && f->fd < 0; i++) {
        const char *temp = temp_name(f, path, i);
        dlt_fatal_file(temp);
        f->fd = dlt_sys_open(temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        int reason = errno;
        dlt_fatal_file_made();
        if (f->fd >= 0) f->temp = temp;
        if (f->fd >= 0) break;
        dlt_fatal_file_drop(temp);
        errno = reason;
        if (reason != EEXIST) break;
    }
    if (f->fd < 0) return write_error(f, "create", errno, err);
    *file = f;
    return DLT_OK;
}

DltStatus dlt_atomic_write(DltAtomic *file, const void *bytes, size_t n, DltErr *err)
{
    if (dlt_sys_write_all(file->fd, bytes, n)) return DLT_OK;
    int reason = errno;
    dlt_atomic_abandon(file);
    return write_error(file, "write", reason, err);
}

/* The rename itself is on disk only when its folder is. */
static int sync_folder(DltAtomic *file)
{
    int fd = dlt_sys_open(dlt_path_folder(file->arena, file->path),
                          O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (fd < 0) return -1;
    int failed = dlt_sys_fsync(fd);
    int reason = errno;
    dlt_sys_close(fd);
    errno = reason;
    return failed;
}

/* Everything is on disk and the file is closed. */
static DltStatus settle(DltAtomic *file, DltErr *err)
{
    const char *what = "sync";
    bool ok = dlt_sys_fsync(file->fd) == 0;
    if (ok) {
        what = "close";
        int fd = file->fd;
        file->fd = -1;
        ok = dlt_sys_close(fd) == 0;
    }
    if (ok) return DLT_OK;
    int reason = errno;
    dlt_atomic_abandon(file);
    return write_error(file, what, reason, err);
}

static DltStatus take_name(DltAtomic *file, DltErr *err)
{
    if (dlt_sys_rename(file->temp, file->path) != 0) {
        int reason = errno;
        dlt_atomic_abandon(file);
        return write_error(file, "rename", reason, err);
    }
    dlt_fatal_file_drop(file->temp);
    file->temp = NULL;
    return sync_folder(file) == 0 ? DLT_OK : write_error(file, "sync the folder of", errno, err);
}

DltStatus dlt_atomic_commit(DltAtomic *file, DltErr *err)
{
    DLT_TRY(settle(file, err));
    return take_name(file, err);
}

/* Names that wait beside those they will replace: link() itself never replaces a file. */
typedef struct Links {
    DltAtomic *of;
    const char *const *path;
    const char **temp; /* NULL: made its way, or never was */
    int n;
} Links;

static void remove_links(Links *l)
{
    for (int i = 0; i < l->n; i++) {
        DltAtomic link = {.arena = l->of->arena, .path = l->path[i], .temp = l->temp[i], .fd = -1};
        dlt_atomic_abandon(&link);
        l->temp[i] = NULL;
    }
}

static bool make_links(Links *l)
{
    for (int i = 0; i < l->n; i++) {
        const char *temp = temp_name(l->of, l->path[i], i);
        dlt_fatal_file(temp);
        bool made = dlt_sys_link(l->of->temp, temp) == 0;
        dlt_fatal_file_made();
        if (!made) {
            dlt_fatal_file_drop(temp);
            remove_links(l);
            return false;
        }
        l->temp[i] = temp;
    }
    return true;
}

static DltStatus place_links(Links *l, DltErr *err)
{
    for (int i = 0; i < l->n; i++) {
        if (dlt_sys_rename(l->temp[i], l->path[i]) != 0) {
            DltAtomic link = {.arena = l->of->arena, .path = l->path[i]};
            return write_error(&link, "rename", errno, err);
        }
        dlt_fatal_file_drop(l->temp[i]);
        l->temp[i] = NULL;
    }
    return DLT_OK;
}

DltStatus dlt_atomic_commit_all(DltAtomic *file, const char *const *more, int n, bool *linked,
                                DltErr *err)
{
    Links links = {file, more, DLT_NEW_ARRAY(file->arena, n, const char *), n};
    *linked = make_links(&links);
    if (!*linked) return DLT_OK;
    DltStatus status = settle(file, err);
    if (status == DLT_OK) status = place_links(&links, err);
    if (status == DLT_OK) return take_name(file, err);
    remove_links(&links);
    dlt_atomic_abandon(file);
    return status;
}

void dlt_atomic_abandon(DltAtomic *file)
{
    if (file == NULL || file->temp == NULL) return;
    if (file->fd >= 0) dlt_sys_close(file->fd);
    dlt_sys_unlink(file->temp);
    dlt_fatal_file_drop(file->temp);
    file->fd = -1;
    file->temp = NULL;
}

char *dlt_path_join(DltArena *arena, const char *folder, const char *name)
{
    size_t n = strlen(folder);
    if (name[0] == '/' || n == 0 || strcmp(folder, ".") == 0) return dlt_arena_str(arena, name);
    return dlt_arena_printf(arena, "%s%s%s", folder, folder[n - 1] == '/' ? "" : "/", name);
}

char *dlt_path_folder(DltArena *arena, const char *path)
{
    const char *slash = strrchr(path, '/');
    if (slash == NULL) return dlt_arena_str(arena, ".");
    return dlt_arena_strn(arena, path, slash == path ? 1 : (size_t)(slash - path));
}

char *dlt_path_absolute(DltArena *arena, const char *path)
{
    char cwd[PATH_MAX];
    if (path[0] == '/' || !dlt_sys_cwd(cwd, sizeof cwd)) return dlt_arena_str(arena, path);
    while (strncmp(path, "./", 2) == 0)
        path += 2;
    return dlt_path_join(arena, cwd, path);
}

char *dlt_path_cache(DltArena *arena)
{
    const char *own = getenv("DLTRAIN_CACHE"), *xdg = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    if (own != NULL && own[0] != '\0')
        return strcmp(own, "none") == 0 ? NULL : dlt_path_absolute(arena, own);
    if (xdg != NULL && xdg[0] == '/') return dlt_path_join(arena, xdg, "dltrain");
    if (home == NULL || home[0] != '/') return NULL;
    return dlt_path_join(arena, home, ".cache/dltrain");
}
