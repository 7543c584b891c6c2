/* Binds a plan to memory once; then a run of a phase is a loop over bound calls, or one replay of
 * what the backend recorded. Nothing is decided or allocated here after dlt_exec_new. */
#include "base/half.h"
#include "base/sys.h"
#include "base/watch.h"
#include "exec/bound.h"
#include "graph/build.h"

/* ---- sharing ------------------------------------------------------------------------------ */

static int by_name(const void *a, const void *b)
{
    return strcmp((*(DltTensor *const *)a)->name, (*(DltTensor *const *)b)->name);
}

static int name_matches(const void *name, const void *t)
{
    return strcmp(name, (*(DltTensor *const *)t)->name);
}

/* What can be shared of a graph, sorted by name. */
static DltTensor **shareable(DltArena *arena, const DltExec *share, bool inputs, int *n)
{
    const DltGraph *g = share->plan->graph;
    DltTensor **list = DLT_NEW_ARRAY(arena, g->n_tensor, DltTensor *);
    *n = 0;
    for (int i = 0; i < g->n_tensor; i++) {
        DltTensor *t = g->tensor[i];
        if (share->pointer[i] != NULL && (t->saved || (inputs && t->role == DLT_INPUT)))
            list[(*n)++] = t;
    }
    qsort(list, (size_t)*n, sizeof(DltTensor *), by_name);
    return list;
}

static bool alike(const DltTensor *a, const DltTensor *b)
{
    return a->dtype == b->dtype && a->layout == b->layout && dlt_shape_equal(&a->shape, &b->shape);
}

static DltStatus share_tensor(DltExec *e, const DltTensor *t, DltTensor **list, int n, DltErr *err)
{
    DltTensor **found = NULL;
    if (e->o.prefix != NULL && t->role != DLT_INPUT) {
        const char *name = dlt_arena_printf(e->arena, "%s%s", e->o.prefix, t->name);
        found = bsearch(name, list, (size_t)n, sizeof(DltTensor *), name_matches);
    }
    if (found == NULL) found = bsearch(t->name, list, (size_t)n, sizeof(DltTensor *), name_matches);
    if (found == NULL) return DLT_OK;
    if (!alike(t, *found)) {
        if (t->role == DLT_INPUT) return DLT_OK;
        return dlt_err(err, DLT_E_BUG,
                       "exec: %s has another shape or type in the graph it is "
                       "shared with",
                       t->name);
    }
    e->pointer[t->id] = e->o.share->pointer[(*found)->id];
    e->shared[t->id] = true;
    return DLT_OK;
}

static DltStatus share_tensors(DltExec *e, DltErr *err)
{
    if (e->o.share == NULL) return DLT_OK;
    int n = 0;
    DltTensor **list = shareable(e->arena, e->o.share, e->o.share_inputs, &n);
    for (int i = 0; i < e->plan->graph->n_tensor; i++) {
        const DltTensor *t = e->plan->graph->tensor[i];
        bool lasting = (t->role == DLT_PARAM || t->role == DLT_STATE) && t->saved;
        bool input = t->role == DLT_INPUT && e->o.share_inputs;
        if (t->view_of == NULL && (lasting || input) && e->plan->slot[i].bytes > 0)
            DLT_TRY(share_tensor(e, t, list, n, err));
    }
    return DLT_OK;
}

/* ---- memory ------------------------------------------------------------------------------- */

/* Lasting tensors lie one behind the other, without those that are shared. */
static size_t *own_offsets(DltExec *e)
{
    const DltGraph *g = e->plan->graph;
    size_t *offset = DLT_NEW_ARRAY(e->arena, g->n_tensor, size_t);
    for (int i = 0; i < g->n_tensor; i++) {
        const DltSlot *s = &e->plan->slot[i];
        offset[i] = s->offset;
        if (g->tensor[i]->view_of != NULL || s->bytes == 0 || s->region == DLT_TEMP) continue;
        if (e->shared[i]) continue;
        size_t align = e->backend->align, *end = &e->region_bytes[s->region];
        offset[i] = *end;
        *end += (s->bytes + align - 1) / align * align;
    }
    return offset;
}

static DltStatus allocate(DltExec *e, size_t bytes, void **ptr, DltErr *err)
{
    if (bytes == 0) return DLT_OK;
    DLT_TRY(e->backend->alloc(e->dev, bytes, ptr, err));
    e->bytes += bytes;
    return DLT_OK;
}

