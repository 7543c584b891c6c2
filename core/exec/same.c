/* Whether two checkpoints are of the same state of a run: every tensor to the bit, and the numbers that
 * decide how it goes on. Clock times may differ. */
#include "exec/checkpoint.h"
#include <inttypes.h>

typedef struct Number {
    const char *name;
    int64_t a, b;
} Number;

/* Doubles as bits: two NaN are the same, 0 and -0 are not. */
static int64_t bits(double v)
{
    int64_t b;
    memcpy(&b, &v, sizeof b);
    return b;
}

static DltStatus same_numbers(const DltCheckpoint *a, const DltCheckpoint *b, DltErr *err)
{
    const DltCheckpointMeta *x = &a->meta, *y = &b->meta;
    const Number numbers[] = {
        {"step", x->step, y->step},
        {"position in the data", x->position, y->position},
        {"number of batches", x->batch_count, y->batch_count},
        {"seed", (int64_t)x->seed, (int64_t)y->seed},
        {"best value", bits(x->best_value), bits(y->best_value)},
        {"best step", x->best_step, y->best_step},
        {"evaluations without improvement", x->bad_evals, y->bad_evals},
        {"evaluations judged", x->n_judged, y->n_judged},
        {"best value of early stopping", bits(x->stop_best), bits(y->stop_best)},
        {"loss scale", bits(x->loss_scale), bits(y->loss_scale)},
        {"updates since the loss scale changed", x->good_steps, y->good_steps},
        {"updates left out for an overflow", x->overflows, y->overflows},
        {"updates left out", x->nonfinite_skipped, y->nonfinite_skipped},
        {"rollbacks", x->rollbacks, y->rollbacks},
        {"step of the last row", x->reported, y->reported},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (numbers[i].a != numbers[i].b)
            return dlt_err(err, DLT_E_CHECKPOINT,
                           "%s differs: %" PRId64 " in %s, %" PRId64 " in %s", numbers[i].name,
                           numbers[i].a, a->path, numbers[i].b, b->path);
    const char *left = x->losses != NULL ? x->losses : "";
    if (strcmp(left, y->losses != NULL ? y->losses : "") == 0) return DLT_OK;
    return dlt_err(err, DLT_E_CHECKPOINT, "the window of losses of %s and %s differs", a->path,
                   b->path);
}

/* Index of the first byte that differs, -1: none. */
static int64_t first_difference(const DltCheckpointTensor *a, const DltCheckpointTensor *b)
{
    const char *x = a->bytes, *y = b->bytes;
    if (memcmp(x, y, (size_t)a->n_bytes) == 0) return -1;
    int64_t i = 0;
    while (x[i] == y[i])
        i++;
    return i;
}

DltStatus dlt_checkpoint_same(const DltCheckpoint *a, const DltCheckpoint *b, DltErr *err)
{
    if (a->n_tensor != b->n_tensor)
        return dlt_err(err, DLT_E_CHECKPOINT, "%s has %d tensors, %s has %d", a->path, a->n_tensor,
                       b->path, b->n_tensor);
    for (int i = 0; i < a->n_tensor; i++) {
        const DltCheckpointTensor *x = &a->tensor[i], *y = dlt_checkpoint_find(b, x->name);
        if (y == NULL || y->dtype != x->dtype || !dlt_shape_equal(&x->shape, &y->shape))
            return dlt_err(err, DLT_E_CHECKPOINT, "%s: %s has no tensor of that shape", x->name,
                           b->path);
        int64_t at = first_difference(x, y);
        if (at >= 0)
            return dlt_err(err, DLT_E_CHECKPOINT, "%s differs from element %" PRId64 " on", x->name,
                           at / (int64_t)dlt_dtype_bytes(x->dtype));
    }
    return same_numbers(a, b, err);
}
