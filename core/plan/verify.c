/* An independent check of a plan, made by replaying its steps over a map of who owns which bytes.
 * It does not know lifetimes or how offsets were chosen: a write takes its bytes away from whoever
 * had them, and a read of bytes that were never written or were taken away is an error. With
 * several lanes, a step may touch a tensor only when it has waited for the lane that used it. */
#include "base/dtype.h"
#include "plan/plan.h"

typedef struct Replay {
    const DltPlan *plan;
    DltErr *err;
    DltArena *arena;
    int n_owner;
    int *owner;             /* TEMP bases that own bytes now, by offset */
    bool *is_owner;         /* [n_tensor] */
    size_t *lo, *hi;        /* [n_tensor] of bases: bytes of the region written so far */
    int (*used)[DLT_LANES]; /* [n_tensor] last step of each lane that touched the base, -1 */
    int known[DLT_LANES][DLT_LANES]; /* [l][m]: steps of m up to this one are finished for l */
} Replay;

static const DltTensor *base_of(const DltTensor *t)
{
    return t->view_of != NULL ? t->view_of : t;
}

static DltStatus fault(const Replay *r, int step, const DltTensor *t, const char *what)
{
    const DltNode *n = r->plan->step[step].node;
    return dlt_err(r->err, DLT_E_BUG, "plan: step %d (%s %s), tensor %s: %s", step, n->op->name,
                   dlt_node_label(n), t != NULL ? t->name : "-", what);
}

static bool ranges_meet(const DltSlot *a, const DltSlot *b)
{
    return a->region == b->region && a->offset < b->offset + b->bytes &&
           b->offset < a->offset + a->bytes;
}

/* ---- slots against regions ---------------------------------------------------------------- */

static DltStatus check_slot(const Replay *r, const DltTensor *t)
{
    const DltSlot *s = &r->plan->slot[t->id], *b = &r->plan->slot[base_of(t)->id];
    size_t offset = b->offset + (size_t)t->view_offset * dlt_dtype_bytes(t->dtype);
    const char *what = NULL;
    if (s->bytes != (size_t)dlt_tensor_bytes(t)) {
        what = "its slot has another size";
    } else if (s->region != (int)base_of(t)->role) {
        what = "its slot lies in another region";
    } else if (base_of(t) == t && s->offset % r->plan->backend->align != 0) {
        what = "its slot is unaligned";
    } else if (base_of(t) != t && s->offset != offset) {
        what = "its slot is not where its base says";
    } else if (s->offset < b->offset || s->offset + s->bytes > b->offset + b->bytes) {
        what = "it reaches out of its base";
    } else if (s->offset + s->bytes > r->plan->region_bytes[s->region]) {
        what = "it reaches out of its region";
    }
    if (what == NULL) return DLT_OK;
    return dlt_err(r->err, DLT_E_BUG, "plan: tensor %s: %s", t->name, what);
}

typedef struct Extent {
    size_t offset, end;
    int id;
} Extent;

