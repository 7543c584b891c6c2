/* The store of measured choices. What a checkpoint brings comes first, then the user's cache file: one
 * "key<TAB>value<TAB>checksum" a line under a first line that names the format. Lines that are damaged
 * are left out, said so once, and measured anew. Each new choice is compared with the file and written there
 * under a lock: of two programs that measure the same at the same time the later takes the earlier's, so
 * that both compute the same bits. The file is replaced whole. */
#include "base/file.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/sys.h"
#include "cuda/tune.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>

static const char first_line[] = "dltrain cuda choices 2";
static const char file_name[] = "cuda-choices.txt";
enum { MAX_FILE_BYTES = 16 << 20, LINE = DLT_TUNE_KEY + DLT_TUNE_VALUE + 24 };

typedef struct Entry {
    uint64_t hash;
    const char *key, *value;
    const char *stored; /* what the file says; NULL: nothing yet */
    bool used;          /* by this process: part of what it computes */
    struct Entry *next;
} Entry;

enum { BUCKETS = 256, LOCK_MS = 1000, PAUSE_MS = 2 };
struct DltTune {
    pthread_mutex_t mutex; /* plans are made by several threads */
    DltArena *arena;       /* of the entries, under the mutex */
    Entry *bucket[BUCKETS];
    const char *path; /* NULL: not kept on disk */
};

static uint64_t hash_of(const char *text)
{
    return dlt_hash(text, strlen(text), 0);
}

/* With the mutex held. */
static Entry *find(const DltTune *t, const char *key)
{
    uint64_t hash = hash_of(key);
    for (Entry *e = t->bucket[hash % BUCKETS]; e; e = e->next)
        if (e->hash == hash && strcmp(e->key, key) == 0) return e;
    return NULL;
}

static Entry *insert(DltTune *t, const char *key, const char *value)
{
    Entry *e = DLT_NEW(t->arena, Entry);
    e->hash = hash_of(key);
    e->key = dlt_arena_str(t->arena, key);
    e->value = dlt_arena_str(t->arena, value);
    e->next = t->bucket[e->hash % BUCKETS];
    return t->bucket[e->hash % BUCKETS] = e;
}

const char *dlt_tune_find(const DltDevice *dev, const char *key)
{
    DltTune *t = dev->tune;
    pthread_mutex_lock(&t->mutex);
    Entry *e = find(t, key);
    if (e) e->used = true;
    pthread_mutex_unlock(&t->mutex);
    return e ? e->value : NULL;
}

/* ---- text ---- */

/* Splits "key<TAB>value<TAB>checksum"; false when it is none, or not what was written. */
static bool split(char *line, char **value)
{
    char *tab = strchr(line, '\t'), *last = strrchr(line, '\t'), *end = NULL;
    if (!tab || last == tab || tab - line >= DLT_TUNE_KEY || last - tab > DLT_TUNE_VALUE)
        return false;
    uint64_t sum = strtoull(last + 1, &end, 16);
    *last = '\0';
    if (end == last + 1 || *end != '\0' || sum != hash_of(line)) return false;
    *tab = '\0';
    *value = tab + 1;
    return true;
}

/* What is there already stays. of_file: remembers what the file says. Returns how many lines were
 * damaged. */
static int parse(DltTune *t, char *text, bool of_file)
{
    int bad = 0;
    char *line = text;
    for (int i = 0; line && *line; i++) {
        char *end = strchr(line, '\n'), *value = NULL;
        if (end) *end = '\0';
        if (i == 0 && strcmp(line, first_line) != 0) return 1;
        if (i > 0 && !split(line, &value)) {
            bad++;
        } else if (i > 0) {
            Entry *e = find(t, line);
            if (!e) e = insert(t, line, value);
            if (of_file && (!e->stored || strcmp(e->stored, value) != 0))
                e->stored = dlt_arena_str(t->arena, value);
        }
        line = end ? end + 1 : NULL;
    }
    return bad;
}

static int line_of(const Entry *e, bool of_file, char line[LINE])
{
    const char *value = of_file && e->stored ? e->stored : e->value;
    int n = snprintf(line, LINE, "%s\t%s", e->key, value);
    return n +
           snprintf(line + n, (size_t)(LINE - n), "\t%llx\n", (unsigned long long)hash_of(line));
}

/* The file's text: of all entries, or of those that this process uses. With the mutex held. */
static char *text_of(const DltTune *t, DltArena *arena, bool all)
{
    size_t size = sizeof first_line + 1, at = 0;
    char line[LINE];
    for (int i = 0; i < BUCKETS; i++)
        for (const Entry *e = t->bucket[i]; e; e = e->next)
            if (all || e->used) size += (size_t)line_of(e, all, line);
    char *text = dlt_arena_new_bytes(arena, size, 1);
    at = (size_t)snprintf(text, size, "%s\n", first_line);
    for (int i = 0; i < BUCKETS; i++)
        for (const Entry *e = t->bucket[i]; e; e = e->next) {
            if (!all && !e->used) continue;
            size_t n = (size_t)line_of(e, all, line);
            memcpy(text + at, line, n + 1);
            at += n;
        }
    return text;
}

