/* Samples that stand in two sets: the hashes of one, sorted, and those of the other looked up. Equal
 * 64-bit hashes are taken for equal samples. */
#include "base/rng.h"
#include "base/sys.h"
#include "datasets/reader.h"

#include <string.h>

typedef struct Hashes {
    uint64_t *v;
    int64_t x_bytes;
} Hashes;

/* Eight bytes at a time in four lanes, where dlt_hash's step a byte takes 60 ms for Fashion-MNIST. High bits fall back
 * down behind each product, or two changes there would undo each other. */
static uint64_t hash_sample(const char *x, size_t n)
{
    enum { N_LANE = 4 };
    uint64_t lane[N_LANE] = {1, 2, 3, 4}, word[N_LANE];
    size_t at = 0;
    for (; at + sizeof word <= n; at += sizeof word) {
        memcpy(word, x + at, sizeof word);
        for (int k = 0; k < N_LANE; k++) {
            uint64_t h = (lane[k] ^ word[k]) * 0x9E3779B97F4A7C15u;
            lane[k] = h ^ h >> 32;
        }
    }
    return dlt_hash(lane, sizeof lane, dlt_hash(x + at, n - at, 0));
}

static DltStatus hash_samples(const DltSamples *c, DltErr *err)
{
    (void)err;
    Hashes *h = c->ctx;
    for (int64_t i = 0; i < c->n; i++)
        h->v[c->first + i] = hash_sample((const char *)c->x + i * h->x_bytes, (size_t)h->x_bytes);
    return DLT_OK;
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void look_up(const Hashes *a, int64_t n_a, const Hashes *b, int64_t n_b, int64_t *n,
                    int64_t *first)
{
    qsort(a->v, (size_t)n_a, sizeof *a->v, by_value);
    for (int64_t i = 0; i < n_b; i++) {
        if (bsearch(&b->v[i], a->v, (size_t)n_a, sizeof *a->v, by_value) == NULL) continue;
        if (*n == 0) *first = i;
        ++*n;
    }
}

DltStatus dlt_samples_shared(const DltSplit *a, const DltSplit *b, int64_t *n, int64_t *first,
                             DltErr *err)
{
    *n = 0;
    *first = -1;
    Hashes ha = {dlt_sys_alloc((size_t)a->n * sizeof *ha.v), dlt_dataset_x_bytes(a->ds)};
    Hashes hb = {dlt_sys_alloc((size_t)b->n * sizeof *hb.v), dlt_dataset_x_bytes(b->ds)};
    DltStatus status = ha.v != NULL && hb.v != NULL
                           ? DLT_OK
                           : dlt_err(err, DLT_E_RESOURCE, "out of memory for comparing %s and %s",
                                     a->ds->path, b->ds->path);
    if (status == DLT_OK) status = dlt_samples_each(a, hash_samples, &ha, err);
    if (status == DLT_OK) status = dlt_samples_each(b, hash_samples, &hb, err);
    if (status == DLT_OK) look_up(&ha, a->n, &hb, b->n, n, first);
    dlt_sys_free(ha.v);
    dlt_sys_free(hb.v);
    if (status == DLT_OK && *first >= 0 && b->id != NULL) *first = b->id[*first];
    return status;
}