static void *temp_region(const DltExec *e)
{
    const DltExec *share = e->o.share;
    return e->region[DLT_TEMP] != NULL || share == NULL ? e->region[DLT_TEMP]
                                                        : share->region[DLT_TEMP];
}

static DltStatus allocate_all(DltExec *e, DltErr *err)
{
    const DltExec *share = e->o.share;
    size_t temp = e->plan->region_bytes[DLT_TEMP];
    bool borrow =
        share != NULL && share->region[DLT_TEMP] != NULL && share->region_bytes[DLT_TEMP] >= temp;
    e->region_bytes[DLT_TEMP] = borrow ? 0 : temp;
    for (int r = 0; r < DLT_REGIONS; r++)
        DLT_TRY(allocate(e, e->region_bytes[r], &e->region[r], err));
    for (int l = 0; l < DLT_LANES; l++) {
        size_t work = e->plan->work_bytes[l];
        bool fits = share != NULL && share->work[l] != NULL && share->plan->work_bytes[l] >= work;
        if (!fits) DLT_TRY(allocate(e, work, &e->work[l], err));
    }
    return DLT_OK;
}

static void bind_tensors(DltExec *e, const size_t *offset)
{
    const DltGraph *g = e->plan->graph;
    for (int i = 0; i < g->n_tensor; i++) {
        const DltSlot *s = &e->plan->slot[i];
        if (g->tensor[i]->view_of != NULL || s->bytes == 0 || e->shared[i]) continue;
        char *region = s->region == DLT_TEMP ? temp_region(e) : e->region[s->region];
        e->pointer[i] = region + offset[i];
    }
    for (int i = 0; i < g->n_tensor; i++) {
        const DltTensor *t = g->tensor[i];
        if (t->view_of == NULL || e->plan->slot[i].bytes == 0) continue;
        char *base = e->pointer[t->view_of->id];
        e->pointer[i] = base + t->view_offset * (int64_t)dlt_dtype_bytes(t->dtype);
    }
}

static void bind_calls(DltExec *e)
{
    const DltPlan *p = e->plan;
    CallArgs *args = e->args = DLT_NEW_ARRAY(e->arena, p->n_step, CallArgs);
    e->call = DLT_NEW_ARRAY(e->arena, p->n_step, DltCall);
    for (int s = 0; s < p->n_step; s++) {
        const DltNode *n = p->step[s].node;
        int lane = p->step[s].lane;
        for (int i = 0; i < DLT_MAX_IN; i++)
            if (n->in[i] != NULL) args[s].in[i] = e->pointer[n->in[i]->id];
        for (int i = 0; i < DLT_MAX_OUT; i++)
            if (n->out[i] != NULL) args[s].out[i] = e->pointer[n->out[i]->id];
        void *work = e->work[lane];
        if (work == NULL && e->o.share != NULL) work = e->o.share->work[lane];
        e->call[s] = (DltCall){.node = n,
                               .in = args[s].in,
                               .out = args[s].out,
                               .work = work,
                               .state = p->step[s].state,
                               .stream = e->backend->stream(e->dev, lane)};
    }
}

/* ---- first values ------------------------------------------------------------------------- */

static bool needs_init(const DltExec *e, int i)
{
    const DltTensor *t = e->plan->graph->tensor[i];
    bool lasting = t->role == DLT_PARAM || t->role == DLT_STATE;
    return lasting && !e->shared[i] && e->pointer[i] != NULL && t->init != NULL &&
           t->init->kind != DLT_INIT_ZEROS; /* regions are zeroed */
}

static DltStatus initialise(DltExec *e, DltErr *err)
{
    const DltGraph *g = e->plan->graph;
    size_t largest = 0;
    for (int i = 0; i < g->n_tensor; i++) {
        size_t bytes = e->plan->slot[i].bytes;
        if (needs_init(e, i) && bytes > largest) largest = bytes;
    }
    if (largest == 0) return DLT_OK;
    void *host = dlt_sys_alloc(largest);
    if (host == NULL)
        return dlt_err(err, DLT_E_RESOURCE, "no %zu bytes for the first parameters", largest);
    DltStatus status = DLT_OK;
    for (int i = 0; i < g->n_tensor && status == DLT_OK; i++) {
        if (!needs_init(e, i)) continue;
        dlt_init_fill(g->tensor[i], e->o.seed, host);
        status = dlt_sys_asked_to_stop();
        if (status == DLT_OK) status = dlt_exec_write(e, g->tensor[i], host, err);
    }
    dlt_sys_free(host);
    return status;
}

