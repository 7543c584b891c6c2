/* The data gradient of a convolution by tiles, times relu's gradient of what was saved. */
#include "cuda/kernels/conv_tile_product.cuh"
#include "cuda/trial.h"

namespace
{

static bool accepts_data(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    const DltConv *a = (const DltConv *)n->attr;
    const DltTensor *dy = n->in[0], *dx = n->out[0], *saved = n->in[2];
    if (!fits_tile(n, dev, a, dy, n->in[1], dx, why_not)) return false;
    if (n->in[0]->dtype == DLT_F32) return dlt_cuda_refuse(why_not, "16 bits only");
    if (n->in[1]->dtype != dy->dtype || (saved && saved->dtype != dy->dtype))
        return dlt_cuda_refuse(why_not, "tensors differ in type");
    if (saved && (a->ep.act_grad.fn != DLT_FN_RELU || saved->layout != DLT_NHWC))
        return dlt_cuda_refuse(why_not, "the gradient of an activation other than relu");
    return has_room<false>(dev, dy->dtype, (int)a->kernel[0], data_tile(a, dx, dy->shape.dim[1]),
                           why_not);
}
static DltStatus launch_data(const DltCall *c, DltErr *err)
{
    const DltNode *n = c->node;
    const DltConv *a = (const DltConv *)n->attr;
    Tile t = data_tile(a, n->out[0], n->in[0]->shape.dim[1]);
    DltStatus s = DLT_OK;
    DLT_HALF_TYPE(n->in[0]->dtype, T, {
        Operands<T> o = {};
        o.in = (const T *)c->in[0], o.w = (const T *)c->in[1], o.out = (T *)c->out[0];
        o.saved = (const T *)c->in[2];
        s = launch_tile<T, true, false, false>(c, err, (int)a->kernel[0], t, o);
    });
    return s;
}

} // namespace

extern "C" {
extern const DltCudaWay dlt_cuda_conv_data_way;
const DltCudaWay dlt_cuda_conv_data_way = {accepts_data, nullptr, launch_data};
DLT_CUDA_KERNEL_EXPORTED(dlt_cuda_conv_data_tile, "conv_bwd_data.cuda.tile", accepts_data, nullptr,
                         launch_data);
}
