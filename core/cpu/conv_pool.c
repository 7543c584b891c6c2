/* Convolution and max pooling as one node, by definition: the plain kernels of both, one after the
 * other, with the image between them in scratch. */
#include "cpu/conv.h"

/* The node taken apart: two or three nodes that share the tensor `between`. */
typedef struct Parts {
    DltNode conv, pool, sum;
    DltTensor between;
    DltBias axis;
} Parts;

/* pooled: y or its gradient, whose dims tell batch and filters of the image between. */
static Parts *parts_of(const DltNode *n, const DltTensor *pooled, DltArena *arena)
{
    const DltConvPool *a = n->attr;
    const int64_t *d = pooled->shape.dim;
    Parts *p = DLT_NEW(arena, Parts);
    p->between = *pooled;
    p->between.shape = dlt_shape4(d[0], d[1], a->pool.in_hw[0], a->pool.in_hw[1]);
    p->axis = (DltBias){.axis = 1, .channels = d[1]};
    p->conv = p->pool = p->sum = (DltNode){.name = n->name, .at = n->at};
    p->conv.attr = &a->conv;
    p->pool.attr = &a->pool;
    p->sum.attr = &p->axis;
    return p;
}

static DltStatus prepare(const DltNode *n, DltDevice *dev, DltPrep *prep, DltErr *err)
{
    (void)dev, (void)err;
    bool forward = n->kind == DLT_OP_conv_pool_fwd;
    const DltTensor *pooled = forward                                ? n->out[0]
                              : n->kind == DLT_OP_conv_pool_bwd_data ? n->in[0]
                                                                     : n->in[1];
    Parts *p = parts_of(n, pooled, prep->arena);
    if (forward) {
        p->conv.in[0] = n->in[0], p->conv.in[1] = n->in[1], p->conv.in[2] = n->in[2];
        p->conv.out[0] = p->pool.in[0] = &p->between;
        p->pool.out[0] = n->out[0], p->pool.out[1] = n->out[1];
    } else if (n->kind == DLT_OP_conv_pool_bwd_data) {
        p->pool.in[0] = n->in[0], p->pool.in[1] = n->in[1];
        p->pool.out[0] = p->conv.in[0] = &p->between;
        p->conv.in[1] = n->in[2], p->conv.out[0] = n->out[0];
    } else {
        p->pool.in[0] = n->in[1], p->pool.in[1] = n->in[2];
        p->pool.out[0] = p->conv.in[1] = p->sum.in[0] = &p->between;
        p->conv.in[0] = n->in[0], p->conv.out[0] = n->out[0];
        p->sum.out[0] = n->out[1];
    }
    prep->state = p;
    prep->work_bytes = (size_t)dlt_shape_count(&p->between.shape) * sizeof(DltReal);
    return DLT_OK;
}

/* The last of a list is its plain kernel. */
static DltStatus run(const DltCall *call, const DltKernel *const *list, const DltNode *n,
                     void *const in[], void *const out[], DltErr *err)
{
    DltCall part = {.node = n, .in = in, .out = out, .stream = call->stream};
    while (list[1] != NULL)
        list++;
    return list[0]->launch(&part, err);
}

/* y, index = pool(conv(x, w) + bias).  x, w, bias, y f32 PLAIN, index u8|i32.  conv.h */
static DltStatus forward(const DltCall *call, DltErr *err)
{
    const Parts *p = call->state;
    void *to[DLT_MAX_OUT] = {call->work}, *from[DLT_MAX_IN] = {call->work};
    DLT_TRY(run(call, dlt_cpu_conv_fwd, &p->conv, call->in, to, err));
    return run(call, dlt_cpu_pool_fwd, &p->pool, from, call->out, err);
}

/* dx = the convolution's data gradient of dy put back where each maximum lay.  conv.h */
static DltStatus data(const DltCall *call, DltErr *err)
{
    const Parts *p = call->state;
    void *to[DLT_MAX_OUT] = {call->work}, *from[DLT_MAX_IN] = {call->work, call->in[2]};
    DLT_TRY(run(call, dlt_cpu_pool_bwd, &p->pool, call->in, to, err));
    return run(call, dlt_cpu_conv_bwd_data, &p->conv, from, call->out, err);
}

/* dw = the filters' gradient of the same, db = its sum over all but the channels.  conv.h */
static DltStatus filter(const DltCall *call, DltErr *err)
{
    const Parts *p = call->state;
    void *pooled[DLT_MAX_IN] = {call->in[1], call->in[2]}, *to[DLT_MAX_OUT] = {call->work};
    void *from[DLT_MAX_IN] = {call->in[0], call->work}, *terms[DLT_MAX_IN] = {call->work};
    void *sum[DLT_MAX_OUT] = {call->out[1]};
    DLT_TRY(run(call, dlt_cpu_pool_bwd, &p->pool, pooled, to, err));
    DLT_TRY(run(call, dlt_cpu_conv_bwd_filter, &p->conv, from, call->out, err));
    if (call->node->out[1] == NULL) return DLT_OK;
    return run(call, dlt_cpu_bias_bwd, &p->sum, terms, sum, err);
}

#define ROW(kind, run)                                                                             \
    static const DltKernel plain_##run = {                                                         \
        .name = #kind ".cpu.plain", .prepare = prepare, .launch = run};                            \
    const DltKernel *const dlt_cpu_##kind[] = {&plain_##run, NULL}
ROW(conv_pool_fwd, forward);
ROW(conv_pool_bwd_data, data);
ROW(conv_pool_bwd_filter, filter);
