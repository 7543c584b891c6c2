/* dltrain predict: one line of class, probabilities or values for each sample of a file, as CSV or JSON lines. The
 * file is read by the format of the checkpoint's data.train, so its columns and shapes are checked against it. */
#include "cmd/cmd.h"

#include <jansson.h>

typedef struct Output {
    const DltDataset *train;
    int64_t n_out;
    bool classes, json;
} Output;

static const char *class_name(const Output *o, int64_t i, char buf[32])
{
    if (o->train->class_name) return o->train->class_name[i];
    snprintf(buf, 32, "%lld", (long long)i);
    return buf;
}

static void print_head(const Output *o)
{
    char name[32];
    printf("file,sample%s", o->classes ? ",class" : "");
    for (int64_t i = 0; i < o->n_out; i++) {
        if (o->classes)
            printf(",%s", class_name(o, i, name));
        else
            printf(",value_%lld", (long long)i);
    }
    putchar('\n');
}

static int64_t best(const float *v, int64_t n)
{
    int64_t k = 0;
    for (int64_t i = 1; i < n; i++)
        if (v[i] > v[k]) k = i;
    return k;
}

static void print_csv(const Output *o, const char *file, int64_t sample, const float *v)
{
    char name[32];
    printf("%s,%lld", file, (long long)sample);
    if (o->classes) printf(",%s", class_name(o, best(v, o->n_out), name));
    for (int64_t i = 0; i < o->n_out; i++)
        printf(",%.6g", (double)v[i]);
    putchar('\n');
}

static DltStatus print_json(const Output *o, const char *file, int64_t sample, const float *v,
                            DltErr *err)
{
    char name[32];
    json_t *values = json_array(),
           *row = json_pack("{s:s,s:I}", "file", file, "sample", (json_int_t)sample);
    int failed = !row || !values;
    if (o->classes)
        failed |=
            json_object_set_new(row, "class", json_string(class_name(o, best(v, o->n_out), name)));
    for (int64_t i = 0; i < o->n_out; i++)
        failed |= json_array_append_new(values, json_real((double)v[i]));
    failed |= json_object_set_new(row, o->classes ? "probability" : "value", values);
    failed |= json_dumpf(row, stdout, JSON_COMPACT | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(7));
    json_decref(row);
    putchar('\n');
    return failed ? dlt_err(err, DLT_E_RESOURCE, "the JSON result could not be written") : DLT_OK;
}

/* The file as a data set of the training set's format; its path replaces the main argument. */
static DltStatus open_file(const DltArgs *args, const DltSpec *spec, const char *file,
                           DltDataset *ds, DltErr *err)
{
    const DltSource *train = &spec->data.source[DLT_TRAIN];
    DltOpts o = train->opts;
    DltDataset like = train->ds;
    like.x_only = true;
    void *options = dlt_arena_new_bytes(args->arena, 1, train->def->opt_size);
    memcpy(options, o.v, train->def->opt_size);
    *(const char **)(void *)((char *)options + train->def->fields[0].offset) =
        dlt_path_absolute(args->arena, file);
    o.v = options;
    DLT_TRY(train->def->open(args->arena, &o, spec->folder, &like, ds, err));
    ds->def = train->def;
    return train->def->load ? train->def->load(args->arena, ds, err) : DLT_OK;
}

static DltStatus predict_file(const DltArgs *args, DltSpec *spec, const DltCheckpoint *c,
                              const char *file, DltErr *err)
{
    DltDataset ds = {.n = 0};
    DltRunOptions options = dlt_run_options(args);
    DLT_TRY(open_file(args, spec, file, &ds, err));
    int64_t x_bytes = dlt_dataset_x_bytes(&ds);
    char *x = dlt_arena_new_bytes(args->arena, (size_t)ds.n, (size_t)x_bytes);
    char *y = dlt_arena_new_bytes(args->arena, 1, (size_t)dlt_dataset_y_bytes(&ds) + 1);
    for (int64_t i = 0; i < ds.n; i++)
        DLT_TRY(ds.def->read(&ds, &i, 1, x + i * x_bytes, y, err));
    DltPrediction p = {.x = x, .n = ds.n};
    Output o = {.train = &spec->data.source[DLT_TRAIN].ds,
                .classes = spec->loss->target == DLT_TARGET_CLASS,
                .json = args->json};
    DLT_TRY(dlt_predict(args->arena, spec, c, &p, &options, err));
    o.n_out = p.n_out;
    if (!o.json) print_head(&o);
    for (int64_t i = 0; i < ds.n; i++) {
        if (o.json)
            DLT_TRY(print_json(&o, file, i, p.out + i * o.n_out, err));
        else
            print_csv(&o, file, i, p.out + i * o.n_out);
    }
    if (ds.def->close) ds.def->close(&ds);
    return DLT_OK;
}

static DltStatus run(const DltArgs *args, DltErr *err)
{
    DltCheckpoint *c = NULL;
    DltSpec *spec = NULL;
    DLT_TRY(dlt_checkpoint_read(args->arena, dlt_checkpoint_path(args, args->word[0]), &c, err));
    if (c->meta.data != NULL && c->meta.tokenizer != NULL)
        DLT_TRY(dlt_spec_from_checkpoint_alone(args, c, &spec, err));
    else
        DLT_TRY(dlt_spec_from_checkpoint(args, c, &spec, err));
    for (int i = 1; i < args->n_word && spec->data.mask.share > 0; i++)
        DLT_TRY(dlt_fill_masks(args, spec, c, args->word[i], err));
    if (spec->data.mask.share > 0) return DLT_OK;
    if (spec->data.source[DLT_TRAIN].ds.vocab > 0)
        return dlt_err(err, DLT_E_CONFIG,
                       "%s: a model of text predicts the next token; `dltrain generate` shows them",
                       c->path);
    DLT_TRY(dlt_spec_load_data(spec, 0, err)); /* what the training split decides for all samples */
    for (int i = 1; i < args->n_word; i++)
        DLT_TRY(predict_file(args, spec, c, args->word[i], err));
    return DLT_OK;
}

const DltCommand dlt_command_predict = {
    .name = "predict",
    .words = "CKPT FILE...",
    .help = "class or values of every sample of files",
    .min_word = 2,
    .max_word = -1,
    .options = (const char *const[]){"device", "threads", "json", NULL},
    .run = run,
};
