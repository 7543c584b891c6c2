/* The data gradient of a convolution by tiles, from that of the 2x2 max pooling behind it. */
#include "cuda/kernels/conv_tile_product.cuh"

namespace
{

static bool accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    const DltConvPool *a = (const DltConvPool *)n->attr;
    const DltTensor *dy = n->in[0], *dx = n->out[0];
    if (!fits_tile(n, dev, &a->conv, dy, n->in[2], dx, why_not) ||
        !pools_by_two(&a->pool, n->in[1], why_not))
        return false;
    if (n->in[2]->dtype != dy->dtype) return dlt_cuda_refuse(why_not, "tensors differ in type");
    Tile t = data_tile(&a->conv, dx, dy->shape.dim[1]);
    return has_room<false>(dev, dy->dtype, (int)a->conv.kernel[0], t, why_not);
}
static DltStatus launch(const DltCall *c, DltErr *err)
{
    const DltNode *n = c->node;
    const DltConvPool *a = (const DltConvPool *)n->attr;
    Tile t = data_tile(&a->conv, n->out[0], n->in[0]->shape.dim[1]);
    t.ph = (int)n->in[0]->shape.dim[2], t.pw = (int)n->in[0]->shape.dim[3];
    DltStatus s = DLT_OK;
    DLT_FLOAT_TYPE(n->in[0]->dtype, T, {
        Operands<T> o = {};
        o.in = (const T *)c->in[0], o.at = (const uint8_t *)c->in[1], o.w = (const T *)c->in[2];
        o.out = (T *)c->out[0];
        s = launch_tile<T, true, true, false>(c, err, (int)a->conv.kernel[0], t, o);
    });
    return s;
}

} // namespace

extern "C" {
DLT_CUDA_KERNEL_EXPORTED(dlt_cuda_conv_pool_data_tile, "conv_pool_bwd_data.cuda.tile", accepts,
                         nullptr, launch);
}
