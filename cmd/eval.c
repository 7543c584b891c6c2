/* dltrain eval: metrics of a checkpoint, from the file alone. */
#include "cmd/cmd.h"

#include <jansson.h>
#include <math.h>

/* --data SPLIT, else the first of test, val, train that the config has. */
static DltStatus choose_split(const DltArgs *args, const DltSpec *spec, int *split, DltErr *err)
{
    static const int order[] = {DLT_TEST, DLT_VAL, DLT_TRAIN};
    for (int i = 0; i < DLT_N_SPLIT; i++) {
        const DltSource *s = &spec->data.source[order[i]];
        bool there = s->def || s->fraction > 0;
        bool asked = args->data && strcmp(args->data, dlt_split_name[order[i]]) == 0;
        if (asked && !there)
            return dlt_err(err, DLT_E_CONFIG, "--data %s: the config has no data.%s", args->data,
                           args->data);
        if (asked || (!args->data && there)) {
            *split = order[i];
            return DLT_OK;
        }
    }
    return dlt_err(err, DLT_E_CONFIG, "--data %s: known splits: train, val, test", args->data);
}

/* --check: every metric of the split that the checkpoint stored must come out again. Sums of floats
 * may differ in their last bits between devices, hence the relative 1e-5. */
static DltStatus compare(const DltCheckpoint *c, const DltRunResult *r, const char *split,
                         DltErr *err)
{
    static const double tolerance = 1e-5;
    json_t *stored = c->meta.metrics ? json_loads(c->meta.metrics, 0, NULL) : NULL;
    int n = 0;
    DltStatus status = DLT_OK;
    for (int i = 0; i < r->n && status == DLT_OK; i++) {
        const json_t *v = json_object_get(stored, r->name[i]);
        if (!json_is_number(v) || strncmp(r->name[i], split, strlen(split)) != 0) continue;
        n++;
        double was = json_number_value(v), is = r->value[i];
        if (!(fabs(was - is) <= tolerance * fmax(1.0, fabs(was))))
            status =
                dlt_err(err, DLT_E_CHECKPOINT, "%s: %s is %.9g here but the checkpoint says %.9g",
                        c->path, r->name[i], is, was);
    }
    json_decref(stored);
    if (status == DLT_OK && n == 0)
        return dlt_err(
            err, DLT_E_CHECKPOINT,
            "%s: --check: the checkpoint stores no metric of the %s split; --data names another",
            c->path, split);
    return status;
}

static DltStatus run(const DltArgs *args, DltErr *err)
{
    DltCheckpoint *c = NULL;
    DltSpec *spec = NULL;
    int split = 0;
    DLT_TRY(dlt_checkpoint_read(args->arena, dlt_checkpoint_path(args, args->word[0]), &c, err));
    DLT_TRY(dlt_spec_from_checkpoint(args, c, &spec, err));
    DLT_TRY(choose_split(args, spec, &split, err));
    DltRunOptions options = dlt_run_options(args);
    DltRunResult result = {.n = 0};
    DLT_TRY(dlt_evaluate(args->arena, spec, c, split, &options, &result, err));
    if (args->check) DLT_TRY(compare(c, &result, dlt_split_name[split], err));
    return dlt_print_result(args, &result, dlt_split_name[split], err);
}

const DltCommand dlt_command_eval = {
    .name = "eval",
    .words = "CKPT [key=value...]",
    .help = "metrics of a checkpoint, from the file alone",
    .min_word = 1,
    .max_word = 1,
    .options = (const char *const[]){"data", "device", "threads", "check", "eager", "json", NULL},
    .run = run,
};
