/* Convolutions through cuDNN, and the lists of all convolution kernels. The library takes NHWC
 * images, filters [K, R, S, C] and one type; whatever comes otherwise (plain filters and first
 * images, f32 filter gradients of 16-bit products, channel counts the tensor cores do not like)
 * goes through a copy in scratch in the order the library wants. */
#include "ops/conv.h"
#include "cuda/branch.h"
#include "cuda/dnn.h"
#include "cuda/kernels/kernels.h"
#include "cuda/trial.h"
#include "cuda/tune.h"

/* The three operands by their role in the forward direction. */
enum { X, W, Y, N_ROLE };

typedef struct Operands {
    const DltTensor *t[N_ROLE];
    int out; /* the one that is written */
    DltDnnKind kind;
} Operands;

typedef struct State {
    DltDnnPlan *plan;
    DltDtype dtype;
    int64_t c_pad; /* channels of x in scratch (a group's, for w) */
    bool fused;    /* bias and relu are inside the plan */
    bool staged[N_ROLE];
    size_t at[N_ROLE]; /* scratch offsets of the staged ones */
} State;

static Operands operands_of(const DltNode *n)
{
    if (n->kind == DLT_OP_conv_fwd)
        return (Operands){{n->in[0], n->in[1], n->out[0]}, Y, DLT_DNN_FWD};
    if (n->kind == DLT_OP_conv_bwd_data)
        return (Operands){{n->out[0], n->in[1], n->in[0]}, X, DLT_DNN_DATA};
    return (Operands){{n->in[0], n->out[0], n->in[1]}, W, DLT_DNN_FILTER};
}

static bool is_nhwc(const DltTensor *t)
{
    const int64_t *d = t->shape.dim;
    return t->layout == DLT_NHWC || d[1] == 1 || d[2] * d[3] == 1;
}

/* Tensor cores read 16 bytes of channels at once: a first image's 1 or 3 channels are filled up. */
static int64_t padded_channels(const DltNode *n, const DltDevice *dev, DltDtype dtype, int64_t c)
{
    int64_t k = dtype == DLT_F32 ? 4 : 8;
    if (((const DltConv *)n->attr)->groups != 1 || (dtype == DLT_F32 && !dev->option.tf32))
        return c;
    return (c + k - 1) / k * k;
}

static State state_of(const DltNode *n, const DltDevice *dev)
{
    Operands o = operands_of(n);
    State s = {.dtype = n->in[0]->dtype};
    int64_t c = o.t[X]->shape.dim[1];
    s.c_pad = padded_channels(n, dev, s.dtype, c);
    for (int i = 0; i < N_ROLE; i++)
        s.staged[i] = !is_nhwc(o.t[i]) || o.t[i]->dtype != s.dtype || (i != Y && s.c_pad != c);
    return s;
}

static DltDnnProblem problem_of(const DltNode *n, const State *s)
{
    const DltConv *a = n->attr;
    Operands o = operands_of(n);
    const int64_t *x = o.t[X]->shape.dim, *y = o.t[Y]->shape.dim;
    DltDnnProblem p = {.kind = o.kind,
                       .dtype = s->dtype,
                       .n = x[0],
                       .c = s->c_pad,
                       .h = x[2],
                       .w = x[3],
                       .k = y[1],
                       .p = y[2],
                       .q = y[3],
                       .r = a->kernel[0],
                       .s = a->kernel[1],
                       .groups = a->groups};
    for (int i = 0; i < 2; i++) {
        p.stride[i] = a->stride[i];
        p.dilation[i] = a->dilation[i];
    }
    for (int i = 0; i < 4; i++)
        p.pad[i] = a->pad[i];
    return p;
}

static bool has_finish(const DltNode *n)
{
    const DltEpilogue *e = &((const DltConv *)n->attr)->ep;
    if (n->kind == DLT_OP_conv_bwd_filter) return false;
    if (n->kind == DLT_OP_conv_bwd_data) return n->in[2] != NULL;
    return n->in[2] || e->act.fn != DLT_FN_NONE || e->save_pre;
}

