/* Convolution forward by tiles, with bias and relu. */
#include "cuda/kernels/conv_tile_product.cuh"
#include "cuda/trial.h"

namespace
{

static bool accepts_fwd(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    const DltConv *a = (const DltConv *)n->attr;
    const DltTensor *x = n->in[0], *y = n->out[0];
    if (!fits_tile(n, dev, a, x, n->in[1], y, why_not)) return false;
    if (n->in[0]->dtype == DLT_F32) return dlt_cuda_refuse(why_not, "16 bits only");
    if (n->in[1]->dtype != x->dtype) return dlt_cuda_refuse(why_not, "tensors differ in type");
    if (n->out[1] || (a->ep.act.fn != DLT_FN_NONE && a->ep.act.fn != DLT_FN_RELU))
        return dlt_cuda_refuse(why_not, "an activation other than relu");
    return has_room<false>(dev, x->dtype, (int)a->kernel[0], forward_tile(a, x, y->shape.dim[1]),
                           why_not);
}
static DltStatus launch_fwd(const DltCall *c, DltErr *err)
{
    const DltNode *n = c->node;
    const DltConv *a = (const DltConv *)n->attr;
    Tile t = forward_tile(a, n->in[0], n->out[0]->shape.dim[1]);
    DltStatus s = DLT_OK;
    DLT_HALF_TYPE(n->in[0]->dtype, T, {
        Operands<T> o = {};
        o.in = (const T *)c->in[0], o.w = (const T *)c->in[1], o.out = (T *)c->out[0];
        o.bias = input(c, 2);
        o.relu = a->ep.act.fn == DLT_FN_RELU;
        s = launch_tile<T, false, false, false>(c, err, (int)a->kernel[0], t, o);
    });
    return s;
}

} // namespace

extern "C" {
extern const DltCudaWay dlt_cuda_conv_fwd_way;
const DltCudaWay dlt_cuda_conv_fwd_way = {accepts_fwd, nullptr, launch_fwd};
DLT_CUDA_KERNEL_EXPORTED(dlt_cuda_conv_fwd_tile, "conv_fwd.cuda.tile", accepts_fwd, nullptr,
                         launch_fwd);
}
