/* Max pooling of one image, channels last, with windows side by side: what a convolution does to its outputs before it
 * writes them, and its gradients to what they read. */
#ifndef DLT_POOL_IMAGE_H
#define DLT_POOL_IMAGE_H

#include "ops/conv.h"

/* Forward, f32: x, the image whose rows lie `pitch` pixels apart, to y [p][q][c] and index. Backward, bf16: x [p][q][c] and
 * index to y, an image like that; pixels outside of all windows are left alone. c in eights. */
typedef struct DltPoolImage {
    const DltPool *a;
    int64_t pitch, p, q, c;
    const void *x;
    void *y;
    uint8_t *index;
} DltPoolImage;

/* True when every pixel belongs to one window or none. */
bool dlt_pool_is_tiled(const DltPool *a);
void dlt_pool_image(const DltPoolImage *m, bool back);

#endif
