/* Rows into graphs, values and runs: what the drivers have in common. */
#include "base/log.h"
#include "base/sys.h"
#include "cpu/plain.h"
#include "ops/data_ops.h"
#include "ops/step.h"
#include "ops/update_ops.h"
#include "tests/cases/cases.h"
#include <math.h>
#include <string.h>

static void give_up(const char *what, const DltErr *err)
{
    fprintf(stderr, "case %s: ", what);
    if (err != NULL) dlt_err_print(err, stderr);
    abort();
}

static uint64_t seed_of(const Case *c)
{
    char name[512];
    case_name(c, name, sizeof name);
    return dlt_hash(name, strlen(name), 0);
}

void case_name(const Case *c, char *text, size_t n)
{
    size_t at = (size_t)snprintf(text, n, "%s", dlt_ops[c->kind]->name);
    for (int i = 0; i < DLT_MAX_IN && c->in[i].rank > 0 && c->in[i].fill != STEP; i++) {
        for (int d = 0; d < c->in[i].rank && at < n; d++) {
            at += (size_t)snprintf(text + at, n - at, "%s%lld", d == 0 ? " [" : ",",
                                   (long long)c->in[i].dim[d]);
        }
        if (at < n) at += (size_t)snprintf(text + at, n - at, "]");
    }
    if (at < n) snprintf(text + at, n - at, " {%s}", c->why);
}

static DltDtype constant_dtype(CaseFill fill)
{
    static const DltDtype special[N_FILL] = {
        [ID] = DLT_I32,  [LABEL] = DLT_I32,     [TICKET] = DLT_I32, [BYTE] = DLT_U8,
        [STEP] = DLT_U8, [LOSS_PAIR] = DLT_F64, [DOUBLE] = DLT_F64,
    };
    return special[fill]; /* DLT_F32 is 0 */
}

static DltTensor *add_input(CaseGraph *g, const CaseIn *in, int i, DltDtype low)
{
    char name[16];
    DltShape shape = {.rank = in->rank};
    const DltDtype dtypes[] = {
        [ACTIVATION] = low,    [WEIGHT] = low,
        [PARAMETER] = DLT_F32, [CONSTANT] = constant_dtype(in->fill),
        [NARROW] = DLT_BF16,
    };
    DltDtype dtype = dtypes[in->use];
    memcpy(shape.dim, in->dim, sizeof shape.dim);
    snprintf(name, sizeof name, "in%d", i);
    return dlt_graph_tensor(g->graph, name, &shape, dtype, DLT_INPUT);
}

/* dout tensors, and the nodes of the op's gradient rule. */
static void add_gradient(const Case *c, DltBuild *b, CaseGraph *g)
{
    enum { TENSORS = 256 };
    bool *needs = DLT_NEW_ARRAY(g->arena, TENSORS, bool);
    uint32_t wanted = c->dout != 0 ? c->dout : 1;
    bool loss = g->node->out[0]->dtype == DLT_F64;
    for (int i = 0; i < DLT_MAX_OUT && !loss; i++) {
        char name[16];
        const DltTensor *out = g->node->out[i];
        if (out == NULL || !(wanted >> i & 1)) continue;
        snprintf(name, sizeof name, "dout%d", i);
        g->dout[i] = dlt_graph_tensor(g->graph, name, &out->shape, out->dtype, DLT_INPUT);
    }
    for (int i = 0; i < DLT_MAX_IN; i++) {
        if (g->in[i] == NULL) continue;
        DLT_BUG_ON(g->in[i]->id >= TENSORS);
        needs[g->in[i]->id] = c->in[i].use < CONSTANT;
    }
    b->needs = needs;
    g->node->op->grad(b, g->node, g->dout, g->din);
    for (int i = 0; i < DLT_MAX_IN; i++) {
        if (g->in[i] == NULL || c->in[i].use >= CONSTANT) g->din[i] = NULL;
    }
}

void case_build(const Case *c, DltDtype low, bool gradient, CaseGraph *g)
{
    char name[512];
    DltErr err;
    DltBuild b;
    int n_in = 0;
    *g = (CaseGraph){.arena = dlt_arena_new()};
    case_name(c, name, sizeof name);
    if (g->arena == NULL) give_up(name, NULL);
    g->graph = dlt_graph_new(g->arena);
    dlt_err_init(&err);
    dlt_build_init(&b, g->graph, &err);
    b.training = true;
    for (int i = 0; i < DLT_MAX_IN; i++) {
        if (c->in[i].use == UNUSED) continue;
        g->in[i] = add_input(g, &c->in[i], i, low);
        n_in = i + 1;
    }
    g->node = dlt_build_node(&b, c->kind, c->attr, g->in, n_in);
    if (g->node == NULL) give_up(name, &err);
    if (gradient && g->node->op->grad != NULL && !c->forward_only) add_gradient(c, &b, g);
    if (dlt_build_failed(&b)) give_up(name, &err);
}

