/* What this machine reaches at best: a large product in the compute type, and a large copy. Measured with
 * the kernels that training would take, so that a node's share of it tells how much is left. */
#include "base/half.h"
#include "base/rng.h"
#include "base/sys.h"
#include "exec/bound.h"
#include "exec/session.h"
#include "ops/matmul.h"

enum { TRIES = 4 };
typedef struct Sizes {
    int64_t width, elements; /* of the product's square matrices; of the copy, f32 */
} Sizes;
static const Sizes host_sizes = {1024, 16 << 20}, device_sizes = {4096, 64 << 20};

/* The device of the session, with a graph of one node. */
typedef struct Trial {
    DltSession *s;
    DltArena *arena;
    DltGraph *g;
    DltBuild *b;
} Trial;

static DltTensor *input(const Trial *t, const char *name, DltShape shape, DltDtype dtype)
{
    return dlt_graph_tensor(t->g, name, &shape, dtype, DLT_INPUT);
}

/* Values in [-1, 1): with zeros a device would need less power and run faster. */
static DltStatus fill(DltExec *e, const DltTensor *x, DltErr *err)
{
    int64_t n = dlt_shape_count(&x->shape);
    void *host = dlt_sys_alloc((size_t)dlt_tensor_bytes(x));
    if (host == NULL) return dlt_err(err, DLT_E_RESOURCE, "out of host memory for the peaks");
    DltReal *real = host;
    uint16_t *half = host;
    for (int64_t i = 0; i < n; i++) {
        double v = dlt_rng_uniform(1, 1, (uint64_t)i % 65536) * 2 - 1;
        if (x->dtype == DLT_F32) real[i] = (DltReal)v;
        if (x->dtype == DLT_BF16) half[i] = dlt_bf16_from((float)v);
        if (x->dtype == DLT_F16) half[i] = dlt_f16_from((float)v);
    }
    DltStatus status = dlt_exec_write(e, x, host, err);
    dlt_sys_free(host);
    return status;
}

/* Least time of the graph's node, in seconds. */
static DltStatus time_node(const Trial *t, double *s, DltErr *err)
{
    DltPlan *plan = NULL;
    DltExec *e = NULL;
    const DltPlanOptions po = {.mean = false};
    const DltExecOptions eo = {.seed = 1};
    int64_t least = INT64_MAX;
    DLT_TRY(dlt_plan_make(t->arena, t->g, t->s->backend, t->s->dev, &po, &plan, err));
    DLT_TRY(dlt_exec_new(t->arena, plan, &eo, &e, err));
    for (int i = 0; i < t->g->n_tensor; i++)
        if (t->g->tensor[i]->role == DLT_INPUT) DLT_TRY(fill(e, t->g->tensor[i], err));
    DLT_TRY(dlt_exec_run(e, DLT_PHASE_BATCH, err)); /* libraries warm up */
    DLT_TRY(dlt_exec_sync(e, err));
    for (int i = 0; i < TRIES; i++) {
        int64_t ns = 0;
        DLT_TRY(dlt_exec_time_node(e, 0, &ns, err));
        if (ns > 0 && ns < least) least = ns;
    }
    dlt_exec_free(e);
    *s = (double)least * 1e-9;
    return DLT_OK;
}

static DltStatus start(Trial *t, DltSession *s, DltErr *err)
{
    *t = (Trial){.s = s, .arena = s->arena, .g = dlt_graph_new(s->arena)};
    t->b = DLT_NEW(s->arena, DltBuild);
    dlt_build_init(t->b, t->g, err);
    return DLT_OK;
}

DltStatus dlt_peaks(DltSession *s, DltDtype dtype, DltPeaks *p, DltErr *err)
{
    const Sizes *n = s->backend->record_begin != NULL ? &device_sizes : &host_sizes;
    DltShape square = dlt_shape2(n->width, n->width), row = dlt_shape1(n->elements);
    double product_s = 0, copy_s = 0, width = (double)n->width;
    Trial t;
    DLT_TRY(start(&t, s, err));
    (void)dlt_matmul(t.b, input(&t, "peak.a", square, dtype), input(&t, "peak.b", square, dtype),
                     false, true);
    DLT_TRY(time_node(&t, &product_s, err));
    DLT_TRY(start(&t, s, err));
    (void)dlt_copy(t.b, input(&t, "peak.x", row, DLT_F32));
    DLT_TRY(time_node(&t, &copy_s, err));
    *p = (DltPeaks){.flops = 2 * width * width * width / product_s,
                    .bytes = 2 * 4 * (double)n->elements / copy_s};
    return DLT_OK;
}
