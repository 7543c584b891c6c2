/* The rows of a run: metrics.jsonl (one strict JSON object a line) and metrics.csv (fixed columns).
 * A row is one write of whole lines to files opened for appending; on resume the lines behind the
 * checkpoint's step, and a last one that was cut, are dropped by writing the files anew. */
#include "base/sys.h"
#include "exec/folder.h"
#include <fcntl.h>
#include <math.h>
#include <unistd.h>

enum { NUMBER = 40 };
static const int64_t file_max = (int64_t)4 << 30;
static const char jsonl_name[] = "metrics.jsonl", csv_name[] = "metrics.csv";

static const char *const first_columns[] = {"step", "epoch", "time_s", "samples", "lr"};
static const char *const last_columns[] = {"grad_norm", "samples_per_s", "data_wait",
                                           "memory_bytes"};

static const char *number_text(double v, const char *missing, char text[NUMBER])
{
    if (!isfinite(v)) return missing;
    bool whole = v == floor(v) && fabs(v) < 9e15;
    snprintf(text, NUMBER, whole ? "%.0f" : "%.10g", v);
    return text;
}

static void set_columns(DltRunFolder *f, const DltSpec *spec)
{
    f->column = DLT_NEW_ARRAY(f->arena, 9 + DLT_N_SPLIT * spec->n_metric, const char *);
    for (int i = 0; i < 5; i++)
        f->column[f->n_column++] = first_columns[i];
    for (int s = 0; s < DLT_N_SPLIT; s++) {
        bool there = spec->data.source[s].def != NULL || spec->data.source[s].fraction > 0;
        for (int i = 0; there && i < spec->n_metric; i++)
            f->column[f->n_column++] =
                dlt_arena_printf(f->arena, "%s.%s", dlt_split_name[s], spec->metric[i]->name);
    }
    for (int i = 0; i < 4; i++)
        f->column[f->n_column++] = last_columns[i];
}

static const char *header(const DltRunFolder *f)
{
    const char *text = f->column[0];
    for (int i = 1; i < f->n_column; i++)
        text = dlt_arena_printf(f->arena, "%s,%s", text, f->column[i]);
    return dlt_arena_printf(f->arena, "%s\n", text);
}

static DltStatus append_to(DltRunFolder *f, const char *name, int *fd, DltErr *err)
{
    const char *path = dlt_path_join(f->arena, f->path, name);
    if (*fd >= 0) dlt_sys_close(*fd);
    *fd = dlt_sys_open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    return *fd >= 0 ? DLT_OK : dlt_folder_error(f, "open", path, err);
}

static DltStatus put(DltRunFolder *f, const char *name, int fd, const char *text, DltErr *err)
{
    if (dlt_sys_write_all(fd, text, strlen(text))) return DLT_OK;
    return dlt_folder_error(f, "write", dlt_path_join(f->arena, f->path, name), err);
}

DltStatus dlt_metrics_open(DltRunFolder *f, const DltSpec *spec, DltErr *err)
{
    set_columns(f, spec);
    DLT_TRY(append_to(f, jsonl_name, &f->jsonl_fd, err));
    DLT_TRY(append_to(f, csv_name, &f->csv_fd, err));
    if (dlt_sys_file_bytes(f->csv_fd) > 0) return DLT_OK;
    return put(f, csv_name, f->csv_fd, header(f), err);
}

char *dlt_metric_row_json(DltArena *arena, const DltMetricRow *row)
{
    size_t size = 4;
    for (int i = 0; i < row->n; i++)
        size += strlen(row->name[i]) + NUMBER + 6;
    char *text = dlt_arena_new_bytes(arena, size, 1), number[NUMBER];
    size_t n = 0;
    for (int i = 0; i < row->n; i++)
        n += (size_t)snprintf(text + n, size - n, "%s\"%s\": %s", i == 0 ? "{" : ", ", row->name[i],
                              number_text(row->value[i], "null", number));
    snprintf(text + n, size - n, "}");
    return text;
}

static double value_of(const DltMetricRow *row, const char *name)
{
    for (int i = 0; i < row->n; i++)
        if (strcmp(row->name[i], name) == 0) return row->value[i];
    return (double)NAN;
}

