/* Makes a plan: kernels, lifetimes, slots, and the sums that are told to people. */
#include "base/rng.h"
#include "plan/make.h"

static bool *touched_bases(DltArena *arena, const DltPlan *plan)
{
    const DltGraph *g = plan->graph;
    bool *touched = DLT_NEW_ARRAY(arena, g->n_tensor, bool);
    for (int s = 0; s < plan->n_step; s++) {
        const DltNode *n = plan->step[s].node;
        for (int i = 0; i < DLT_MAX_IN; i++)
            if (n->in[i] != NULL) touched[dlt_tensor_base(n->in[i])->id] = true;
        for (int i = 0; i < DLT_MAX_OUT; i++)
            if (n->out[i] != NULL) touched[dlt_tensor_base(n->out[i])->id] = true;
    }
    for (int i = 0; i < g->n_tensor; i++)
        if (g->tensor[i]->saved) touched[dlt_tensor_base(g->tensor[i])->id] = true;
    return touched;
}

/* Everything but TEMP: one tensor behind the other, in graph order. */
static void place_lasting(DltArena *arena, DltPlan *plan)
{
    const DltGraph *g = plan->graph;
    size_t align = plan->backend->align;
    const bool *touched = touched_bases(arena, plan);
    for (int i = 0; i < g->n_tensor; i++) {
        const DltTensor *t = g->tensor[i];
        if (t->view_of != NULL || t->role == DLT_TEMP || !touched[i]) continue;
        size_t *end = &plan->region_bytes[t->role];
        plan->slot[i] = (DltSlot){.region = (int)t->role,
                                  .offset = *end,
                                  .bytes = (size_t)dlt_tensor_bytes(t),
                                  .last = plan->n_step - 1};
        *end += (plan->slot[i].bytes + align - 1) / align * align;
    }
}

static void place_temps(DltArena *arena, DltPlan *plan, bool in_place)
{
    DltLives l = dlt_plan_lives(arena, plan, in_place);
    size_t align = plan->backend->align;
    plan->region_bytes[DLT_TEMP] = dlt_pack(arena, l.block, l.n_block, align);
    dlt_pack_bound(arena, l.block, l.n_block, align, &plan->peak_step);
    for (int i = 0; i < plan->graph->n_tensor; i++) {
        if (l.block_of[i] < 0) continue;
        plan->slot[i] = (DltSlot){.region = DLT_TEMP,
                                  .offset = l.block[l.block_of[i]].offset,
                                  .bytes = (size_t)dlt_tensor_bytes(plan->graph->tensor[i]),
                                  .first = l.first[i],
                                  .last = l.last[i]};
    }
}

static void place_views(DltPlan *plan)
{
    const DltGraph *g = plan->graph;
    for (int i = 0; i < g->n_tensor; i++) {
        DltTensor *t = g->tensor[i], *base = dlt_tensor_base(t);
        if (base == t || plan->slot[base->id].bytes == 0) continue;
        plan->slot[i] = plan->slot[base->id];
        plan->slot[i].offset += (size_t)t->view_offset * dlt_dtype_bytes(t->dtype);
        plan->slot[i].bytes = (size_t)dlt_tensor_bytes(t);
    }
}

static uint64_t mix(uint64_t h, const void *bytes, size_t n)
{
    return dlt_hash(bytes, n, h);
}

static uint64_t hash_tensor(uint64_t h, const DltPlan *plan, const DltTensor *t)
{
    const DltSlot *s = &plan->slot[t->id];
    int64_t facts[DLT_MAX_RANK + 7] = {t->dtype, t->layout,          (int64_t)t->role, s->region,
                                       t->id,    (int64_t)s->offset, (int64_t)s->bytes};
    for (int i = 0; i < t->shape.rank; i++)
        facts[7 + i] = t->shape.dim[i];
    return mix(h, facts, sizeof facts);
}

