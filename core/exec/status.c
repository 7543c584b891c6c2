/* What became of a run, from its folder alone: the lock tells whether it lives, status.json how it
 * ended, and a folder with neither is that of a run which was killed. Nothing is changed. */
#include "base/file.h"
#include "base/sys.h"
#include "exec/checkpoint.h"
#include "exec/run.h"
#include <fcntl.h>
#include <jansson.h>

enum { TEXT_MAX = 1 << 20 };

static json_t *read_json(DltArena *arena, const char *path)
{
    DltErr unused;
    char *text = NULL;
    int64_t n = 0;
    dlt_err_init(&unused);
    if (dlt_file_read(arena, path, (DltFileRule){TEXT_MAX, DLT_E_DATA, DLT_NO_MARK}, &text, &n,
                      &unused) != DLT_OK)
        return NULL;
    return json_loadb(text, (size_t)n, JSON_REJECT_DUPLICATES, NULL);
}

/* Step of the last whole row, -1: none. */
static int64_t last_row(DltArena *arena, const char *path)
{
    static const int64_t tail = 1 << 16; /* rows are much shorter */
    int fd = dlt_sys_open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
    int64_t size = fd >= 0 ? dlt_sys_file_bytes(fd) : -1, step = -1;
    char *text = dlt_arena_new_bytes(arena, (size_t)tail + 1, 1);
    int64_t from = size > tail ? size - tail : 0;
    int64_t n = size > 0 ? dlt_sys_pread(fd, text, (size_t)(size - from), from) : 0;
    if (fd >= 0) dlt_sys_close(fd);
    for (char *line = text, *end; n > 0 && (end = strchr(line, '\n')) != NULL; line = end + 1) {
        long long value;
        if (sscanf(line, "{\"step\": %lld", &value) == 1) step = value;
    }
    return step;
}

/* True when a living process holds the lock; its pid and host, or the dead holder's. */
static bool is_held(const char *path, DltRunStatus *s)
{
    char text[512] = "";
    int fd = dlt_sys_open(path, O_RDWR | O_CLOEXEC, 0);
    if (fd < 0) return false;
    int64_t n = dlt_sys_pread(fd, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    if (sscanf(text, "pid %23s host %127s", s->pid, s->host) != 2) s->pid[0] = s->host[0] = '\0';
    bool held = dlt_sys_lock(fd) != 0;
    dlt_sys_close(fd);
    return held;
}

static void read_end(DltArena *arena, const char *folder, DltRunStatus *s)
{
    json_t *end = read_json(arena, dlt_path_join(arena, folder, "status.json"));
    const json_t *code = json_object_get(end, "exit");
    if (json_is_integer(code)) {
        const char *reason = json_string_value(json_object_get(end, "reason"));
        s->state = DLT_RUN_ENDED;
        s->exit = (int)json_integer_value(code);
        s->reason = dlt_arena_str(arena, reason != NULL ? reason : "");
    }
    json_decref(end);
}

static void read_checkpoint(DltArena *arena, const char *folder, DltRunStatus *s)
{
    DltErr unused;
    DltCheckpoint *c = NULL;
    dlt_err_init(&unused);
    const char *last = dlt_path_join(arena, folder, "last.bin");
    s->saved_step = -1;
    if (dlt_checkpoint_read_header(arena, last, &c, &unused) != DLT_OK) return;
    s->saved_step = c->meta.step;
    s->checkpoint = last;
    s->lineage = c->meta.lineage;
}

DltStatus dlt_run_status(DltArena *arena, const char *folder, DltRunStatus *s, DltErr *err)
{
    *s = (DltRunStatus){.state = DLT_RUN_KILLED};
    const char *config = dlt_path_join(arena, folder, "config.yaml");
    int fd = dlt_sys_open(config, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
    if (fd < 0)
        return dlt_err(err, DLT_E_CONFIG, "%s: no run folder (it has no config.yaml)",
                       dlt_path_absolute(arena, folder));
    dlt_sys_close(fd);
    bool held = is_held(dlt_path_join(arena, folder, "lock"), s);
    s->step = last_row(arena, dlt_path_join(arena, folder, "metrics.jsonl"));
    read_checkpoint(arena, folder, s);
    if (held)
        s->state = DLT_RUN_LIVES;
    else
        read_end(arena, folder, s);
    const char *crash = dlt_path_join(arena, folder, "crash.txt");
    fd = held ? -1 : dlt_sys_open(crash, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
    if (fd < 0) return DLT_OK;
    s->crash = crash;
    dlt_sys_close(fd);
    return DLT_OK;
}
