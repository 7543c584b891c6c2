/* Gated units: shapes and gradient rules (formulas in ops/gated.h). */
#include "ops/gated.h"
#include "ops/infer.h"

static void gated_text(const void *attr, char *buf, size_t size)
{
    dlt_attr_text(buf, size, "%s", dlt_unary_name(((const DltUnary *)attr)->fn));
}

DltTensor *dlt_gated(DltBuild *b, DltTensor *g, DltTensor *u, DltUnaryFn fn)
{
    DLT_BUG_ON(dlt_unary_saves_y(fn));
    DltUnary a = {fn, 0};
    return dlt_build_op(b, DLT_OP_gated_fwd, &a, (DltTensor *const[]){g, u}, 2);
}

static DltStatus gated_infer(const DltNode *n, DltShape out[], DltDtype dtype[], DltErr *err)
{
    if (!dlt_shape_equal(&n->in[0]->shape, &n->in[1]->shape))
        return dlt_infer_misfit(n, n->in[0], n->in[1], err, "shapes must be equal");
    return dlt_infer_like(n, out, dtype, err);
}

static void gated_grad(DltBuild *b, const DltNode *n, DltTensor *const dout[], DltTensor *din[])
{
    DltTensor *const in[] = {dout[0], n->in[0], n->in[1]};
    DltNode *g = dlt_build_node(b, DLT_OP_gated_bwd, n->attr, in, 3);
    for (int i = 0; g && i < 2; i++)
        din[i] = g->out[i];
}

const DltOpDef dlt_op_gated_fwd = {.name = "gated_fwd",
                                   .n_in = 2,
                                   .n_out = 1,
                                   .attr_size = sizeof(DltUnary),
                                   .infer = gated_infer,
                                   .grad = gated_grad,
                                   .flops = dlt_flops_1,
                                   .inplace = 3,
                                   .prec = DLT_PREC_KEEP,
                                   .text = gated_text};

static DltStatus gated_bwd_infer(const DltNode *n, DltShape out[], DltDtype dtype[], DltErr *err)
{
    for (int i = 1; i < 3; i++)
        if (!dlt_shape_equal(&n->in[0]->shape, &n->in[i]->shape))
            return dlt_infer_misfit(n, n->in[0], n->in[i], err, "shapes must be equal");
    DLT_TRY(dlt_infer_like(n, out, dtype, err));
    out[1] = out[0];
    dtype[1] = dtype[0];
    return DLT_OK;
}

const DltOpDef dlt_op_gated_bwd = {.name = "gated_bwd",
                                   .n_in = 3,
                                   .n_out = 2,
                                   .attr_size = sizeof(DltUnary),
                                   .infer = gated_bwd_infer,
                                   .flops = dlt_flops_1,
                                   .prec = DLT_PREC_KEEP,
                                   .text = gated_text};