static int by_offset(const void *a, const void *b)
{
    const Extent *x = a, *y = b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

/* Tensors that last as long as the plan own their bytes alone. */
static DltStatus check_region(const Replay *r, int region)
{
    const DltGraph *g = r->plan->graph;
    Extent *extent = DLT_NEW_ARRAY(r->arena, g->n_tensor, Extent);
    int n = 0;
    for (int i = 0; i < g->n_tensor; i++) {
        const DltSlot *s = &r->plan->slot[i];
        if (g->tensor[i]->view_of != NULL || s->bytes == 0 || s->region != region) continue;
        extent[n++] = (Extent){s->offset, s->offset + s->bytes, i};
    }
    qsort(extent, (size_t)n, sizeof *extent, by_offset);
    for (int i = 1; i < n; i++) {
        if (extent[i].offset >= extent[i - 1].end) continue;
        return dlt_err(r->err, DLT_E_BUG, "plan: tensors %s and %s overlap",
                       g->tensor[extent[i - 1].id]->name, g->tensor[extent[i].id]->name);
    }
    return DLT_OK;
}

static DltStatus check_slots(const Replay *r)
{
    for (int i = 0; i < r->plan->graph->n_tensor; i++)
        if (r->plan->slot[i].bytes > 0) DLT_TRY(check_slot(r, r->plan->graph->tensor[i]));
    for (int region = 0; region < DLT_REGIONS; region++)
        if (region != DLT_TEMP) DLT_TRY(check_region(r, region));
    return DLT_OK;
}

/* ---- who owns which bytes ----------------------------------------------------------------- */

/* Number of owners whose bytes end at or before `offset`: owners never overlap, so their ends are
 * sorted too. */
static int owners_before(const Replay *r, size_t offset)
{
    int lo = 0, hi = r->n_owner;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        const DltSlot *s = &r->plan->slot[r->owner[mid]];
        if (s->offset + s->bytes <= offset) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo;
}

static DltStatus check_order(const Replay *r, int step, const DltTensor *t, int base)
{
    const DltStep *s = &r->plan->step[step];
    for (int lane = 0; lane < DLT_LANES; lane++) {
        if (lane != s->lane && r->used[base][lane] > r->known[s->lane][lane])
            return fault(r, step, t, "another lane may still be using these bytes");
    }
    return DLT_OK;
}

/* Base `id` becomes the owner of its bytes; those who had them lose them. */
static DltStatus own(Replay *r, int step, const DltTensor *t, int id)
{
    const DltSlot *s = &r->plan->slot[id];
    int from = owners_before(r, s->offset), to = from;
    while (to < r->n_owner && r->plan->slot[r->owner[to]].offset < s->offset + s->bytes) {
        DLT_TRY(check_order(r, step, t, r->owner[to]));
        r->is_owner[r->owner[to++]] = false;
    }
    memmove(r->owner + from + 1, r->owner + to, (size_t)(r->n_owner - to) * sizeof *r->owner);
    r->n_owner += 1 - (to - from);
    r->owner[from] = id;
    r->is_owner[id] = true;
    return DLT_OK;
}

static DltStatus write(Replay *r, int step, const DltTensor *t)
{
    const DltSlot *s = &r->plan->slot[t->id];
    int id = base_of(t)->id;
    if (s->bytes == 0) return fault(r, step, t, "it is written but has no memory");
    DLT_TRY(check_order(r, step, t, id));
    bool fresh = r->hi[id] == 0;
    if (s->region == DLT_TEMP && !r->is_owner[id]) {
        DLT_TRY(own(r, step, t, id));
        fresh = true;
    }
    if (fresh || s->offset < r->lo[id]) r->lo[id] = s->offset;
    if (fresh || s->offset + s->bytes > r->hi[id]) r->hi[id] = s->offset + s->bytes;
    r->used[id][r->plan->step[step].lane] = step;
    return DLT_OK;
}

static DltStatus read(Replay *r, int step, const DltTensor *t)
{
    const DltSlot *s = &r->plan->slot[t->id];
    int id = base_of(t)->id;
    if (s->bytes == 0) return fault(r, step, t, "it is read but has no memory");
    DLT_TRY(check_order(r, step, t, id));
    bool filled = s->region == DLT_INPUT || s->region == DLT_PARAM || s->region == DLT_STATE;
    if (s->region == DLT_TEMP && r->hi[id] > 0 && !r->is_owner[id])
        return fault(r, step, t, "another tensor was written over it before this read");
    /* the padding between the views of a gradient slab stays as it was allocated: zero */
    bool padded = s->region == DLT_GRAD;
    bool outside = s->offset < r->lo[id] || s->offset + s->bytes > r->hi[id];
    if (!filled && (r->hi[id] == 0 || (outside && !padded)))
        return fault(r, step, t, "it is read but nothing has been written there");
    r->used[id][r->plan->step[step].lane] = step;
    return DLT_OK;
}

/* An output may meet an input only as the op allows, and never another output. */
static DltStatus check_step_overlap(const Replay *r, int step)
{
    const DltNode *n = r->plan->step[step].node;
    for (int o = 0; o < DLT_MAX_OUT; o++) {
        if (n->out[o] == NULL) continue;
        const DltSlot *out = &r->plan->slot[n->out[o]->id];
        for (int i = 0; i < DLT_MAX_IN; i++) {
            if (n->in[i] == NULL || !ranges_meet(out, &r->plan->slot[n->in[i]->id])) continue;
            const DltSlot *in = &r->plan->slot[n->in[i]->id];
            bool allowed = o == 0 && n->op->inplace >> i & 1 && in->offset == out->offset &&
                           in->bytes == out->bytes;
            if (!allowed) return fault(r, step, n->out[o], "it overlaps an input of its step");
        }
        for (int k = 0; k < o; k++)
            if (n->out[k] != NULL && ranges_meet(out, &r->plan->slot[n->out[k]->id]))
                return fault(r, step, n->out[o], "it overlaps another output of its step");
    }
    return DLT_OK;
}

/* What lane `l` has waited for is finished for it, and what that lane had waited for as well. */
static void wait_for(Replay *r, int step)
{
    const DltStep *s = &r->plan->step[step];
    for (int m = 0; m < DLT_LANES; m++) {
        if (!(s->wait >> m & 1)) continue;
        r->known[s->lane][m] = step - 1;
        for (int k = 0; k < DLT_LANES; k++)
            if (r->known[m][k] > r->known[s->lane][k]) r->known[s->lane][k] = r->known[m][k];
    }
}

static DltStatus replay_step(Replay *r, int step)
{
    const DltStep *s = &r->plan->step[step];
    const DltNode *n = s->node;
    if (n->op->view) return DLT_OK;
    if (s->kernel == NULL) return fault(r, step, n->out[0], "no kernel was chosen");
    if (s->work_bytes > r->plan->work_bytes[s->lane])
        return fault(r, step, n->out[0], "its scratch exceeds the lane's");
    wait_for(r, step);
    for (int i = 0; i < DLT_MAX_IN; i++) {
        if (n->in[i] == NULL) continue;
        bool first_write = n->op->mutates >> i & 1 && base_of(n->in[i])->role == DLT_GRAD;
        if (!first_write) DLT_TRY(read(r, step, n->in[i]));
    }
    DLT_TRY(check_step_overlap(r, step));
    for (int i = 0; i < DLT_MAX_IN; i++)
        if (n->in[i] != NULL && n->op->mutates >> i & 1) DLT_TRY(write(r, step, n->in[i]));
    for (int o = 0; o < DLT_MAX_OUT; o++)
        if (n->out[o] != NULL) DLT_TRY(write(r, step, n->out[o]));
    return DLT_OK;
}

static DltStatus replay(Replay *r)
{
    DLT_TRY(check_slots(r));
    for (int s = 0; s < r->plan->n_step; s++) {
        bool in_batch = r->plan->step[s].node->phase == DLT_PHASE_BATCH;
        if (in_batch != (s < r->plan->n_batch_step))
            return dlt_err(r->err, DLT_E_BUG, "plan: step %d stands in the wrong phase", s);
        DLT_TRY(replay_step(r, s));
    }
    return DLT_OK;
}

DltStatus dlt_plan_verify(const DltPlan *plan, DltErr *err)
{
    int n = plan->graph->n_tensor;
    Replay r = {.plan = plan, .err = err, .arena = dlt_arena_new()};
    if (r.arena == NULL) return dlt_err(err, DLT_E_RESOURCE, "plan: out of memory");
    r.owner = DLT_NEW_ARRAY(r.arena, n, int);
    r.is_owner = DLT_NEW_ARRAY(r.arena, n, bool);
    r.lo = DLT_NEW_ARRAY(r.arena, n, size_t);
    r.hi = DLT_NEW_ARRAY(r.arena, n, size_t);
    r.used = dlt_arena_new_bytes(r.arena, (size_t)n, sizeof *r.used);
    memset(r.used, -1, (size_t)n * sizeof *r.used);
    memset(r.known, -1, sizeof r.known);
    DltStatus status = replay(&r);
    dlt_arena_free(r.arena);
    return status;
}