static const char *csv_line(const DltRunFolder *f, DltArena *arena, const DltMetricRow *row)
{
    size_t size = (size_t)f->n_column * (NUMBER + 1) + 2, n = 0;
    char *text = dlt_arena_new_bytes(arena, size, 1), number[NUMBER];
    for (int i = 0; i < f->n_column; i++)
        n += (size_t)snprintf(text + n, size - n, "%s%s", i == 0 ? "" : ",",
                              number_text(value_of(row, f->column[i]), "", number));
    snprintf(text + n, size - n, "\n");
    return text;
}

DltStatus dlt_run_folder_metrics(DltRunFolder *f, const DltMetricRow *row, DltErr *err)
{
    DLT_BUG_ON(row->n < 1 || strcmp(row->name[0], "step") != 0);
    DltArena *arena = dlt_arena_new();
    if (arena == NULL) return dlt_err(err, DLT_E_RESOURCE, "out of memory");
    const char *json = dlt_arena_printf(arena, "%s\n", dlt_metric_row_json(arena, row));
    DltStatus status = put(f, jsonl_name, f->jsonl_fd, json, err);
    if (status == DLT_OK) status = put(f, csv_name, f->csv_fd, csv_line(f, arena, row), err);
    if (status == DLT_OK) f->last_step = (int64_t)row->value[0];
    dlt_arena_free(arena);
    return status;
}

DltStatus dlt_metrics_sync(DltRunFolder *f, DltErr *err)
{
    if (dlt_sys_fsync(f->jsonl_fd) == 0 && dlt_sys_fsync(f->csv_fd) == 0) return DLT_OK;
    return dlt_folder_error(f, "sync the metrics in", f->path, err);
}

/* ---- rewinding ---------------------------------------------------------------------------- */

/* The step of a line, -1 when it has none. */
static int64_t line_step(const char *line, const char *before)
{
    size_t n = strlen(before);
    char *end = NULL;
    if (strncmp(line, before, n) != 0) return -1;
    long long step = strtoll(line + n, &end, 10);
    return end != line + n && step >= 0 && (*end == ',' || *end == '}') ? step : -1;
}

/* Keeps `first` lines and then those whose step is at most `step`; true when something was dropped.
 * Works in place; *last becomes the highest step kept. */
static bool keep_lines(char *text, int first, const char *before, int64_t step, int64_t *last)
{
    char *to = text, *line = text, *end = strchr(text, '\n');
    bool dropped = false;
    for (int i = 0; end != NULL; i++, line = end + 1, end = strchr(line, '\n')) {
        int64_t at = i < first ? 0 : line_step(line, before);
        size_t n = (size_t)(end - line) + 1;
        if (at < 0 || at > step) {
            dropped = true;
            continue;
        }
        if (i >= first && at > *last) *last = at;
        memmove(to, line, n);
        to += n;
    }
    dropped |= *line != '\0'; /* a cut last line */
    *to = '\0';
    return dropped;
}

static DltStatus rewind_file(DltRunFolder *f, DltArena *arena, const char *name, int first,
                             const char *before, int64_t step, DltErr *err)
{
    const char *path = dlt_path_join(arena, f->path, name);
    char *text = NULL;
    int64_t n = 0;
    DLT_TRY(dlt_file_read(arena, path, (DltFileRule){file_max, DLT_E_RESOURCE, DLT_NO_MARK}, &text,
                          &n, err));
    if (!keep_lines(text, first, before, step, &f->last_step)) return DLT_OK;
    DltAtomic *file = NULL;
    DLT_TRY(dlt_atomic_open(arena, path, &file, err));
    DLT_TRY(dlt_atomic_write(file, text, strlen(text), err));
    return dlt_atomic_commit(file, err);
}

DltStatus dlt_run_folder_rewind(DltRunFolder *f, int64_t step, DltErr *err)
{
    DltArena *arena = dlt_arena_new();
    if (arena == NULL) return dlt_err(err, DLT_E_RESOURCE, "out of memory");
    f->last_step = -1;
    DltStatus status = rewind_file(f, arena, csv_name, 1, "", step, err);
    f->last_step = -1;
    if (status == DLT_OK) status = rewind_file(f, arena, jsonl_name, 0, "{\"step\": ", step, err);
    dlt_arena_free(arena);
    if (status == DLT_OK) status = append_to(f, jsonl_name, &f->jsonl_fd, err);
    if (status == DLT_OK) status = append_to(f, csv_name, &f->csv_fd, err);
    return status;
}
