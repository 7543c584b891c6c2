/* dltrain report: runs as one HTML file that needs nothing else: a table of results, the settings in
 * which they differ, a curve for every metric, and each run's resolved config. It reads what runs
 * write: metrics.csv, status.json, resolved.yaml. */
#include "cmd/chart.h"
#include "cmd/leaves.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>

enum { METRICS_BYTES = 1 << 28, MAX_COLUMN = 256, MAX_CURVE = 200 };

typedef struct Run {
    const char *word;
    const char *state; /* status.json's words, or why there is none */
    const DltYaml *resolved;
    DltLeaves leaves;
    int n_column, n_row;
    const char *column[MAX_COLUMN];
    double *cell[MAX_COLUMN]; /* [n_row] */
} Run;

/* ---- reading --------------------------------------------------------------------------------- */

/* Cuts the next word, up to `end`, out of *at. */
static char *cut(char **at, char end)
{
    char *word = *at, *stop = strchr(word, end);
    *at = stop ? stop + 1 : word + strlen(word);
    if (stop) *stop = '\0';
    return word;
}

static DltStatus read_metrics(DltArena *arena, const char *path, Run *r, DltErr *err)
{
    char *bytes = NULL, *at;
    int64_t n = 0;
    DLT_TRY(dlt_file_read(arena, path, (DltFileRule){METRICS_BYTES, DLT_E_DATA, DLT_NO_MARK},
                          &bytes, &n, err));
    at = bytes;
    char *head = cut(&at, '\n');
    while (*head && r->n_column < MAX_COLUMN)
        r->column[r->n_column++] = cut(&head, ',');
    int room = 0;
    for (const char *c = at; *c; c++)
        room += *c == '\n';
    for (int i = 0; i < r->n_column; i++)
        r->cell[i] = DLT_NEW_ARRAY(arena, room + 1, double);
    while (*at && r->n_row < room) { /* a last line without its end was cut */
        char *line = cut(&at, '\n');
        for (int i = 0; i < r->n_column; i++) {
            char *end, *word = cut(&line, ',');
            double v = strtod(word, &end);
            r->cell[i][r->n_row] = end != word && *end == '\0' ? v : (double)NAN;
        }
        r->n_row++;
    }
    return DLT_OK;
}

/* "done", "exit 7: diverged", or that the run was killed or still lives. */
static const char *read_state(DltArena *arena, const char *folder, DltErr *quiet)
{
    char *bytes = NULL;
    int64_t n = 0;
    dlt_err_init(quiet);
    if (dlt_file_read(arena, dlt_path_join(arena, folder, "status.json"),
                      (DltFileRule){1 << 16, DLT_E_DATA, DLT_NO_MARK}, &bytes, &n, quiet) != DLT_OK)
        return "no end record: killed, or still running";
    json_t *o = json_loads(bytes, 0, NULL);
    const char *reason = json_string_value(json_object_get(o, "reason"));
    int code = (int)json_integer_value(json_object_get(o, "exit"));
    const char *text = dlt_arena_printf(arena, "exit %d: %s", code, reason ? reason : "?");
    json_decref(o);
    return text;
}

static DltStatus read_run(DltArena *arena, const char *word, Run *r, DltErr *err)
{
    char *bytes = NULL;
    int64_t n = 0;
    DltYaml *tree = NULL;
    const char *path = dlt_path_join(arena, word, "resolved.yaml");
    *r = (Run){.word = word};
    DLT_TRY(dlt_file_read(arena, path, (DltFileRule){DLT_YAML_BYTES, DLT_E_CONFIG, DLT_NO_MARK},
                          &bytes, &n, err));
    DLT_TRY(dlt_yaml_parse(arena, path, bytes, n, &tree, err));
    DLT_TRY(read_metrics(arena, dlt_path_join(arena, word, "metrics.csv"), r, err));
    DltErr *quiet = DLT_NEW(arena, DltErr);
    r->resolved = tree;
    r->leaves = dlt_leaves(arena, tree);
    r->state = read_state(arena, word, quiet);
    return DLT_OK;
}

/* ---- tables ---------------------------------------------------------------------------------- */

static int column_of(const Run *r, const char *name)
{
    for (int i = 0; i < r->n_column; i++)
        if (strcmp(r->column[i], name) == 0) return i;
    return -1;
}

/* The last value that was measured. */
static double last_of(const Run *r, const char *name)
{
    int c = column_of(r, name);
    for (int i = r->n_row - 1; c >= 0 && i >= 0; i--)
        if (isfinite(r->cell[c][i])) return r->cell[c][i];
    return (double)NAN;
}