static uint64_t hash_plan(const DltPlan *plan)
{
    uint64_t h = mix(0, plan->backend->name, strlen(plan->backend->name));
    for (int s = 0; s < plan->n_step; s++) {
        const DltStep *step = &plan->step[s];
        const DltNode *n = step->node;
        const char *kernel = step->kernel != NULL ? step->kernel->name : "view";
        h = mix(h, n->op->name, strlen(n->op->name));
        h = mix(h, kernel, strlen(kernel));
        for (int i = 0; i < DLT_MAX_IN; i++)
            if (n->in[i] != NULL) h = hash_tensor(h, plan, n->in[i]);
        for (int i = 0; i < DLT_MAX_OUT; i++)
            if (n->out[i] != NULL) h = hash_tensor(h, plan, n->out[i]);
    }
    return h;
}

DltStatus dlt_plan_make(DltArena *arena, const DltGraph *g, const DltBackend *backend,
                        DltDevice *dev, const DltPlanOptions *o, DltPlan **plan, DltErr *err)
{
    DltPlan *p = DLT_NEW(arena, DltPlan);
    *p = (DltPlan){.graph = g, .backend = backend, .dev = dev};
    p->slot = DLT_NEW_ARRAY(arena, g->n_tensor, DltSlot);
    DLT_TRY(dlt_plan_select(arena, p, o, err));
    dlt_plan_order_lanes(arena, p);
    place_lasting(arena, p);
    place_temps(arena, p, o == NULL || !o->mean);
    place_views(p);
    for (int i = 0; i < DLT_REGIONS; i++)
        p->peak_bytes += p->region_bytes[i];
    for (int i = 0; i < DLT_LANES; i++)
        p->peak_bytes += p->work_bytes[i];
    p->hash = hash_plan(p);
    DLT_TRY(dlt_plan_verify(p, err));
    *plan = p;
    return DLT_OK;
}

double dlt_plan_flops(const DltPlan *plan)
{
    double flops = 0;
    for (int i = 0; i < plan->n_step; i++) {
        const DltNode *n = plan->step[i].node;
        if (n->op->flops != NULL) flops += n->op->flops(n);
    }
    return flops;
}

/* Index of the largest base tensor smaller than `below` (by bytes, then index), -1: none left. */
static int next_largest(const DltPlan *plan, int below)
{
    int best = -1;
    for (int i = 0; i < plan->graph->n_tensor; i++) {
        size_t bytes = plan->slot[i].bytes;
        if (plan->graph->tensor[i]->view_of != NULL || bytes == 0) continue;
        if (below >= 0) {
            size_t bound = plan->slot[below].bytes;
            if (bytes > bound || (bytes == bound && i <= below)) continue;
        }
        if (best < 0 || bytes > plan->slot[best].bytes) best = i;
    }
    return best;
}

DltStatus dlt_plan_fits(const DltPlan *plan, int64_t free_bytes, DltErr *err)
{
    enum { SHOWN = 10 };
    if (free_bytes >= 0 && plan->peak_bytes <= (uint64_t)free_bytes) return DLT_OK;
    dlt_err(err, DLT_E_RESOURCE,
            "the run needs %zu bytes (%.2f GiB) on the %s device, but %lld (%.2f GiB) are free",
            plan->peak_bytes, (double)plan->peak_bytes / (1 << 30), plan->backend->name,
            (long long)free_bytes, (double)free_bytes / (1 << 30));
    int at = -1;
    for (int i = 0; i < SHOWN && (i == 0 || at >= 0); i++) {
        at = next_largest(plan, at);
        if (at < 0) break;
        char shape[DLT_SHAPE_TEXT];
        const DltTensor *t = plan->graph->tensor[at];
        dlt_err_note(err, DLT_NO_MARK, "%12zu bytes: %s %s%s", plan->slot[at].bytes, t->name,
                     dlt_dtype_name(t->dtype), dlt_shape_text(&t->shape, shape));
    }
    return DLT_E_RESOURCE;
}
