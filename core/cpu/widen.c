/* The kernel behind every list: a node whose tensors have a narrow float type or a blocked layout
 * runs through the op's plain kernel on f32 row-major copies in the workspace. Slow, but it makes
 * every op work in every type and layout, and a narrow result is the f32 result rounded once. */
#include "cpu/device.h"
#include "cpu/plain.h"

enum { OPERANDS = DLT_MAX_IN + DLT_MAX_OUT, ALIGN = 64 };

/* The node as the plain kernel sees it. */
typedef struct Shadow {
    DltNode node;
    DltTensor tensor[OPERANDS];
    bool differs[OPERANDS];
} Shadow;

typedef struct Widen {
    Shadow shadow;
    const DltKernel *inner;
    void *inner_state;
    size_t offset[OPERANDS]; /* of each copy in the workspace; the inner kernel's scratch is at 0 */
} Widen;

static DltTensor *const *slot(const DltNode *n, int i)
{
    return i < DLT_MAX_IN ? &n->in[i] : &n->out[i - DLT_MAX_IN];
}

static void make_shadow(const DltNode *n, Shadow *s)
{
    s->node = *n;
    for (int i = 0; i < OPERANDS; i++) {
        const DltTensor *t = *slot(n, i);
        s->differs[i] = false;
        if (t == NULL) continue;
        bool narrow = dlt_dtype_is_float(t->dtype) && t->dtype != DLT_F64;
        s->tensor[i] = *t;
        s->tensor[i].dtype = narrow ? DLT_F32 : t->dtype;
        s->tensor[i].layout = DLT_PLAIN;
        s->differs[i] = s->tensor[i].dtype != t->dtype || t->layout != DLT_PLAIN;
        DltTensor **in_shadow = i < DLT_MAX_IN ? &s->node.in[i] : &s->node.out[i - DLT_MAX_IN];
        *in_shadow = &s->tensor[i];
    }
}

static const DltKernel *find_inner(const Shadow *s, const DltDevice *dev, DltWhy *why_not)
{
    const DltKernel *const *k = dlt_cpu_plain[s->node.kind];
    while (*k != NULL && !dlt_cpu_accepts(*k, &s->node, dev, why_not))
        k++;
    return *k;
}

static bool widen_accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    Shadow s;
    make_shadow(n, &s);
    return find_inner(&s, dev, why_not) != NULL;
}

static size_t rounded(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static DltStatus widen_prepare(const DltNode *n, DltDevice *dev, DltPrep *p, DltErr *err)
{
    Widen *w = DLT_NEW(p->arena, Widen);
    DltPrep inner = {.arena = p->arena};
    make_shadow(n, &w->shadow);
    w->inner = find_inner(&w->shadow, dev, NULL);
    DLT_BUG_ON(w->inner == NULL);
    if (w->inner->prepare != NULL) DLT_TRY(w->inner->prepare(&w->shadow.node, dev, &inner, err));
    w->inner_state = inner.state;
    size_t at = rounded(inner.work_bytes);
    for (int i = 0; i < OPERANDS; i++) {
        if (!w->shadow.differs[i]) continue;
        const DltTensor *t = &w->shadow.tensor[i];
        w->offset[i] = at;
        at += rounded((size_t)dlt_count(t) * dlt_dtype_bytes(t->dtype));
    }
    p->work_bytes = at;
    p->state = w;
    return DLT_OK;
}

static DltStatus widen_launch(const DltCall *call, DltErr *err)
{
    const Widen *w = call->state;
    const DltNode *n = call->node;
    void *in[DLT_MAX_IN], *out[DLT_MAX_OUT];
    for (int i = 0; i < OPERANDS; i++) {
        void **copy = i < DLT_MAX_IN ? &in[i] : &out[i - DLT_MAX_IN];
        void *given = i < DLT_MAX_IN ? call->in[i] : call->out[i - DLT_MAX_IN];
        *copy = w->shadow.differs[i] ? (char *)call->work + w->offset[i] : given;
        if (i < DLT_MAX_IN && w->shadow.differs[i]) {
            dlt_convert(call->stream, n->in[i], given, &w->shadow.tensor[i], *copy);
        }
    }
    DltCall inner = {&w->shadow.node, in, out, call->work, w->inner_state, call->stream};
    DLT_TRY(w->inner->launch(&inner, err));
    for (int i = 0; i < DLT_MAX_OUT; i++) {
        const DltTensor *copy = &w->shadow.tensor[DLT_MAX_IN + i];
        if (!w->shadow.differs[DLT_MAX_IN + i]) continue;
        dlt_convert(call->stream, copy, out[i], n->out[i], call->out[i]);
    }
    for (int i = 0; i < DLT_MAX_IN; i++) {
        bool mutated = n->op->mutates >> i & 1;
        if (!mutated || !w->shadow.differs[i]) continue;
        dlt_convert(call->stream, &w->shadow.tensor[i], in[i], n->in[i], call->in[i]);
    }
    return DLT_OK;
}

const DltKernel dlt_cpu_widen = {
    .name = "any.cpu.widen",
    .accepts = widen_accepts,
    .prepare = widen_prepare,
    .launch = widen_launch,
};
