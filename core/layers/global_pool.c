/* global_avg_pool and global_max_pool: one value for each channel.  x [N,C,H,W] -> y [N,C]. Lin et
 * al. 2014, "Network In Network", section 3.2. */
#include "layers/common.h"
#include "ops/conv.h"
#include "ops/shape_ops.h"

static DltTensor *drop_image_axes(DltBuild *b, DltTensor *y)
{
    return dlt_reshape(b, y, dlt_shape2(dlt_dim(y, 0), dlt_dim(y, 1)));
}

/* One window as large as the image: works in the image's own layout, forward and backward. */
static DltTensor *pool_whole(DltBuild *b, const DltOpts *o, DltTensor *x, bool max)
{
    if (!dlt_layer_wants_image(b, o, x)) return dlt_build_poison(b);
    int64_t h = dlt_dim(x, 2), w = dlt_dim(x, 3);
    DltPool attr = {.max = max, .kernel = {h, w}, .stride = {h, w}};
    return drop_image_axes(b, dlt_pool(b, x, &attr));
}

static DltTensor *build_avg(DltBuild *b, const DltOpts *o, DltTensor *const in[], int n_in)
{
    (void)n_in;
    return pool_whole(b, o, in[0], false);
}

static DltTensor *build_max(DltBuild *b, const DltOpts *o, DltTensor *const in[], int n_in)
{
    (void)n_in;
    return pool_whole(b, o, in[0], true);
}

const DltLayerDef dlt_layer_global_avg_pool = {
    .name = "global_avg_pool",
    .help = "mean of each channel: [N, C, H, W] -> [N, C]",
    .build = build_avg,
};

const DltLayerDef dlt_layer_global_max_pool = {
    .name = "global_max_pool",
    .help = "largest value of each channel: [N, C, H, W] -> [N, C]",
    .build = build_max,
};
