/* Holding out a share of a data set: by a hash of each sample's content, so that equal samples stay on one
 * side, and neither order nor the rest of the set changes where a sample falls. */
#include "api/dataset.h"

#include "base/rng.h"

/* A sample is held out when its hash, as a number in [0, 1), is below the fraction. */
static bool is_held_out(uint64_t hash, double fraction)
{
    return (double)(hash >> 11) * 0x1p-53 < fraction;
}

DltStatus dlt_split_fraction(DltArena *arena, const DltDataset *ds, double fraction,
                             DltSplit *train, DltSplit *held_out, DltErr *err)
{
    size_t x_bytes = (size_t)dlt_dataset_x_bytes(ds), y_bytes = (size_t)dlt_dataset_y_bytes(ds);
    unsigned char *sample = dlt_arena_new_bytes(arena, 1, x_bytes + y_bytes + 1);
    int64_t *in = DLT_NEW_ARRAY(arena, ds->n, int64_t), *out = DLT_NEW_ARRAY(arena, ds->n, int64_t);
    *train = (DltSplit){.ds = ds, .id = in};
    *held_out = (DltSplit){.ds = ds, .id = out};
    for (int64_t i = 0; i < ds->n; i++) {
        DLT_TRY(ds->def->read(ds, &i, 1, sample, sample + x_bytes, err));
        uint64_t hash = dlt_hash(sample, x_bytes + y_bytes, 0);
        if (is_held_out(hash, fraction))
            out[held_out->n++] = i;
        else
            in[train->n++] = i;
    }
    if (train->n > 0 && held_out->n > 0) return DLT_OK;
    return dlt_err(
        err, DLT_E_DATA,
        "%s: holding out %g%% of %lld samples leaves %lld for training and %lld held out", ds->path,
        100 * fraction, (long long)ds->n, (long long)train->n, (long long)held_out->n);
}