static void add_cell(DltText *out, const char *tag, const char *text)
{
    dlt_text_addf(out, "<%s>", tag);
    dlt_html_add(out, text);
    dlt_text_addf(out, "</%s>", tag);
}

/* Names of the columns of all runs, each once. */
static int all_columns(const Run *run, int n_run, const char *name[MAX_COLUMN])
{
    int n = 0;
    for (int r = 0; r < n_run; r++)
        for (int i = 0; i < run[r].n_column; i++) {
            int k = 0;
            while (k < n && strcmp(name[k], run[r].column[i]) != 0)
                k++;
            if (k == n && n < MAX_COLUMN) name[n++] = run[r].column[i];
        }
    return n;
}

static void add_results(DltText *out, const Run *run, int n_run)
{
    const char *name[MAX_COLUMN];
    int n = all_columns(run, n_run, name);
    dlt_text_add(out, "<h2>Results</h2><div class=w><table><tr><th>run</th><th>end</th>");
    for (int i = 0; i < n; i++)
        add_cell(out, "th", name[i]);
    dlt_text_add(out, "</tr>\n");
    for (int r = 0; r < n_run; r++) {
        dlt_text_add(out, "<tr>");
        add_cell(out, "td", run[r].word);
        add_cell(out, "td", run[r].state);
        for (int i = 0; i < n; i++) {
            double v = last_of(&run[r], name[i]);
            dlt_text_addf(out, isfinite(v) ? "<td>%.6g</td>" : "<td></td>", v);
        }
        dlt_text_add(out, "</tr>\n");
    }
    dlt_text_add(out, "</table></div>\n");
}

static const char *setting(DltArena *arena, const Run *r, const char *path)
{
    const DltLeaf *leaf = dlt_leaves_find(&r->leaves, path);
    return leaf ? dlt_leaf_text(arena, leaf->value) : "-";
}

/* The settings that are not the same in all runs. */
static void add_settings(DltText *out, const Run *run, int n_run)
{
    bool any = false;
    for (int r = 0; r < n_run; r++)
        for (int i = 0; i < run[r].leaves.n; i++) {
            const char *path = run[r].leaves.leaf[i].path;
            bool first = true, same = true;
            for (int k = 0; k < n_run; k++) {
                first = first && (k >= r || !dlt_leaves_find(&run[k].leaves, path));
                same = same && strcmp(setting(out->arena, &run[k], path),
                                      setting(out->arena, &run[0], path)) == 0;
            }
            if (!first || same) continue;
            if (!any) dlt_text_add(out, "<h2>Settings that differ</h2><div class=w><table>\n");
            any = true;
            dlt_text_add(out, "<tr>");
            add_cell(out, "th", path);
            for (int k = 0; k < n_run; k++)
                add_cell(out, "td", setting(out->arena, &run[k], path));
            dlt_text_add(out, "</tr>\n");
        }
    if (any) dlt_text_add(out, "</table></div>\n");
}

/* ---- curves ---------------------------------------------------------------------------------- */

/* DLT_TRAIN ..., -1 when the column belongs to none. */
static int split_of(const char *column)
{
    for (int s = 0; s < DLT_N_SPLIT; s++) {
        size_t n = strlen(dlt_split_name[s]);
        if (strncmp(column, dlt_split_name[s], n) == 0 && column[n] == '.') return s;
    }
    return -1;
}

/* "loss" of train.loss; the column's own name when it belongs to no split. */
static const char *metric_of(const char *column)
{
    int split = split_of(column);
    return split < 0 ? column : column + strlen(dlt_split_name[split]) + 1;
}

static int dash_of(int split)
{
    return split == DLT_TRAIN ? 1 : split == DLT_TEST ? 2 : 0;
}

/* One chart: every run's columns of this metric. A color a run (a split when there is one run). */
static void add_chart(DltText *out, const Run *run, int n_run, const char *metric)
{
    DltCurve *curve = DLT_NEW_ARRAY(out->arena, MAX_CURVE, DltCurve);
    int n = 0;
    for (int r = 0; r < n_run; r++) {
        int step = column_of(&run[r], "step");
        for (int i = 0; i < run[r].n_column && step >= 0 && n < MAX_CURVE; i++) {
            const char *column = run[r].column[i];
            if (strcmp(metric_of(column), metric) != 0) continue;
            if (!isfinite(last_of(&run[r], column))) continue;
            int split = split_of(column);
            const char *label =
                n_run > 1 ? dlt_arena_printf(out->arena, "%s %s", run[r].word, column) : column;
            curve[n] = (DltCurve){.label = label,
                                  .color = n_run > 1   ? r
                                           : split < 0 ? 0
                                                       : split,
                                  .dash = n_run > 1 ? dash_of(split) : 0,
                                  .n = run[r].n_row,
                                  .x = run[r].cell[step],
                                  .y = run[r].cell[i]};
            n++;
        }
    }
    dlt_chart_add(out, metric, curve, n);
}

