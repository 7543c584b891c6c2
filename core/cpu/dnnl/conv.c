/* Convolutions through oneDNN primitives made in prepare. relu is a post-op; other activations run over the
 * flat output. A shape for which the library has only reference code is refused. */
#include "cpu/dnnl/winograd.h"

static DltDnnlConv describe(const DltNode *n)
{
    const DltConv *a = n->attr;
    DltDnnlConv c;
    if (n->kind == DLT_OP_conv_fwd) {
        c = (DltDnnlConv){DLT_DNNL_FWD,
                          n->in[0],
                          n->in[1],
                          n->out[0],
                          a,
                          n->in[2],
                          a->ep.act.fn == DLT_FN_RELU && !a->ep.save_pre};
    } else if (n->kind == DLT_OP_conv_bwd_data) {
        c = (DltDnnlConv){DLT_DNNL_BWD_DATA, n->out[0], n->in[1], n->in[0], a, NULL, false};
    } else {
        c = (DltDnnlConv){DLT_DNNL_BWD_FILTER, n->in[0], n->out[0], n->in[1], a, NULL, false};
    }
    return c;
}

static bool accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    (void)dev;
    bool low = n->in[0]->dtype == DLT_BF16 && n->in[1]->dtype == DLT_BF16;
    if (!(low && dlt_dnnl_has_bf16()) && !dlt_fast_f32(n, why_not)) return false;
    DltArena *arena = dlt_arena_new();
    if (!arena) return false;
    size_t work = 0;
    DltDnnlConv c = describe(n);
    bool good = dlt_dnnl_conv(arena, &c, &work, why_not) != NULL;
    dlt_arena_free(arena);
    return good;
}

static DltStatus prepare(const DltNode *n, DltDevice *dev, DltPrep *p, DltErr *err)
{
    (void)dev;
    DltWhy why = {""};
    DltDnnlConv c = describe(n);
    p->state = dlt_dnnl_conv(p->arena, &c, &p->work_bytes, &why);
    return p->state ? DLT_OK : dlt_err(err, DLT_E_DEVICE, "%s: %s", n->name, why.text);
}

static DltStatus fwd(const DltCall *c, DltErr *err)
{
    const DltConv *a = c->node->attr;
    void *arg[4] = {c->in[0], c->in[1], c->in[2], a->ep.save_pre ? c->out[1] : c->out[0]};
    DLT_TRY(dlt_dnnl_run(c->state, arg, c->work, err));
    DltEpilogue rest = a->ep;
    if (a->ep.act.fn == DLT_FN_RELU && !a->ep.save_pre) rest.act.fn = DLT_FN_NONE; /* a post-op */
    dlt_fast_finish(c, &rest, arg[3], NULL);
    return DLT_OK;
}

static DltStatus bwd_data(const DltCall *c, DltErr *err)
{
    const DltConv *a = c->node->attr;
    void *arg[4] = {c->in[0], c->in[1], NULL, c->out[0]};
    DLT_TRY(dlt_dnnl_run(c->state, arg, c->work, err));
    dlt_fast_finish(c, &a->ep, c->out[0], c->in[2]);
    return DLT_OK;
}

static DltStatus bwd_filter(const DltCall *c, DltErr *err)
{
    void *arg[4] = {c->in[0], c->in[1], NULL, c->out[0]};
    return dlt_dnnl_run(c->state, arg, c->work, err);
}

static const DltKernel fwd_k = {"conv_fwd.cpu.onednn", accepts, prepare, fwd};
static const DltKernel bwd_data_k = {"conv_bwd_data.cpu.onednn", accepts, prepare, bwd_data};
static const DltKernel bwd_filter_k = {"conv_bwd_filter.cpu.onednn", accepts, prepare, bwd_filter};
const DltKernel *const dlt_fast_conv_fwd[] = {&dlt_fast_wino_fwd, &dlt_low_conv_fwd, &fwd_k, NULL};
const DltKernel *const dlt_fast_conv_bwd_data[] = {&dlt_fast_wino_bwd_data, &dlt_low_conv_bwd_data,
                                                   &bwd_data_k, NULL};
const DltKernel *const dlt_fast_conv_bwd_filter[] = {&dlt_fast_wino_bwd_filter,   &dlt_low_filter,
                                                     &dlt_low_first_filter,       &bwd_filter_k,
                                                     &dlt_fast_first_conv_filter, NULL};
