/* dltrain diff: how two configs, checkpoints or runs differ: settings, place in the run, metrics,
 * tensors. Settings are compared as resolved, so that two spellings of one value are no difference. */
#include "cmd/leaves.h"

#include <jansson.h>
#include <math.h>

typedef struct Diff {
    DltArena *arena;
    int n; /* differences so far */
} Diff;

static void differ(Diff *d, const char *what, const char *a, const char *b)
{
    if (d->n++ == 0) printf("%-44s %-24s %s\n", "", "first", "second");
    printf("%-44s %-24s %s\n", what, a ? a : "-", b ? b : "-");
}

static void diff_settings(Diff *d, const DltSubject *a, const DltSubject *b)
{
    DltLeaves first = dlt_leaves(d->arena, a->resolved), second = dlt_leaves(d->arena, b->resolved);
    for (int i = 0; i < first.n; i++) {
        const DltLeaf *x = &first.leaf[i], *y = dlt_leaves_find(&second, x->path);
        const char *old = dlt_leaf_text(d->arena, x->value);
        const char *new = y ? dlt_leaf_text(d->arena, y->value) : NULL;
        if (!new || strcmp(old, new) != 0) differ(d, x->path, old, new);
    }
    for (int i = 0; i < second.n; i++) {
        const DltLeaf *y = &second.leaf[i];
        if (!dlt_leaves_find(&first, y->path))
            differ(d, y->path, NULL, dlt_leaf_text(d->arena, y->value));
    }
}

static void diff_number(Diff *d, const char *what, double a, double b)
{
    char old[DLT_NUMBER_TEXT], new[DLT_NUMBER_TEXT];
    if (a == b || (isnan(a) && isnan(b))) return;
    differ(d, what, dlt_number_text(a, old), dlt_number_text(b, new));
}

static double member(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return json_is_number(v) ? json_number_value(v) : (double)NAN;
}

/* The last rows of metrics, without what depends on the machine's speed. */
static void diff_metrics(Diff *d, const DltCheckpoint *a, const DltCheckpoint *b)
{
    static const char *const speed[] = {"time_s", "samples_per_s", "data_wait", NULL};
    json_t *x = a->meta.metrics ? json_loads(a->meta.metrics, 0, NULL) : json_object();
    json_t *y = b->meta.metrics ? json_loads(b->meta.metrics, 0, NULL) : json_object();
    const char *key;
    json_t *value;
    json_object_foreach(x, key, value)
    {
        bool skip = false;
        for (int i = 0; speed[i]; i++)
            skip = skip || strcmp(speed[i], key) == 0;
        if (!skip) diff_number(d, key, member(x, key), member(y, key));
    }
    json_object_foreach(y, key, value)
    {
        if (!json_object_get(x, key)) diff_number(d, key, (double)NAN, member(y, key));
    }
    json_decref(x);
    json_decref(y);
}

/* Largest difference of two f32 tensors of one shape. */
static double largest(const DltCheckpointTensor *a, const DltCheckpointTensor *b)
{
    double max = 0;
    for (int64_t i = 0; i < a->n_bytes / 4; i++) {
        float x, y;
        memcpy(&x, (const char *)a->bytes + 4 * i, 4);
        memcpy(&y, (const char *)b->bytes + 4 * i, 4);
        double by = fabs((double)x - (double)y);
        if (by > max || isnan(by)) max = by;
    }
    return max;
}

static void diff_tensor(Diff *d, const DltCheckpointTensor *a, const DltCheckpointTensor *b)
{
    char old[DLT_SHAPE_TEXT + 16], new[DLT_SHAPE_TEXT + 16], text[DLT_SHAPE_TEXT];
    snprintf(old, sizeof old, "%s %s", dlt_dtype_name(a->dtype), dlt_shape_text(&a->shape, text));
    if (!b) {
        differ(d, a->name, old, NULL);
        return;
    }
    snprintf(new, sizeof new, "%s %s", dlt_dtype_name(b->dtype), dlt_shape_text(&b->shape, text));
    if (a->dtype != b->dtype || !dlt_shape_equal(&a->shape, &b->shape)) {
        differ(d, a->name, old, new);
    } else if (a->crc != b->crc) {
        snprintf(old, sizeof old, "crc32 %08x", a->crc);
        snprintf(new, sizeof new, "%08x", b->crc);
        const char *by = "";
        if (a->dtype == DLT_F32)
            by = dlt_arena_printf(d->arena, ", largest difference %.3g", largest(a, b));
        differ(d, a->name, old, dlt_arena_printf(d->arena, "%s%s", new, by));
    }
}

static void diff_checkpoints(Diff *d, const DltCheckpoint *a, const DltCheckpoint *b)
{
    diff_number(d, "step", (double)a->meta.step, (double)b->meta.step);
    if (strcmp(a->meta.program, b->meta.program) != 0)
        differ(d, "program", a->meta.program, b->meta.program);
    diff_metrics(d, a, b);
    for (int i = 0; i < a->n_tensor; i++)
        diff_tensor(d, &a->tensor[i], dlt_checkpoint_find(b, a->tensor[i].name));
    for (int i = 0; i < b->n_tensor; i++) {
        const DltCheckpointTensor *t = &b->tensor[i];
        char text[DLT_SHAPE_TEXT];
        if (!dlt_checkpoint_find(a, t->name))
            differ(d, t->name, NULL, dlt_shape_text(&t->shape, text));
    }
}

static DltStatus run(const DltArgs *args, DltErr *err)
{
    DltSubject a, b;
    Diff d = {.arena = args->arena};
    DLT_TRY(dlt_subject_read(args, args->word[0], true, &a, err));
    DLT_TRY(dlt_subject_read(args, args->word[1], true, &b, err));
    diff_settings(&d, &a, &b);
    if (a.checkpoint && b.checkpoint)
        diff_checkpoints(&d, a.checkpoint, b.checkpoint);
    else if (a.checkpoint || b.checkpoint)
        printf("only one of the two has been trained; their settings are compared\n");
    printf("%d difference%s\n", d.n, d.n == 1 ? "" : "s");
    return DLT_OK;
}

const DltCommand dlt_command_diff = {
    .name = "diff",
    .words = "A B",
    .help = "how two configs, checkpoints or runs differ",
    .min_word = 2,
    .max_word = 2,
    .options = NULL,
    .run = run,
};