/* ---- poison ------------------------------------------------------------------------------- */

/* A tensor whose place was taken by the step's result is not dead bytes. */
static bool place_taken(const DltPlan *p, const DltSlot *s)
{
    const DltTensor *out = p->step[s->last].node->out[0];
    return out != NULL && p->slot[out->id].region == DLT_TEMP &&
           p->slot[out->id].offset == s->offset && p->slot[out->id].last > s->last;
}

static DltStatus prepare_poison(DltExec *e, DltErr *err)
{
    const DltPlan *p = e->plan;
    size_t bytes = p->region_bytes[DLT_TEMP];
    if (!e->o.poison || bytes == 0) return DLT_OK;
    e->poison = memset(dlt_arena_new_bytes(e->arena, bytes, 1), 0xff, bytes);
    e->dead_head = DLT_NEW_ARRAY(e->arena, p->n_step, int);
    e->dead_next = DLT_NEW_ARRAY(e->arena, p->graph->n_tensor, int);
    for (int s = 0; s < p->n_step; s++)
        e->dead_head[s] = -1;
    for (int i = 0; i < p->graph->n_tensor; i++) {
        const DltSlot *s = &p->slot[i];
        bool temp = s->region == DLT_TEMP && s->bytes > 0;
        if (!temp || p->graph->tensor[i]->view_of != NULL || place_taken(p, s)) continue;
        e->dead_next[i] = e->dead_head[s->last];
        e->dead_head[s->last] = i;
    }
    DltStream *stream = e->backend->stream(e->dev, 0);
    DLT_TRY(e->backend->upload(stream, temp_region(e), e->poison, bytes, err));
    return e->backend->sync(e->dev, err);
}

static DltStatus poison_dead(DltExec *e, int step, DltErr *err)
{
    if (e->poison == NULL) return DLT_OK;
    DltStream *stream = e->backend->stream(e->dev, 0);
    for (int i = e->dead_head[step]; i >= 0; i = e->dead_next[i])
        DLT_TRY(e->backend->upload(stream, e->pointer[i], e->poison, e->plan->slot[i].bytes, err));
    return DLT_OK;
}

/* ---- making and freeing ------------------------------------------------------------------- */

static void free_hook(void *exec)
{
    dlt_exec_free(exec);
}

DltStatus dlt_exec_new(DltArena *arena, const DltPlan *plan, const DltExecOptions *o,
                       DltExec **exec, DltErr *err)
{
    DltExec *e = DLT_NEW(arena, DltExec);
    *e = (DltExec){
        .arena = arena, .plan = plan, .backend = plan->backend, .dev = plan->dev, .o = *o};
    e->pointer = DLT_NEW_ARRAY(arena, plan->graph->n_tensor, void *);
    e->shared = DLT_NEW_ARRAY(arena, plan->graph->n_tensor, bool);
    dlt_arena_on_free(arena, free_hook, e);
    DLT_TRY(share_tensors(e, err));
    const size_t *offset = own_offsets(e);
    DLT_TRY(allocate_all(e, err));
    bind_tensors(e, offset);
    bind_calls(e);
    DLT_TRY(initialise(e, err));
    DLT_TRY(prepare_poison(e, err));
    *exec = e;
    return DLT_OK;
}

void dlt_exec_free(DltExec *e)
{
    if (e == NULL) return;
    for (int r = 0; r < DLT_REGIONS; r++) {
        if (e->region[r] != NULL) e->backend->release(e->dev, e->region[r]);
        e->region[r] = NULL;
    }
    for (int l = 0; l < DLT_LANES; l++) {
        if (e->work[l] != NULL) e->backend->release(e->dev, e->work[l]);
        e->work[l] = NULL;
    }
}

/* ---- host and device ---------------------------------------------------------------------- */