static bool same_as(const DltTensor *t, const DltTensor *out)
{
    return !t || (t->layout == out->layout && t->dtype == out->dtype);
}

static bool accepts_dnn(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    if (!dlt_cuda_accepts_any(n, dev, why_not)) return false;
    const int64_t *pad = ((const DltConv *)n->attr)->pad;
    /* cuDNN 9.14 offers engines for it that take the first for both, read outside and answer wrongly */
    if (pad[0] != pad[1] || pad[2] != pad[3])
        return dlt_cuda_refuse(why_not, "the padding differs on both sides");
    Operands o = operands_of(n);
    State s = state_of(n, dev);
    if (o.kind != DLT_DNN_FILTER && o.t[o.out]->dtype != s.dtype)
        return dlt_cuda_refuse(why_not, "the result is not %s", dlt_dtype_name(s.dtype));
    const DltTensor *like = n->kind == DLT_OP_conv_fwd ? n->out[1] : n->in[2];
    if (o.kind != DLT_DNN_FILTER && like && (n->kind == DLT_OP_conv_bwd_data || n->out[1]) &&
        (s.staged[o.out] || !same_as(like, o.t[o.out])))
        return dlt_cuda_refuse(why_not, "an epilogue needs %s in NHWC", o.t[o.out]->name);
    DltDnnProblem p = problem_of(n, &s);
    return dlt_dnn_can((DltDevice *)(uintptr_t)dev, &p, why_not);
}

static DltStatus prepare_dnn(const DltNode *n, DltDevice *dev, DltPrep *prep, DltErr *err)
{
    const DltEpilogue *e = &((const DltConv *)n->attr)->ep;
    Operands o = operands_of(n);
    State *s = DLT_NEW(prep->arena, State);
    *s = state_of(n, dev);
    prep->state = s;
    DltDnnProblem p = problem_of(n, s);
    DltWhy why;
    if (o.kind == DLT_DNN_FWD && n->in[2] && n->in[2]->dtype == s->dtype && !e->save_pre &&
        e->act.fn == DLT_FN_RELU) {
        p.bias_relu = true;
        s->fused = dlt_dnn_can(dev, &p, &why);
        p.bias_relu = s->fused;
    }
    size_t bytes = 0;
    DLT_TRY(dlt_dnn_prepare(dev, prep->arena, &p, &s->plan, &bytes, err));
    for (int i = 0; i < N_ROLE; i++) {
        const int64_t *d = o.t[i]->shape.dim;
        if (!s->staged[i]) continue;
        int64_t c = i == Y ? d[1] : i == X ? s->c_pad : s->c_pad / p.groups;
        bytes = (bytes + 255) / 256 * 256;
        s->at[i] = bytes;
        bytes += (size_t)(d[0] * c * d[2] * d[3]) * dlt_dtype_bytes(s->dtype);
    }
    prep->work_bytes = bytes;
    return DLT_OK;
}

/* Strides of dims [a, c, h, w] in NHWC memory with `c` channels. */
static void nhwc_strides(const int64_t *dim, int64_t c, int64_t stride[4])
{
    stride[0] = dim[2] * dim[3] * c;
    stride[1] = 1;
    stride[2] = dim[3] * c;
    stride[3] = c;
}
static void tensor_strides(const DltTensor *t, int64_t stride[4])
{
    const int64_t *d = t->shape.dim;
    if (t->layout == DLT_NHWC) {
        nhwc_strides(d, d[1], stride);
        return;
    }
    stride[3] = 1;
    for (int i = 2; i >= 0; i--)
        stride[i] = stride[i + 1] * d[i + 1];
}