const char *dlt_tune_text(DltDevice *dev, DltArena *arena)
{
    DltTune *t = dev->tune;
    pthread_mutex_lock(&t->mutex);
    char *text = text_of(t, arena, false);
    pthread_mutex_unlock(&t->mutex);
    return text;
}

/* ---- file ---- */

/* With the mutex held. */
static void read_file(DltTune *t, bool warn)
{
    int fd = dlt_sys_open(t->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
    if (fd < 0) return; /* none yet */
    dlt_sys_close(fd);
    DltErr quiet;
    char *text = NULL;
    int64_t n = 0;
    dlt_err_init(&quiet);
    if (dlt_file_read(t->arena, t->path, (DltFileRule){MAX_FILE_BYTES, DLT_E_DATA, DLT_NO_MARK},
                      &text, &n, &quiet) != DLT_OK) {
        if (warn) dlt_log("%s; algorithms are measured anew", quiet.report[0].text);
        return;
    }
    int bad = parse(t, text, true);
    if (bad > 0 && warn)
        dlt_log(
            "%s: damaged or of another version (%d %s left out); what it lacks is measured anew",
            t->path, bad, bad == 1 ? "line" : "lines");
}

static void drop(void *ctx)
{
    DltTune *t = ctx;
    pthread_mutex_destroy(&t->mutex);
    dlt_arena_free(t->arena);
}

DltStatus dlt_tune_open(DltDevice *dev, DltErr *err)
{
    DltTune *t = DLT_NEW(dev->arena, DltTune);
    t->arena = dlt_arena_new();
    if (!t->arena) return dlt_err(err, DLT_E_RESOURCE, "out of memory");
    (void)pthread_mutex_init(&t->mutex, NULL);
    dlt_arena_on_free(dev->arena, drop, t);
    if (dev->option.choices) (void)parse(t, dlt_arena_str(t->arena, dev->option.choices), false);
    if (dev->option.cache_folder) {
        t->path = dlt_path_join(t->arena, dev->option.cache_folder, file_name);
        read_file(t, true);
    }
    dev->tune = t;
    return DLT_OK;
}

/* A cache may lie in ~/.cache of an account that has none yet. */
static void make_folder(DltTune *t)
{
    const char *folder = dlt_path_folder(t->arena, t->path);
    (void)dlt_sys_mkdir(dlt_path_folder(t->arena, folder), 0700);
    (void)dlt_sys_mkdir(folder, 0777); /* there already, as a rule */
}

/* The lock's file descriptor; -1 where nothing can be locked, or another program keeps it for long. */
static int take_lock(DltTune *t)
{
    const char *path = dlt_arena_printf(t->arena, "%s.lock", t->path);
    const int64_t end = dlt_sys_now_ns() + LOCK_MS * INT64_C(1000000);
    int fd = dlt_sys_open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    bool locked = false, wait = fd >= 0;
    while (wait && !locked) {
        locked = dlt_sys_lock(fd) == 0;
        wait = !locked && errno == EWOULDBLOCK && dlt_sys_now_ns() < end;
        if (wait) dlt_sys_pause_ms(PAUSE_MS);
    }
    if (fd < 0 || locked) return fd;
    dlt_sys_close(fd);
    return -1;
}

/* Not synced: what a power cut takes is measured again. With the mutex held. */
static void write_file(DltTune *t)
{
    const char *beside = dlt_arena_printf(t->arena, "%s.new", t->path);
    const char *text = text_of(t, t->arena, true);
    int fd = dlt_sys_open(beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    bool written = fd >= 0 && dlt_sys_write_all(fd, text, strlen(text));
    if (fd >= 0) written = dlt_sys_close(fd) == 0 && written;
    if (written && dlt_sys_rename(beside, t->path) == 0) return;
    dlt_log_debug("%s: a choice is not kept: %s", t->path, strerror(errno));
    if (fd >= 0) (void)dlt_sys_unlink(beside);
}

bool dlt_tune_put(DltDevice *dev, const char *key, const char *value)
{
    DltTune *t = dev->tune;
    pthread_mutex_lock(&t->mutex);
    Entry *e = find(t, key);
    const char *old = e ? e->value : NULL;
    if (t->path) make_folder(t);
    int lock = t->path ? take_lock(t) : -1;
    if (lock >= 0) read_file(t, false);
    if (!e) e = find(t, key);
    if (!e) e = insert(t, key, value);
    bool others = lock >= 0 && e->stored && (!old || strcmp(e->stored, old) != 0);
    e->value = others ? e->stored : dlt_arena_str(t->arena, value);
    e->used = true;
    if (lock >= 0 && !others) {
        e->stored = e->value;
        write_file(t);
    }
    if (lock >= 0) dlt_sys_close(lock);
    bool stands = strcmp(e->value, value) == 0;
    pthread_mutex_unlock(&t->mutex);
    return stands;
}
