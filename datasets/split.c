/* `val: 10% of train`: a sample is held out by a hash of its content and target, so equal samples stay
 * on one side, and neither the order of the files nor the rest of the set moves a sample across.
 * Windows of tokens are neighbours in one text, where a hash would put the two halves of a sentence
 * on different sides: there the end of the text is held out, as a whole. */
#include "base/rng.h"
#include "datasets/reader.h"
#include <math.h>

typedef struct Held {
    uint64_t limit; /* hashes below are held out */
    int64_t x_bytes, y_bytes, n;
    bool *held;
} Held;

static DltStatus mark_held(const DltSamples *c, DltErr *err)
{
    (void)err;
    Held *h = c->ctx;
    const char *x = c->x, *y = c->y;
    for (int64_t i = 0; i < c->n; i++) {
        uint64_t hash = dlt_hash(x + i * h->x_bytes, (size_t)h->x_bytes, 0);
        hash = dlt_hash(y + i * h->y_bytes, (size_t)h->y_bytes, hash);
        h->held[c->first + i] = hash < h->limit;
        h->n += hash < h->limit;
    }
    return DLT_OK;
}

/* The last `fraction` of the windows, to the nearest whole number. */
static void hold_tail(Held *h, int64_t n, double fraction)
{
    h->n = (int64_t)((double)n * fraction + 0.5);
    for (int64_t i = n - h->n; i < n; i++)
        h->held[i] = true;
}

DltStatus dlt_split_fraction(DltArena *arena, const DltDataset *ds, double fraction,
                             DltSplit *train, DltSplit *held_out, DltErr *err)
{
    DLT_BUG_ON(!(fraction > 0 && fraction < 1));
    DltSplit all = dlt_split_all(arena, ds);
    Held h = {.limit = (uint64_t)ldexp(fraction, 64),
              .x_bytes = dlt_dataset_x_bytes(ds),
              .y_bytes = dlt_dataset_y_bytes(ds),
              .held = dlt_arena_try(arena, (size_t)all.n, sizeof(bool))};
    int64_t *id = dlt_arena_try(arena, (size_t)all.n, sizeof *id);
    if (h.held == NULL || id == NULL)
        return dlt_err(err, DLT_E_RESOURCE, "out of memory for splitting %s", ds->path);
    if (ds->vocab > 0)
        hold_tail(&h, all.n, fraction);
    else
        DLT_TRY(dlt_samples_each(&all, mark_held, &h, err));
    if (h.n == 0 || h.n == all.n)
        return dlt_err_at(err, DLT_E_DATA, (DltMark){.file = ds->path},
                          "%g%% of %lld samples leaves %lld to train on and %lld to hold out; both "
                          "must have some",
                          100 * fraction, (long long)all.n, (long long)(all.n - h.n),
                          (long long)h.n);
    *train = (DltSplit){ds, all.n - h.n, id};
    *held_out = (DltSplit){ds, h.n, id + train->n};
    int64_t n_train = 0, n_out = 0;
    for (int64_t i = 0; i < all.n; i++) {
        int64_t sample = all.id != NULL ? all.id[i] : i;
        if (h.held[i])
            id[train->n + n_out++] = sample;
        else
            id[n_train++] = sample;
    }
    return DLT_OK;
}