/* Copies operand `role` into scratch (in) or out of it. */
static DltStatus stage(const DltCall *call, const DltTensor *t, void *ptr, int role, bool in,
                       DltErr *err)
{
    const State *s = call->state;
    const DltConv *a = call->node->attr;
    const int64_t *d = t->shape.dim;
    int64_t c = role == Y ? d[1] : role == X ? s->c_pad : s->c_pad / a->groups;
    DltCudaArray outside = {ptr, t->dtype}, inside = {(char *)call->work + s->at[role], s->dtype};
    DltCudaOrder o = {.src = in ? outside : inside, .dst = in ? inside : outside};
    for (int i = 0; i < 4; i++)
        o.dim[i] = o.src_dim[i] = d[i];
    if (in) o.dim[1] = c;
    tensor_strides(t, in ? o.src_stride : o.dst_stride);
    nhwc_strides(d, c, in ? o.dst_stride : o.src_stride);
    return dlt_cuda_order(call, &o, err);
}

static DltStatus finish(const DltCall *call, const Operands *o, void *result, DltErr *err)
{
    const State *s = call->state;
    const DltNode *n = call->node;
    const DltEpilogue *e = &((const DltConv *)n->attr)->ep;
    const int64_t *d = o->t[o->out]->shape.dim;
    DltCudaArray c = {result, s->dtype}, third = {call->in[2], DLT_F32};
    if (n->in[2]) third.dtype = n->in[2]->dtype;
    DltCudaFinish f = {.src = c, .c = c, .rows = d[0] * d[2] * d[3], .cols = d[1]};
    if (o->kind == DLT_DNN_FWD) {
        f.bias = third;
        f.pre = (DltCudaArray){call->out[1], s->dtype};
        f.act = e->act;
    } else {
        f.saved = third;
        f.act_grad = e->act_grad;
    }
    return dlt_cuda_finish(call, &f, err);
}

static DltStatus launch_dnn(const DltCall *call, DltErr *err)
{
    const State *s = call->state;
    const DltNode *n = call->node;
    Operands o = operands_of(n);
    void *outside[N_ROLE], *ptr[N_ROLE];
    outside[X] = o.kind == DLT_DNN_DATA ? call->out[0] : call->in[0];
    outside[W] = o.kind == DLT_DNN_FILTER ? call->out[0] : call->in[1];
    outside[Y] = o.kind == DLT_DNN_FWD      ? call->out[0]
                 : o.kind == DLT_DNN_FILTER ? call->in[1]
                                            : call->in[0];
    for (int i = 0; i < N_ROLE; i++) {
        ptr[i] = s->staged[i] ? (char *)call->work + s->at[i] : outside[i];
        if (s->staged[i] && i != o.out) DLT_TRY(stage(call, o.t[i], outside[i], i, true, err));
    }
    DltDnnArgs args = {ptr[X], ptr[W], ptr[Y], s->fused ? call->in[2] : NULL, call->work};
    DLT_TRY(dlt_dnn_run(s->plan, call, &args, err));
    if (!s->fused && has_finish(n)) DLT_TRY(finish(call, &o, ptr[o.out], err));
    if (!s->staged[o.out]) return DLT_OK;
    return stage(call, o.t[o.out], outside[o.out], o.out, false, err);
}

DLT_CUDA_KERNEL(fwd, "conv_fwd.cuda.dnn", accepts_dnn, prepare_dnn, launch_dnn);
DLT_CUDA_KERNEL(data, "conv_bwd_data.cuda.dnn", accepts_dnn, prepare_dnn, launch_dnn);
DLT_CUDA_KERNEL(filter, "conv_bwd_filter.cuda.dnn", accepts_dnn, prepare_dnn, launch_dnn);

/* ---- the library or tiles, whichever is faster ---- */

/* kernels/conv_tile*.cu */
extern const DltCudaWay dlt_cuda_conv_fwd_way, dlt_cuda_conv_data_way, dlt_cuda_conv_filter_way;

