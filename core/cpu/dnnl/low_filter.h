/* What the filter gradients on matrix tiles share. The sum over pixels of a group of images is one product: pixel
 * (p, q) of image g in the group is term t = (g rows + p) pitch + q, dy has zeros in the gaps, and a shift of the
 * image by (r, s) is an offset in t. One task sums a band of images into sums of its own; the bands, which depend on
 * the shape alone, are added in order.  x [N,H,W,C], dy [N,P,Q,K] bf16, dw [K,C,R,S] f32 */
#ifndef DLT_LOW_FILTER_H
#define DLT_LOW_FILTER_H

#include "cpu/dnnl/amx.h"
#include "ops/conv.h"

typedef struct DltFilterParts DltFilterParts;
typedef struct DltFilter {
    const DltFilterParts *parts;
    const DltConv *a;
    const uint16_t *x, *dy;
    float *dw;
    char *work;
    int64_t n, c, h, w, k, p, q;
    int64_t taps, k_tiles, cols;       /* R S; of filters; width of the sums in elements */
    int64_t rows, pitch, group, bands; /* of an image in t; images a product; tasks */
    int64_t shift_h, shift_w;          /* the last tap's, in outputs: (R - 1) / stride */
    int64_t terms, steps;              /* of a product; terms = 32 steps */
    size_t dy_at, dy_tiles_at, x_at, x_tiles_at, sums_at, band_bytes; /* in a band's scratch */
} DltFilter;

/* What one kernel adds to the frame. */
struct DltFilterParts {
    bool even; /* pitch must be */
    void (*book)(DltFilter *f);
    /* Images [n, n + count) of a group into their packed form. */
    void (*pack_x)(const DltFilter *f, char *band, int64_t n, int64_t count);
    DltAmxForm dy_form; /* DLT_AMX_A_TURN or DLT_AMX_B */
    void (*multiply)(const DltFilter *f, char *band, bool add);
    DltTask gather; /* dw of filters [begin, end) from the sums of the bands, in order */
};

/* True when the node has one group, no dilation, strides of 1 or 2, and bf16 images in NHWC. */
bool dlt_filter_fits(const DltNode *n);
/* Books count elements of `bytes` each in a band's scratch, 64-byte aligned; returns where. */
size_t dlt_filter_book(DltFilter *f, int64_t count, size_t bytes);
size_t dlt_filter_work(const DltNode *n, const DltFilterParts *parts);
void dlt_filter_run(const DltCall *c, const DltFilterParts *parts);
/* The sums of band b. */
const float *dlt_filter_sums(const DltFilter *f, int64_t b);

#endif