static DltStatus plain(const DltExec *e, const DltTensor *t, DltErr *err)
{
    DLT_BUG_ON(t->id >= e->plan->graph->n_tensor || e->plan->graph->tensor[t->id] != t);
    if (t->layout == DLT_PLAIN) return DLT_OK;
    return dlt_err(err, DLT_E_BUG, "exec: %s is not in plain layout", t->name);
}

static DltStatus upload(DltExec *e, const DltTensor *t, const void *host, DltErr *err)
{
    if (e->pointer[t->id] == NULL) return DLT_OK;
    return e->backend->upload(e->backend->stream(e->dev, 0), e->pointer[t->id], host,
                              e->plan->slot[t->id].bytes, err);
}

DltStatus dlt_exec_feed(DltExec *e, const DltTensor *t, const void *host, DltErr *err)
{
    DLT_TRY(plain(e, t, err));
    return upload(e, t, host, err);
}

static DltStatus download(DltExec *e, const DltTensor *t, void *host, DltErr *err)
{
    if (e->pointer[t->id] == NULL)
        return dlt_err(err, DLT_E_BUG, "exec: %s has no memory to read", t->name);
    return e->backend->download(e->backend->stream(e->dev, 0), host, e->pointer[t->id],
                                e->plan->slot[t->id].bytes, err);
}

DltStatus dlt_exec_fetch(DltExec *e, const DltTensor *t, void *host, DltErr *err)
{
    DLT_TRY(plain(e, t, err));
    return download(e, t, host, err);
}

static DltStatus get_memory(const DltTensor *t, void **host, DltErr *err)
{
    *host = dlt_sys_alloc((size_t)dlt_tensor_bytes(t));
    if (*host != NULL) return DLT_OK;
    return dlt_err(err, DLT_E_RESOURCE, "out of memory for a copy of %s", t->name);
}

/* The compute-type copy of a parameter, rounded from its f32 values. */
static DltStatus write_low(DltExec *e, const DltTensor *low, const DltReal *value, DltErr *err)
{
    void *memory = NULL;
    DLT_TRY(get_memory(low, &memory, err));
    uint16_t *host = memory;
    uint16_t (*round_to)(float) = low->dtype == DLT_BF16 ? dlt_bf16_from : dlt_f16_from;
    for (int64_t i = 0; i < dlt_shape_count(&low->shape); i++)
        host[i] = round_to((float)value[i]);
    DltStatus status = upload(e, low, host, err);
    if (status == DLT_OK) status = e->backend->sync(e->dev, err);
    dlt_sys_free(memory);
    return status;
}

DltStatus dlt_exec_write(DltExec *e, const DltTensor *t, const void *host, DltErr *err)
{
    void *own = NULL; /* the values in the tensor's order */
    if (t->layout == DLT_NHWC) {
        DLT_TRY(get_memory(t, &own, err));
        dlt_tensor_reorder(t, own, host, false);
        host = own;
    }
    DltStatus status = own == NULL ? plain(e, t, err) : DLT_OK;
    if (status == DLT_OK) status = upload(e, t, host, err);
    if (status == DLT_OK) status = e->backend->sync(e->dev, err);
    if (status == DLT_OK && t->low != NULL) status = write_low(e, t->low, host, err);
    dlt_sys_free(own);
    return status;
}

DltStatus dlt_exec_read(DltExec *e, const DltTensor *t, void *host, DltErr *err)
{
    void *own = NULL;
    if (t->layout != DLT_NHWC) {
        DLT_TRY(dlt_exec_fetch(e, t, host, err));
        return e->backend->sync(e->dev, err);
    }
    DLT_TRY(get_memory(t, &own, err));
    DltStatus status = download(e, t, own, err);
    if (status == DLT_OK) status = e->backend->sync(e->dev, err);
    if (status == DLT_OK) dlt_tensor_reorder(t, host, own, true);
    dlt_sys_free(own);
    return status;
}

DltStatus dlt_exec_zero(DltExec *e, const DltTensor *t, DltErr *err)
{
    if (e->pointer[t->id] == NULL) return DLT_OK;
    return e->backend->zero(e->backend->stream(e->dev, 0), e->pointer[t->id],
                            e->plan->slot[t->id].bytes, err);
}

/* ---- running ------------------------------------------------------------------------------ */

static DltStatus leave_node(DltStatus status, const DltNode *n, DltErr *err)
{
    dlt_watch_leave();
    if (status != DLT_OK)
        dlt_err_note(err, n->at, "in node %s of %s", n->op->name, dlt_node_label(n));
    return status;
}