static const DltCudaWay *tile_way(const DltNode *n)
{
    return n->kind == DLT_OP_conv_fwd        ? &dlt_cuda_conv_fwd_way
           : n->kind == DLT_OP_conv_bwd_data ? &dlt_cuda_conv_data_way
                                             : &dlt_cuda_conv_filter_way;
}
static bool accepts_best(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    return tile_way(n)->accepts(n, dev, why_not) && accepts_dnn(n, dev, why_not);
}
static DltStatus prepare_best(const DltNode *n, DltDevice *dev, DltPrep *prep, DltErr *err)
{
    char key[DLT_TUNE_KEY];
    State s = state_of(n, dev);
    DltDnnProblem p = problem_of(n, &s);
    const DltEpilogue *e = &((const DltConv *)n->attr)->ep;
    snprintf(key, sizeof key,
             "tile.2 %s %s sm%d n%d | %d %s %lldx%lldx%lldx%lld k%lld r%lld pad%lld,%lld,%lld,%lld "
             "bias%d act%d grad%d",
             dlt_dnn_version(dev), dev->name, dev->capability, dev->n_sm, (int)p.kind,
             dlt_dtype_name(p.dtype), (long long)p.n, (long long)p.c, (long long)p.h,
             (long long)p.w, (long long)p.k, (long long)p.r, (long long)p.pad[0],
             (long long)p.pad[1], (long long)p.pad[2], (long long)p.pad[3], n->in[2] != NULL,
             (int)e->act.fn, (int)e->act_grad.fn);
    DltCudaWay way[2] = {{accepts_dnn, prepare_dnn, launch_dnn}, *tile_way(n)};
    return dlt_cuda_two_prepare(n, dev, prep, way, key, err);
}
DLT_CUDA_KERNEL(best_fwd, "conv_fwd.cuda.best", accepts_best, prepare_best, dlt_cuda_two_launch);
DLT_CUDA_KERNEL(best_data, "conv_bwd_data.cuda.best", accepts_best, prepare_best,
                dlt_cuda_two_launch);
DLT_CUDA_KERNEL(best_filter, "conv_bwd_filter.cuda.best", accepts_best, prepare_best,
                dlt_cuda_two_launch);

/* kernels/conv_first_mma.cu, kernels/conv_first.cu, kernels/conv_tile*.cu, kernels/conv_plain.cu */
extern const DltKernel dlt_cuda_conv_fwd_first_mma, dlt_cuda_conv_filter_first_mma;
extern const DltKernel dlt_cuda_conv_fwd_first, dlt_cuda_conv_filter_first;
extern const DltKernel dlt_cuda_conv_fwd_tile, dlt_cuda_conv_data_tile, dlt_cuda_conv_filter_tile;
extern const DltKernel dlt_cuda_conv_fwd_plain, dlt_cuda_conv_data_plain,
    dlt_cuda_conv_filter_plain;

const DltKernel *const dlt_cuda_conv_fwd[] = {
    &dlt_cuda_conv_fwd_first_mma, &dlt_cuda_conv_fwd_first, &best_fwd, &fwd,
    &dlt_cuda_conv_fwd_tile,      &dlt_cuda_conv_fwd_plain, NULL};
const DltKernel *const dlt_cuda_conv_bwd_data[] = {&best_data, &data, &dlt_cuda_conv_data_tile,
                                                   &dlt_cuda_conv_data_plain, NULL};
const DltKernel *const dlt_cuda_conv_bwd_filter[] = {
    &dlt_cuda_conv_filter_first_mma, &dlt_cuda_conv_filter_first, &best_filter, &filter,
    &dlt_cuda_conv_filter_tile,      &dlt_cuda_conv_filter_plain, NULL};

/* kernels/conv_first_pool.cu, kernels/conv_tile*.cu: with the pooling behind it */
extern const DltKernel dlt_cuda_conv_pool_fwd_first, dlt_cuda_conv_pool_filter_first;
extern const DltKernel dlt_cuda_conv_pool_fwd_tile, dlt_cuda_conv_pool_data_tile,
    dlt_cuda_conv_pool_filter_tile;
const DltKernel *const dlt_cuda_conv_pool_fwd[] = {&dlt_cuda_conv_pool_fwd_first,
                                                   &dlt_cuda_conv_pool_fwd_tile, NULL};
const DltKernel *const dlt_cuda_conv_pool_bwd_data[] = {&dlt_cuda_conv_pool_data_tile, NULL};
const DltKernel *const dlt_cuda_conv_pool_bwd_filter[] = {&dlt_cuda_conv_pool_filter_first,
                                                          &dlt_cuda_conv_pool_filter_tile, NULL};
