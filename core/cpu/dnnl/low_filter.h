/* What the filter gradients on matrix tiles share. The sum over pixels of a group of images is one product: pixel
 * (p, q) of image g in the group is term t = (g rows + p) pitch + q, dy has zeros in the gaps, and a shift of the
 * image by (r, s) is an offset in t. One task sums a band of images into sums of its own; the bands, which depend on
 * the shape alone, are added in order.  x [N,H,W,C], dy [N,P,Q,K] bf16, dw [K,C,R,S] f32 */
#ifndef DLT_LOW_FILTER_H
#define DLT_LOW_FILTER_H

#include "cpu/dnnl/amx.h"
#include "ops/conv.h"

typedef struct DltFilter {
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

/* True when the node has one group, no dilation, strides of 1 or 2, and bf16 images in NHWC. */
bool dlt_filter_fits(const DltNode *n);
/* Sizes; even: pitch must be. */
DltFilter dlt_filter_of(const DltNode *n, bool even);
/* Books count elements of `bytes` each in a band's scratch, 64-byte aligned; returns where. */
size_t dlt_filter_book(DltFilter *f, int64_t count, size_t bytes);
/* dy of images [n, n + count) of a group into scratch as [terms][K]; gaps and missing images are zero, which the first
 * call of a band sees to. */
void dlt_filter_copy_dy(const DltFilter *f, char *band, int64_t n, int64_t count, bool first);
/* Images [*from, *to) of band b. */
void dlt_filter_band(const DltFilter *f, int64_t b, int64_t *from, int64_t *to);

#endif