/* ---- values -------------------------------------------------------------------------------- */

typedef struct Draw {
    uint64_t seed, stream;
    int64_t n, width, hi;
} Draw;

static double uniform(const Draw *d, int64_t i)
{
    return dlt_rng_uniform(d->seed, d->stream, (uint64_t)i);
}

static double normal(const Draw *d, int64_t i)
{
    return dlt_rng_normal(d->seed, d->stream, (uint64_t)i);
}

static double away(const Draw *d, int64_t i)
{
    double x = normal(d, i);
    return x + (x < 0 ? -0.1 : 0.1);
}

static double positive(const Draw *d, int64_t i)
{
    return 0.5 + 1.5 * uniform(d, i);
}

static double distinct(const Draw *d, int64_t i)
{
    return 0.1 * (double)(dlt_rng_permute(d->seed, d->stream, d->n, i) - d->n / 2) + 0.05;
}

static double whole(const Draw *d, int64_t i)
{
    return floor(uniform(d, i) * 7) - 3;
}

static double between(const Draw *d, int64_t i)
{
    return whole(d, i) + 0.2 + 0.6 * dlt_rng_uniform(d->seed, d->stream + 1, (uint64_t)i);
}

static double zero_rows(const Draw *d, int64_t i)
{
    return i / d->width % 2 == 0 ? 0 : normal(d, i);
}

static double zero(const Draw *d, int64_t i)
{
    (void)d, (void)i;
    return 0;
}

static double bit(const Draw *d, int64_t i)
{
    return uniform(d, i) < 0.5 ? 0 : 1;
}

static double weights(const Draw *d, int64_t i)
{
    (void)d;
    return (double[]){1, 0, 1, 2, 1}[i % 5];
}

static double loss_pair(const Draw *d, int64_t i)
{
    (void)d;
    return 3.0 + (double)i;
}

static double coef(const Draw *d, int64_t i)
{
    (void)d;
    return (double[]){0.7, 3.1, 0, 0}[i % 4];
}

static double coef_skip(const Draw *d, int64_t i)
{
    (void)d;
    return (double[]){0.7, 3.1, 1, 0}[i % 4];
}

static double (*const real_values[N_FILL])(const Draw *d, int64_t i) = {
    [NORMAL] = normal,   [AWAY] = away,           [POSITIVE] = positive,   [DISTINCT] = distinct,
    [BETWEEN] = between, [WHOLE] = whole,         [ZERO_ROWS] = zero_rows, [ZERO] = zero,
    [BIT] = bit,         [WEIGHTS] = weights,     [LOSS_PAIR] = loss_pair, [DOUBLE] = normal,
    [COEF] = coef,       [COEF_SKIP] = coef_skip,
};

static int32_t whole_value(const Draw *d, CaseFill fill, int64_t i)
{
    int32_t below = (int32_t)(uniform(d, i) * (double)(d->hi > 0 ? d->hi : 256));
    if (fill == LABEL && i % 5 == 3) return -100;
    if (fill != TICKET) return below;
    bool last = i / DLT_TICKET_INTS == d->n / DLT_TICKET_INTS - 1;
    const int32_t ticket[DLT_TICKET_INTS] = {
        [DLT_TICKET_ROW] = below,
        [DLT_TICKET_SAMPLE] = (int32_t)(17 + i),
        [DLT_TICKET_EPOCH] = 3,
        [DLT_TICKET_VALID] = last ? 0 : 1,
    };
    return ticket[i % DLT_TICKET_INTS];
}

static void fill_numbers(const Draw *d, CaseFill fill, DltDtype dtype, void *values)
{
    size_t bytes = dlt_dtype_bytes(dtype);
    for (int64_t i = 0; i < d->n; i++) {
        bool whole_number = dtype == DLT_I32 || dtype == DLT_U8;
        double x = whole_number ? (double)whole_value(d, fill, i) : real_values[fill](d, i);
        dlt_cast_run(DLT_F64, &x, dtype, (char *)values + (size_t)i * bytes, 1);
    }
}

void case_fill(const Case *c, const CaseGraph *g, const DltTensor *t, void *values)
{
    CaseFill fill = NORMAL; /* of a dout */
    int64_t n = dlt_shape_count(&t->shape);
    Draw d = {.seed = seed_of(c), .stream = (uint64_t)t->id * 16, .n = n};
    d.width = t->shape.rank > 0 ? t->shape.dim[t->shape.rank - 1] : 1;
    for (int i = 0; i < DLT_MAX_IN; i++) {
        if (g->in[i] != t) continue;
        fill = c->in[i].fill;
        d.hi = c->in[i].hi;
    }
    if (fill == STEP) {
        *(DltStepState *)values = (DltStepState){.seed = 1234,
                                                 .update = d.hi > 0 ? d.hi : 3,
                                                 .batch = 5,
                                                 .micro = 1,
                                                 .n_micro = 2,
                                                 .lr = 0.125F,
                                                 .loss_scale = 8,
                                                 .sample_weight = 2.5};
        return;
    }
    fill_numbers(&d, fill, t->dtype, values);
}