static void add_charts(DltText *out, const Run *run, int n_run)
{
    static const char *const no_curve[] = {"step",    "epoch",        "time_s",
                                           "samples", "memory_bytes", NULL};
    const char *name[MAX_COLUMN];
    int n = all_columns(run, n_run, name);
    dlt_text_add(out, "<h2>Curves</h2><div class=c>\n");
    for (int i = 0; i < n; i++) {
        const char *metric = metric_of(name[i]);
        bool skip = false;
        for (int k = 0; no_curve[k]; k++)
            skip = skip || strcmp(no_curve[k], metric) == 0;
        for (int k = 0; k < i; k++)
            skip = skip || strcmp(metric_of(name[k]), metric) == 0;
        if (!skip) add_chart(out, run, n_run, metric);
    }
    dlt_text_add(out, "</div>\n");
}

/* ---- the page -------------------------------------------------------------------------------- */

static const char style[] =
    "body{font:15px/1.45 system-ui,sans-serif;margin:2em auto;max-width:1300px;padding:0 1em;"
    "color:#222;background:#fff}h1{font-size:1.5em}h2{font-size:1.15em;margin-top:1.6em}"
    "table{border-collapse:collapse;font-size:13px}th,td{padding:.25em .6em;text-align:left;"
    "border-bottom:1px solid #ddd;white-space:nowrap}.w{overflow-x:auto}"
    ".c{display:grid;grid-template-columns:repeat(auto-fill,minmax(480px,1fr));gap:1em}"
    "figure{margin:0}figcaption{font-weight:600}figure p{font-size:12px;margin:.2em 0}"
    "svg{width:100%;font-size:11px;fill:#555}polyline{fill:none;stroke-width:1.6}"
    ".g{stroke:#e6e6e6}.k{width:22px;height:8px;margin:0 4px 0 8px}"
    "pre{background:#f6f6f6;padding:1em;overflow-x:auto;font-size:12.5px}";

static void add_page(DltText *out, const Run *run, int n_run)
{
    dlt_text_add(out, "<!DOCTYPE html>\n<html lang=en><head><meta charset=utf-8><title>");
    dlt_html_add(out, n_run == 1 ? run[0].word : "dltrain report");
    dlt_text_addf(out, "</title><style>%s</style></head><body>\n<h1>", style);
    if (n_run == 1)
        dlt_html_add(out, run[0].word);
    else
        dlt_text_addf(out, "%d runs", n_run);
    dlt_text_add(out, "</h1>\n");
    add_results(out, run, n_run);
    add_settings(out, run, n_run);
    add_charts(out, run, n_run);
    dlt_text_add(out, "<h2>Configs</h2>\n");
    for (int r = 0; r < n_run; r++) {
        dlt_text_add(out, "<details><summary>");
        dlt_html_add(out, run[r].word);
        dlt_text_add(out, "</summary><pre>");
        dlt_html_add(out, dlt_yaml_write(out->arena, run[r].resolved));
        dlt_text_add(out, "</pre></details>\n");
    }
    dlt_text_add(out, "</body></html>\n");
}

static DltStatus run_report(const DltArgs *args, DltErr *err)
{
    DltArena *arena = args->arena;
    Run *run = DLT_NEW_ARRAY(arena, args->n_word, Run);
    for (int i = 0; i < args->n_word; i++)
        DLT_TRY(read_run(arena, args->word[i], &run[i], err));
    DltText page = dlt_text(arena);
    add_page(&page, run, args->n_word);
    const char *path = args->out           ? args->out
                       : args->n_word == 1 ? dlt_path_join(arena, args->word[0], "report.html")
                                           : "report.html";
    DltAtomic *file = NULL;
    DLT_TRY(dlt_atomic_open(arena, path, &file, err));
    DLT_TRY(dlt_atomic_write(file, page.bytes, page.n, err));
    DLT_TRY(dlt_atomic_commit(file, err));
    printf("%s\n", path);
    return DLT_OK;
}

const DltCommand dlt_command_report = {
    .name = "report",
    .words = "RUN...",
    .help = "one HTML file with curves and tables",
    .min_word = 1,
    .max_word = -1,
    .options = (const char *const[]){"out", NULL},
    .run = run_report,
};
