/* Updates and the data fetch: rows without gradients. Formulas in ops/update_ops.h and
 * ops/data_ops.h. */
#include "ops/update_ops.h"
#include "ops/data_ops.h"
#include "ops/infer.h"

static DltStatus sumsq_infer(const DltNode *n, DltShape out[], DltDtype dtype[], DltErr *err)
{
    (void)n;
    (void)err;
    out[0] = dlt_shape1(1);
    dtype[0] = DLT_F64;
    return DLT_OK;
}

static DltStatus coef_infer(const DltNode *n, DltShape out[], DltDtype dtype[], DltErr *err)
{
    (void)n;
    (void)err;
    out[0] = dlt_shape1(DLT_COEF);
    dtype[0] = DLT_F32;
    return DLT_OK;
}

static void clip_text(const void *attr, char *buf, size_t size)
{
    const DltGradScale *a = attr;
    if (a->clip > 0) dlt_attr_text(buf, size, "clip=%g", (double)a->clip);
}

const DltOpDef dlt_op_accumulate = {.name = "accumulate",
                                    .n_in = 3,
                                    .infer = dlt_infer_none,
                                    .flops = dlt_flops_1,
                                    .mutates = 1,
                                    .prec = DLT_PREC_FULL};
const DltOpDef dlt_op_sum_squares = {.name = "sum_squares",
                                     .n_in = 1,
                                     .n_out = 1,
                                     .infer = sumsq_infer,
                                     .flops = dlt_flops_1,
                                     .prec = DLT_PREC_FULL};
const DltOpDef dlt_op_scale_loss = {.name = "scale_loss",
                                    .n_in = 2,
                                    .infer = dlt_infer_none,
                                    .flops = dlt_flops_1,
                                    .mutates = 1,
                                    .prec = DLT_PREC_FULL};
const DltOpDef dlt_op_grad_scale = {.name = "grad_scale",
                                    .n_in = 5,
                                    .n_out = 1,
                                    .attr_size = sizeof(DltGradScale),
                                    .infer = coef_infer,
                                    .flops = dlt_flops_1,
                                    .prec = DLT_PREC_FULL,
                                    .optional = 2 | 8 | 16,
                                    .mutates = 16,
                                    .text = clip_text};

static void update_text(const void *attr, char *buf, size_t size)
{
    const DltUpdate *a = attr;
    if (a->lr_factor != 1) dlt_attr_text(buf, size, "lr x%g", a->lr_factor);
    if (a->weight_decay != 0) dlt_attr_text(buf, size, "weight_decay=%g", a->weight_decay);
}

/* w (0), states (4, 5, 6) and the low-precision copy (7) are updated where they lie. */
enum { UPDATE_MUTATES = 1 << 0 | 1 << 4 | 1 << 5 | 1 << 6 | 1 << 7 };
#define UPDATE(id)                                                                                 \
    const DltOpDef dlt_op_##id = {.name = #id,                                                     \
                                  .n_in = 8,                                                       \
                                  .attr_size = sizeof(DltUpdate),                                  \
                                  .infer = dlt_infer_none,                                         \
                                  .flops = dlt_flops_10,                                           \
                                  .optional = 1u << 4 | 1u << 5 | 1u << 6 | 1u << 7,               \
                                  .mutates = UPDATE_MUTATES,                                       \
                                  .text = update_text,                                             \
                                  .prec = DLT_PREC_FULL}
UPDATE(sgd_update);
UPDATE(adam_update);
UPDATE(rmsprop_update);
UPDATE(adagrad_update);
UPDATE(lion_update);
UPDATE(lamb_update);

static DltStatus muon_infer(const DltNode *n, DltShape out[], DltDtype dtype[], DltErr *err)
{
    const DltTensor *g = n->in[0], *buf = n->in[1];
    if (g->shape.rank != 2 || dlt_shape_count(&buf->shape) < dlt_shape_count(&g->shape))
        return dlt_infer_misfit(n, g, buf, err, "needs a matrix and a buffer as large");
    return dlt_infer_same(n, out, dtype, err);
}

const DltOpDef dlt_op_muon_momentum = {.name = "muon_momentum",
                                       .n_in = 4,
                                       .n_out = 1,
                                       .attr_size = sizeof(DltUpdate),
                                       .infer = muon_infer,
                                       .flops = dlt_flops_10,
                                       .mutates = 2,
                                       .prec = DLT_PREC_FULL};
UPDATE(muon_update);
const DltOpDef dlt_op_ema_update = {.name = "ema_update",
                                    .n_in = 4,
                                    .attr_size = sizeof(DltUpdate),
                                    .infer = dlt_infer_none,
                                    .flops = dlt_flops_1,
                                    .mutates = 1,
                                    .prec = DLT_PREC_FULL};

const DltOpDef dlt_op_settle = {.name = "settle",
                                .n_in = 3,
                                .infer = dlt_infer_none,
                                .flops = dlt_flops_1,
                                .mutates = 1 | 2,
                                .prec = DLT_PREC_FULL};

/* ---- fetch ---- */

static void fetch_text(const void *attr, char *buf, size_t size)
{
    const DltFetch *a = attr;
    if (a->scale != 1) dlt_attr_text(buf, size, "scale=%g", (double)a->scale);
    if (a->pad > 0) dlt_attr_text(buf, size, "pad_crop=%d", a->pad);
    if (a->flip) dlt_attr_text(buf, size, "flip");
    if (a->cutout > 0) dlt_attr_text(buf, size, "cutout=%d", a->cutout);
}

/* One sample's dims behind N. */
static DltStatus batch_of(const DltNode *n, const DltTensor *data, DltShape *out, DltErr *err)
{
    const DltFetch *a = n->attr;
    if (data->shape.rank < 1) return dlt_infer_error(n, err, "%s has no sample axis", data->name);
    *out = data->shape;
    out->dim[0] = a->batch;
    return DLT_OK;
}

static DltStatus fetch_x_infer(const DltNode *n, DltShape out[], DltDtype dtype[], DltErr *err)
{
    DLT_TRY(batch_of(n, n->in[0], &out[0], err));
    dtype[0] = n->in[0]->dtype == DLT_I32 ? DLT_I32 : DLT_F32;
    return DLT_OK;
}

const DltOpDef dlt_op_fetch_x = {.name = "fetch_x",
                                 .n_in = 4,
                                 .n_out = 1,
                                 .attr_size = sizeof(DltFetch),
                                 .infer = fetch_x_infer,
                                 .flops = dlt_flops_1,
                                 .prec = DLT_PREC_FULL,
                                 .optional = 0xc,
                                 .text = fetch_text};

static DltStatus fetch_y_infer(const DltNode *n, DltShape out[], DltDtype dtype[], DltErr *err)
{
    DLT_TRY(batch_of(n, n->in[0], &out[0], err));
    dtype[0] = n->in[0]->dtype;
    out[1] = dlt_shape1(out[0].dim[0]);
    dtype[1] = DLT_F32;
    return DLT_OK;
}

const DltOpDef dlt_op_fetch_y = {.name = "fetch_y",
                                 .n_in = 2,
                                 .n_out = 2,
                                 .attr_size = sizeof(DltFetch),
                                 .infer = fetch_y_infer,
                                 .flops = dlt_flops_1,
                                 .prec = DLT_PREC_FULL};
