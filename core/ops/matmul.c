/* matmul: shapes, gradient, the problem as kernels see it, and the linear layer's constructor. */
#include "ops/matmul.h"
#include "ops/infer.h"
#include "ops/shape_ops.h"

#include <math.h>

/* A b of rank 2 serves all leading dims of a, which fold into rows. */
DltGemm dlt_matmul_gemm(const DltNode *n)
{
    const DltMatmul *a = n->attr;
    const DltShape *x = &n->in[0]->shape, *y = &n->in[1]->shape;
    int64_t last = dlt_shape_dim(x, -1), second = dlt_shape_dim(x, -2);
    int64_t leading = dlt_shape_span(x, 0, x->rank - 2);
    DltGemm g = {.batch = leading,
                 .m = a->ta ? last : second,
                 .n = dlt_shape_dim(y, a->tb ? -2 : -1),
                 .k = a->ta ? second : last};
    if (y->rank == 2) {
        g.batch = 1;
        g.m *= leading;
    }
    return g;
}

void dlt_epilogue_text(const DltEpilogue *e, char *buf, size_t size)
{
    if (e->act.fn) dlt_attr_text(buf, size, "act=%s", dlt_unary_name(e->act.fn));
    if (e->act_grad.fn) dlt_attr_text(buf, size, "act_grad=%s", dlt_unary_name(e->act_grad.fn));
    if (e->save_pre) dlt_attr_text(buf, size, "pre");
}

static void matmul_text(const void *attr, char *buf, size_t size)
{
    const DltMatmul *a = attr;
    if (a->ta) dlt_attr_text(buf, size, "ta");
    if (a->tb) dlt_attr_text(buf, size, "tb");
    dlt_epilogue_text(&a->ep, buf, size);
}

DltTensor *dlt_matmul(DltBuild *b, DltTensor *x, DltTensor *y, bool ta, bool tb)
{
    DltMatmul a = {.ta = ta, .tb = tb};
    return dlt_build_op(b, DLT_OP_matmul, &a, (DltTensor *const[]){x, y}, 2);
}

static DltStatus matmul_infer(const DltNode *n, DltShape out[], DltDtype dtype[], DltErr *err)
{
    const DltMatmul *a = n->attr;
    const DltTensor *x = n->in[0], *y = n->in[1];
    if (x->shape.rank < 2 || y->shape.rank < 2)
        return dlt_infer_misfit(n, x, y, err, "a matrix product needs rank 2 or more");
    DLT_TRY(dlt_infer_like(n, out, dtype, err));
    int64_t xm = dlt_shape_dim(&x->shape, a->ta ? -1 : -2),
            xk = dlt_shape_dim(&x->shape, a->ta ? -2 : -1);
    int64_t yk = dlt_shape_dim(&y->shape, a->tb ? -1 : -2),
            yn = dlt_shape_dim(&y->shape, a->tb ? -2 : -1);
    bool batched = y->shape.rank > 2;
    bool fits = xk == yk && (x->shape.rank == y->shape.rank || (!batched && !a->ta));
    for (int i = 0; fits && batched && i < x->shape.rank - 2; i++)
        fits = x->shape.dim[i] == y->shape.dim[i];
    if (!fits) return dlt_infer_misfit(n, x, y, err, "inner dimensions must agree");
    out[0].dim[x->shape.rank - 2] = xm;
    out[0].dim[x->shape.rank - 1] = yn;
    if (n->in[2]) DLT_TRY(dlt_infer_vector(n, n->in[2], yn, err));
    if (a->ep.save_pre) {
        out[1] = out[0];
        dtype[1] = dtype[0];
    }
    return DLT_OK;
}

/* Rows folded: [.., C] -> [rows, C], a view. */
static DltTensor *fold(DltBuild *b, DltTensor *t)
{
    if (t->id < 0 || t->shape.rank == 2) return t;
    int64_t c = dlt_dim(t, -1);
    return dlt_reshape(b, t, dlt_shape2(dlt_shape_count(&t->shape) / c, c));
}