/* ---- runs ---------------------------------------------------------------------------------- */

void case_values_new(const CaseGraph *g, CaseValues *v)
{
    v->n = g->graph->n_tensor;
    v->at = dlt_sys_alloc((size_t)v->n * sizeof *v->at);
    for (int i = 0; i < v->n; i++) {
        const DltTensor *t = g->graph->tensor[i];
        size_t bytes = (size_t)dlt_tensor_bytes(t);
        v->at[i] = t->view_of == NULL ? dlt_sys_alloc(bytes) : NULL;
        if (v->at[i] != NULL) memset(v->at[i], 0xFF, bytes); /* NaN */
    }
}

void case_values_free(CaseValues *v)
{
    for (int i = 0; i < v->n; i++)
        dlt_sys_free(v->at[i]);
    dlt_sys_free(v->at);
    *v = (CaseValues){NULL, 0};
}

static void *address(const CaseValues *v, const DltTensor *t)
{
    if (t == NULL) return NULL;
    if (t->view_of == NULL) return v->at[t->id];
    return (char *)v->at[t->view_of->id] + (size_t)t->view_offset * dlt_dtype_bytes(t->dtype);
}

void case_operands(const CaseValues *v, const DltNode *n, void *in[DLT_MAX_IN],
                   void *out[DLT_MAX_OUT])
{
    for (int i = 0; i < DLT_MAX_IN; i++)
        in[i] = address(v, n->in[i]);
    for (int i = 0; i < DLT_MAX_OUT; i++)
        out[i] = address(v, n->out[i]);
}

void case_run(DltDevice *dev, const DltKernel *k, const DltNode *n, void *const in[],
              void *const out[])
{
    DltErr err;
    DltPrep p = {.arena = dlt_arena_new()};
    dlt_err_init(&err);
    DltStatus status = k->prepare != NULL ? k->prepare(n, dev, &p, &err) : DLT_OK;
    if (status != DLT_OK) give_up(k->name, &err);
    void *work = dlt_sys_alloc(p.work_bytes);
    memset(work, 0xFF, p.work_bytes);
    DltCall call = {n, in, out, work, p.state, dlt_backend_cpu.stream(dev, 0)};
    if (k->launch(&call, &err) != DLT_OK) give_up(k->name, &err);
    dlt_sys_free(work);
    dlt_arena_free(p.arena);
}

const DltKernel *case_plain_kernel(DltDevice *dev, const DltNode *n)
{
    const DltKernel *const *k = dlt_backend_cpu.kernels(dev, n->kind);
    const DltKernel *plain = NULL;
    for (; *k != NULL; k++) {
        if (strstr((*k)->name, ".cpu.plain") != NULL) plain = *k;
    }
    DLT_BUG_ON(plain == NULL && !n->op->view);
    return plain;
}

DltStatus case_op(DltDevice *dev, DltOpKind kind, const void *attr, const CaseOperand *in, int n_in,
                  void *const out[DLT_MAX_OUT], DltErr *err)
{
    DltBuild b;
    DltTensor *tensors[DLT_MAX_IN] = {NULL};
    void *at[DLT_MAX_IN] = {NULL};
    DltPrep p = {.arena = dlt_arena_new()};
    dlt_build_init(&b, dlt_graph_new(p.arena), err);
    for (int i = 0; i < n_in; i++) {
        at[i] = in[i].at;
        if (at[i] == NULL) continue;
        tensors[i] = dlt_graph_tensor(b.graph, "operand", &in[i].shape, in[i].dtype, DLT_INPUT);
    }
    DltNode *n = dlt_build_node(&b, kind, attr, tensors, n_in);
    if (n == NULL) give_up(dlt_ops[kind]->name, err);
    const DltKernel *k = case_plain_kernel(dev, n);
    DltStatus status = k->prepare != NULL ? k->prepare(n, dev, &p, err) : DLT_OK;
    if (status != DLT_OK) give_up(k->name, err);
    void *work = dlt_sys_alloc(p.work_bytes);
    DltCall call = {n, at, out, work, p.state, dlt_backend_cpu.stream(dev, 0)};
    status = k->launch(&call, err);
    dlt_sys_free(work);
    dlt_arena_free(p.arena);
    return status;
}

DltDevice *case_cpu_device(DltArena *arena, int n_thread)
{
    DltErr err;
    DltDevice *dev;
    DltDeviceOptions o = {.n_thread = n_thread}; /* no folder: no plug-in */
    dlt_err_init(&err);
    dlt_log_level(DLT_LOG_QUIET);
    if (dlt_backend_cpu.open(arena, &o, &dev, &err) != DLT_OK) give_up("device", &err);
    return dev;
}
