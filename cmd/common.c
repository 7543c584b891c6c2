/* What several commands share: run options, results as lines or JSON, finding and opening
 * checkpoints. */
#include "cmd/cmd.h"

#include <jansson.h>
#include <math.h>
#include <sys/stat.h>

DltRunOptions dlt_run_options(const DltArgs *args)
{
    return (DltRunOptions){.out = args->out,
                           .device = args->device,
                           .init = args->init,
                           .n_thread = (int)args->threads,
                           .eager = args->eager,
                           .json = args->json,
                           .quiet = args->quiet,
                           .stop_at = args->stop_at,
                           .plugin_folder = args->program_folder,
                           .program = dlt_version()};
}

static DltStatus print_json(const DltRunResult *r, const char *split, DltErr *err)
{
    json_t *o = json_object();
    int failed = o == NULL;
    if (r->checkpoint) failed |= json_object_set_new(o, "checkpoint", json_string(r->checkpoint));
    if (r->folder) failed |= json_object_set_new(o, "run", json_string(r->folder));
    if (split) failed |= json_object_set_new(o, "split", json_string(split));
    failed |= json_object_set_new(o, "step", json_integer((json_int_t)r->step));
    for (int i = 0; i < r->n; i++)
        failed |= json_object_set_new(o, r->name[i],
                                      isfinite(r->value[i]) ? json_real(r->value[i]) : json_null());
    failed |= json_dumpf(o, stdout, JSON_INDENT(2) | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(9));
    json_decref(o);
    putchar('\n');
    return failed ? dlt_err(err, DLT_E_RESOURCE, "the JSON result could not be written") : DLT_OK;
}

DltStatus dlt_print_result(const DltArgs *args, const DltRunResult *r, const char *split,
                           DltErr *err)
{
    if (args->json) return print_json(r, split, err);
    for (int i = 0; i < r->n; i++)
        printf("%-14s %.6g\n", r->name[i], r->value[i]);
    if (r->checkpoint) printf("%-14s %s\n", "checkpoint", r->checkpoint);
    return DLT_OK;
}

const char *dlt_checkpoint_path(const DltArgs *args, const char *word)
{
    struct stat st;
    if (stat(word, &st) == 0 && S_ISDIR(st.st_mode))
        return dlt_path_join(args->arena, word, "last.bin");
    return word;
}

static DltStatus from_checkpoint(const DltArgs *args, const DltCheckpoint *c, bool without_data,
                                 DltSpec **spec, DltErr *err)
{
    DltStored *stored = NULL;
    int n = c->meta.n_override + args->n_override;
    const char **all = DLT_NEW_ARRAY(args->arena, n + 1, const char *);
    for (int i = 0; i < n; i++)
        all[i] =
            i < c->meta.n_override ? c->meta.override[i] : args->override[i - c->meta.n_override];
    DLT_TRY(dlt_stored_read(args->arena, c, without_data, &stored, err));
    return dlt_spec_read_stored(args->arena, stored, n, all, spec, err);
}

DltStatus dlt_spec_from_checkpoint(const DltArgs *args, const DltCheckpoint *c, DltSpec **spec,
                                   DltErr *err)
{
    return from_checkpoint(args, c, false, spec, err);
}

DltStatus dlt_spec_from_checkpoint_alone(const DltArgs *args, const DltCheckpoint *c,
                                         DltSpec **spec, DltErr *err)
{
    return from_checkpoint(args, c, true, spec, err);
}

json_t *dlt_json_text(const DltText *t)
{
    json_t *whole = json_stringn(t->bytes, t->n);
    if (whole != NULL) return whole;
    DltText clean = dlt_text(t->arena);
    for (size_t i = 0; i < t->n;) {
        size_t n = t->n - i < 4 ? t->n - i : 4;
        json_t *part = NULL;
        while (n > 0 && (part = json_stringn(t->bytes + i, n)) == NULL)
            n--;
        json_decref(part);
        if (n > 0)
            dlt_text_addn(&clean, t->bytes + i, n);
        else
            dlt_text_add(&clean, "\xef\xbf\xbd");
        i += n > 0 ? n : 1;
    }
    return json_stringn(clean.bytes, clean.n);
}
