/* Casts between f32 and bf16 in vectors; other pairs are left to the plain kernel. */
#include "cpu/dnnl/fast.h"

enum { GRAIN = 16384 };

typedef struct Cast {
    const void *x;
    void *y;
} Cast;

static void narrow_task(void *ctx, int64_t begin, int64_t end)
{
    const Cast *c = ctx;
    dlt_narrow_run((const float *)c->x + begin, (uint16_t *)c->y + begin, end - begin);
}

static void widen_task(void *ctx, int64_t begin, int64_t end)
{
    const Cast *c = ctx;
    dlt_widen_run((const uint16_t *)c->x + begin, (float *)c->y + begin, end - begin);
}

static bool accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    (void)dev;
    DltDtype from = n->in[0]->dtype, to = n->out[0]->dtype;
    bool pair = (from == DLT_F32 && to == DLT_BF16) || (from == DLT_BF16 && to == DLT_F32);
    if (pair && n->in[0]->layout == n->out[0]->layout) return true;
    snprintf(why_not->text, sizeof why_not->text, "not between f32 and bf16 in one layout");
    return false;
}

/* y = x in the other type; bf16 rounds to nearest even.  elementwise.h */
static DltStatus launch(const DltCall *c, DltErr *err)
{
    (void)err;
    Cast cast = {c->in[0], c->out[0]};
    dlt_pool_for(c->stream, dlt_count(c->node->in[0]), GRAIN,
                 c->node->in[0]->dtype == DLT_F32 ? narrow_task : widen_task, &cast);
    return DLT_OK;
}

static const DltKernel kernel = {"cast.cpu.vector", accepts, NULL, launch};
const DltKernel *const dlt_fast_cast[] = {&kernel, NULL};