static DltStatus launch(DltExec *e, int s, DltErr *err)
{
    const DltStep *step = &e->plan->step[s];
    for (int l = 0; step->wait != 0 && l < DLT_LANES; l++)
        if (step->wait >> l & 1) DLT_TRY(e->backend->wait(e->dev, step->lane, l, err));
    if (step->kernel == NULL) return DLT_OK;
    dlt_watch_enter(dlt_node_label(step->node));
    return leave_node(step->kernel->launch(&e->call[s], err), step->node, err);
}

/* The lanes meet at the end of a phase. */
static DltStatus join(DltExec *e, DltErr *err)
{
    for (int l = 1; l < e->backend->n_lane && e->backend->wait != NULL; l++)
        DLT_TRY(e->backend->wait(e->dev, 0, l, err));
    return DLT_OK;
}

DltStatus dlt_exec_launch(DltExec *e, int from, int to, DltErr *err)
{
    for (int s = from; s < to; s++)
        DLT_TRY(launch(e, s, err));
    return join(e, err);
}

/* One node at a time, for right names of late faults, times and poison. */
static DltStatus run_watched(DltExec *e, int from, int to, DltErr *err)
{
    for (int s = from; s < to; s++) {
        if (e->profiling) {
            DLT_TRY(dlt_exec_time_node(e, s, &e->step_ns[s], err));
            continue;
        }
        DLT_TRY(launch(e, s, err));
        dlt_watch_enter(dlt_node_label(e->plan->step[s].node));
        DLT_TRY(leave_node(e->backend->sync(e->dev, err), e->plan->step[s].node, err));
        DLT_TRY(poison_dead(e, s, err));
    }
    return join(e, err);
}

DltStatus dlt_exec_end_record(DltExec *e, DltStatus status, void **program, DltErr *err)
{
    DltErr unused; /* a failed launch is the report that counts */
    dlt_err_init(&unused);
    DltStatus ended = e->backend->record_end(e->dev, program, status == DLT_OK ? err : &unused);
    return status == DLT_OK ? ended : status;
}

static DltStatus record(DltExec *e, DltPhase phase, int from, int to, DltErr *err)
{
    void *program = NULL;
    DLT_TRY(e->backend->record_begin(e->dev, err));
    DLT_TRY(dlt_exec_end_record(e, dlt_exec_launch(e, from, to, err), &program, err));
    e->program[phase] = program;
    return DLT_OK;
}

DltStatus dlt_exec_run(DltExec *e, DltPhase phase, DltErr *err)
{
    int from = phase == DLT_PHASE_BATCH ? 0 : e->plan->n_batch_step;
    int to = phase == DLT_PHASE_BATCH ? e->plan->n_batch_step : e->plan->n_step;
    if (from == to) return DLT_OK;
    if (e->o.eager || e->profiling || e->poison != NULL) return run_watched(e, from, to, err);
    if (e->backend->record_begin == NULL || e->n_run[phase]++ == 0)
        return dlt_exec_launch(e, from, to, err);
    if (e->program[phase] == NULL) DLT_TRY(record(e, phase, from, to, err));
    return e->backend->replay(e->dev, e->program[phase], err);
}

DltStatus dlt_exec_watch(DltExec *e, DltPhase phase, bool (*each)(void *ctx, const DltNode *node),
                         void *ctx, DltErr *err)
{
    bool batch = phase == DLT_PHASE_BATCH;
    int to = batch ? e->plan->n_batch_step : e->plan->n_step;
    for (int s = batch ? 0 : e->plan->n_batch_step; s < to; s++) {
        DLT_TRY(run_watched(e, s, s + 1, err));
        if (!each(ctx, e->plan->step[s].node)) break;
    }
    return DLT_OK;
}

DltStatus dlt_exec_sync(DltExec *e, DltErr *err)
{
    return e->backend->sync(e->dev, err);
}

void *dlt_exec_pointer(const DltExec *e, const DltTensor *t)
{
    return e->pointer[t->id];
}

size_t dlt_exec_bytes(const DltExec *e)
{
    return e->bytes;
}

const DltPlan *dlt_exec_plan(const DltExec *e)
{
    return e->plan;
}
