/* When the bytes of each tensor are needed, over the ordered steps. Views count for their base.
 * INPUT, PARAM, GRAD and STATE live as long as the plan, so only TEMP is computed here; a TEMP of
 * the batch phase that the update phase reads lives across, since both phases are one row of steps.
 *
 * Several lanes: a step of another lane starts after all that lane 0 has been given, lane 0 waits
 * for the lane that touched a tensor last, and a TEMP that another lane touches is held to the end,
 * so memory that is used again never crosses lanes. */
#include "plan/make.h"

static const DltTensor *base_of(const DltTensor *t)
{
    return t->view_of != NULL ? t->view_of : t;
}

static void touch(DltLives *l, const DltTensor *t, int step, const DltPlan *plan)
{
    if (t == NULL) return;
    int id = base_of(t)->id;
    if (l->first[id] < 0) l->first[id] = step;
    int last = plan->step[step].lane != 0 ? plan->n_step - 1 : step;
    if (l->last[id] < last) l->last[id] = last;
}

/* The input whose memory out[0] takes, or NULL. */
static const DltTensor *place_to_take(const DltLives *l, const DltNode *n, int step)
{
    const DltTensor *out = n->out[0];
    if (out == NULL || out->view_of != NULL || out->role != DLT_TEMP) return NULL;
    if (l->first[out->id] != step) return NULL;
    for (int i = 0; i < DLT_MAX_IN; i++) {
        if (n->in[i] == NULL || !(n->op->inplace >> i & 1) || n->op->mutates >> i & 1) continue;
        const DltTensor *base = base_of(n->in[i]);
        if (base->role != DLT_TEMP || l->last[base->id] != step) continue;
        if (dlt_tensor_bytes(base) != dlt_tensor_bytes(out)) continue;
        if (dlt_tensor_bytes(n->in[i]) != dlt_tensor_bytes(out)) continue;
        int n_use = 0;
        for (int k = 0; k < DLT_MAX_IN; k++)
            n_use += n->in[k] != NULL && base_of(n->in[k]) == base;
        if (n_use == 1) return base;
    }
    return NULL;
}

/* Memory rests for `hold` steps behind its last use: recorded steps that run side by side then find no
 * order between a late reader and whoever gets the bytes next. */
static void add_block(DltLives *l, const DltTensor *base, int hold)
{
    l->block_of[base->id] = l->n_block;
    l->block[l->n_block++] = (DltBlock){.bytes = (size_t)dlt_tensor_bytes(base),
                                        .first = l->first[base->id],
                                        .last = l->last[base->id] + hold};
}

/* Gives each TEMP base a block, in the order in which they come to life. */
static void add_blocks(DltLives *l, const DltNode *n, int step, bool in_place, int hold)
{
    const DltTensor *from = in_place ? place_to_take(l, n, step) : NULL;
    if (from != NULL) {
        int block = l->block_of[from->id];
        l->block_of[n->out[0]->id] = block;
        l->block[block].last = l->last[n->out[0]->id] + hold;
    }
    for (int i = 0; i < DLT_MAX_IN + DLT_MAX_OUT; i++) {
        const DltTensor *t = i < DLT_MAX_IN ? n->in[i] : n->out[i - DLT_MAX_IN];
        if (t == NULL) continue;
        const DltTensor *base = base_of(t);
        if (base->role == DLT_TEMP && l->block_of[base->id] < 0) add_block(l, base, hold);
    }
}

DltLives dlt_plan_lives(DltArena *arena, const DltPlan *plan, bool in_place)
{
    int n_tensor = plan->graph->n_tensor;
    DltLives l = {.block = DLT_NEW_ARRAY(arena, n_tensor, DltBlock),
                  .block_of = DLT_NEW_ARRAY(arena, n_tensor, int),
                  .first = DLT_NEW_ARRAY(arena, n_tensor, int),
                  .last = DLT_NEW_ARRAY(arena, n_tensor, int)};
    for (int i = 0; i < n_tensor; i++)
        l.block_of[i] = l.first[i] = l.last[i] = -1;
    for (int s = 0; s < plan->n_step; s++) {
        const DltNode *n = plan->step[s].node;
        if (n->op->view) continue;
        for (int i = 0; i < DLT_MAX_IN; i++)
            touch(&l, n->in[i], s, plan);
        for (int i = 0; i < DLT_MAX_OUT; i++)
            touch(&l, n->out[i], s, plan);
    }
    for (int s = 0; s < plan->n_step; s++) {
        const DltNode *n = plan->step[s].node;
        if (n->op->view) continue;
        add_blocks(&l, n, s, in_place && plan->step[s].lane == 0, plan->backend->hold);
    }
    return l;
}

void dlt_plan_order_lanes(DltArena *arena, DltPlan *plan)
{
    if (plan->backend->n_lane <= 1) return;
    int *toucher = DLT_NEW_ARRAY(arena, plan->graph->n_tensor, int);
    uint32_t pending[DLT_LANES] = {0}; /* bit m: lane m has work since this lane last waited */
    for (int s = 0; s < plan->n_step; s++) {
        DltStep *step = &plan->step[s];
        const DltNode *n = step->node;
        uint32_t needs = step->lane != 0 ? 1u : 0u;
        for (int i = 0; i < DLT_MAX_IN + DLT_MAX_OUT; i++) {
            const DltTensor *t = i < DLT_MAX_IN ? n->in[i] : n->out[i - DLT_MAX_IN];
            if (t == NULL || n->op->view) continue;
            needs |= 1u << toucher[base_of(t)->id];
            toucher[base_of(t)->id] = step->lane;
        }
        step->wait = needs & pending[step->lane] & ~(1u << step->lane);
        pending[step->lane] &= ~step->wait;
        for (int l = 0; l < DLT_LANES; l++)
            pending[l] |= 1u << step->lane;
    }
}
