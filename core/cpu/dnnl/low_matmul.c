/* matmul of bf16 through oneDNN, where the processor has bf16 products (AVX-512 BF16 or AMX). */
#include "cpu/dnnl/fast.h"

static bool accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    (void)dev;
    if (!dlt_dnnl_has_bf16() || n->in[0]->dtype != DLT_BF16 || n->in[1]->dtype != DLT_BF16) {
        snprintf(why_not->text, sizeof why_not->text,
                 "only for bf16 operands, on processors with AVX-512 BF16 or AMX");
        return false;
    }
    DltArena *arena = dlt_arena_new();
    if (!arena) return false;
    size_t work = 0;
    bool good = dlt_dnnl_matmul(arena, n, &work, why_not) != NULL;
    dlt_arena_free(arena);
    return good;
}

static DltStatus prepare(const DltNode *n, DltDevice *dev, DltPrep *p, DltErr *err)
{
    (void)dev;
    DltWhy why = {""};
    p->state = dlt_dnnl_matmul(p->arena, n, &p->work_bytes, &why);
    return p->state ? DLT_OK : dlt_err(err, DLT_E_DEVICE, "%s: %s", n->name, why.text);
}

static DltStatus launch(const DltCall *c, DltErr *err)
{
    const DltEpilogue *e = &((const DltMatmul *)c->node->attr)->ep;
    void *arg[4] = {c->in[0], c->in[1], c->in[2], e->save_pre ? c->out[1] : c->out[0]};
    DLT_TRY(dlt_dnnl_run(c->state, arg, c->work, err));
    DltEpilogue rest = *e;
    if (e->act.fn == DLT_FN_RELU && !e->save_pre) rest.act.fn = DLT_FN_NONE; /* a post-op */
    dlt_fast_finish(c, &rest, arg[3], c->in[3]);
    return DLT_OK;
}

const DltKernel dlt_low_matmul = {"matmul.cpu.onednn_bf16", accepts, prepare, launch};