/* c = op(a) op(b):  da = dc op(b)^T, db = op(a)^T dc, each transposed back when its operand was. */
static void matmul_grad(DltBuild *b, const DltNode *n, DltTensor *const dout[], DltTensor *din[])
{
    const DltMatmul *a = n->attr;
    DltTensor *x = n->in[0], *y = n->in[1], *d = dout[0];
    DLT_BUG_ON(a->ep.act.fn || a->ep.act_grad.fn || a->ep.save_pre); /* set after gradients exist */
    if (n->in[2] && dlt_needs_grad(b, n->in[2]))
        din[2] = dlt_bias_grad(b, d, n->out[0]->shape.rank - 1);
    bool shared = y->shape.rank == 2 && x->shape.rank > 2; /* one b for all leading dims */
    if (dlt_needs_grad(b, x))
        din[0] = a->ta ? dlt_matmul(b, y, d, a->tb, true) : dlt_matmul(b, d, y, false, !a->tb);
    if (!dlt_needs_grad(b, y)) return;
    DltTensor *fx = shared ? fold(b, x) : x, *fd = shared ? fold(b, d) : d;
    din[1] = a->tb ? dlt_matmul(b, fd, fx, true, a->ta) : dlt_matmul(b, fx, fd, !a->ta, false);
}

static double matmul_flops(const DltNode *n)
{
    DltGemm g = dlt_matmul_gemm(n);
    return 2.0 * (double)g.batch * (double)g.m * (double)g.n * (double)g.k;
}

const DltOpDef dlt_op_matmul = {.name = "matmul",
                                .n_in = 4,
                                .n_out = 2,
                                .attr_size = sizeof(DltMatmul),
                                .infer = matmul_infer,
                                .grad = matmul_grad,
                                .flops = matmul_flops,
                                .prec = DLT_PREC_LOW,
                                .optional = 1u << 2 | 1u << 3,
                                .text = matmul_text};

DltGemm dlt_linear_gemm(const DltNode *n)
{
    const DltShape *w = &n->in[1]->shape;
    return (DltGemm){1, dlt_shape_count(&n->in[0]->shape) / w->dim[0], w->dim[1], w->dim[0]};
}

static DltStatus linear_act_bwd_infer(const DltNode *n, DltShape out[], DltDtype dtype[],
                                      DltErr *err)
{
    DltTensor *dz = n->in[0], *w = n->in[1], *x = n->in[2];
    const DltNode rest = {.attr = n->attr, .in = {x, x}, .at = n->at, .name = n->name};
    DltShape want = dz->shape;
    if (w->shape.rank != 2 || dz->shape.rank < 2 ||
        dlt_shape_dim(&dz->shape, -1) != w->shape.dim[0])
        return dlt_infer_misfit(n, dz, w, err, "inner dimensions must agree");
    want.dim[want.rank - 1] = w->shape.dim[1];
    if (!dlt_shape_equal(&want, &x->shape))
        return dlt_infer_misfit(n, dz, x, err, "rows must agree");
    return dlt_ops[DLT_OP_act_bwd]->infer(&rest, out, dtype, err);
}

static double linear_act_bwd_flops(const DltNode *n)
{
    DltGemm g = dlt_linear_gemm(n);
    return 2.0 * (double)g.m * (double)g.n * (double)g.k;
}

const DltOpDef dlt_op_linear_act_bwd = {.name = "linear_act_bwd",
                                        .n_in = 3,
                                        .n_out = 3,
                                        .attr_size = sizeof(DltActBwd),
                                        .infer = linear_act_bwd_infer,
                                        .flops = linear_act_bwd_flops,
                                        .prec = DLT_PREC_LOW,
                                        .text = dlt_act_bwd_text};

DltTensor *dlt_linear(DltBuild *b, const char *name, DltTensor *x, int64_t units, bool bias)
{
    const char *old = dlt_build_enter(b, name);
    DltShape shape = dlt_shape2(units, dlt_dim(x, -1));
    DltTensor *w = dlt_param(b, "weight", shape, dlt_init_kaiming_uniform(&shape, sqrt(5.0)));
    DltTensor *y = dlt_matmul(b, x, w, false, true);
    if (bias) {
        double bound = 1.0 / sqrt((double)dlt_dim(x, -1));
        DltTensor *v = dlt_param(b, "bias", dlt_shape1(units), dlt_init_uniform(-bound, bound));
        y = dlt_bias(b, y, v, y->shape.rank - 1);
    }
    dlt_build_leave(b, old);
    return y;
}
