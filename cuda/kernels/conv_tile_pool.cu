/* Convolution forward by tiles, with bias, relu and 2x2 max pooling. */
#include "cuda/kernels/conv_tile_product.cuh"

namespace
{

static bool accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    const DltConvPool *a = (const DltConvPool *)n->attr;
    const DltTensor *x = n->in[0], *y = n->out[0];
    if (!fits_tile(n, dev, &a->conv, x, n->in[1], y, why_not) ||
        !pools_by_two(&a->pool, n->out[1], why_not))
        return false;
    if (n->in[1]->dtype != x->dtype) return dlt_cuda_refuse(why_not, "tensors differ in type");
    Tile t = forward_tile(&a->conv, x, y->shape.dim[1]);
    return has_room<true>(dev, x->dtype, (int)a->conv.kernel[0], t, why_not);
}
static DltStatus launch(const DltCall *c, DltErr *err)
{
    const DltNode *n = c->node;
    const DltConvPool *a = (const DltConvPool *)n->attr;
    Tile t = forward_tile(&a->conv, n->in[0], n->out[0]->shape.dim[1]);
    DltStatus s = DLT_OK;
    DLT_FLOAT_TYPE(n->in[0]->dtype, T, {
        Operands<T> o = {};
        o.in = (const T *)c->in[0], o.w = (const T *)c->in[1], o.out = (T *)c->out[0];
        o.index = (uint8_t *)c->out[1];
        o.bias = input(c, 2);
        o.relu = a->pool.ep_relu;
        s = launch_tile<T, false, false, true>(c, err, (int)a->conv.kernel[0], t, o);
    });
    return s;
}

} // namespace

extern "C" {
DLT_CUDA_KERNEL_EXPORTED(dlt_cuda_conv_pool_fwd_tile, "conv_pool_fwd.cuda.tile", accepts, nullptr,
                         launch);
}
