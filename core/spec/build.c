/* A spec as a graph: inputs, data fetch, layers, loss, metrics; and the passes that make it a whole step. */
#include "spec/read.h"

#include "ops/norm.h"
#include "ops/step.h"

#include <inttypes.h>

/* The shape of raw data: the whole set when it is resident, one batch when it is streamed. */
static DltShape data_shape(const DltShape *sample, int64_t n)
{
    DltShape s = {.rank = sample->rank + 1, .dim = {n}};
    for (int i = 0; i < sample->rank; i++)
        s.dim[i + 1] = sample->dim[i];
    return s;
}

static DltInit values(DltArena *arena, const DltFloats *v, bool inverse)
{
    double *copy = DLT_NEW_ARRAY(arena, v->n, double);
    for (int i = 0; i < v->n; i++)
        copy[i] = inverse ? 1.0 / v->v[i] : v->v[i];
    return (DltInit){.kind = DLT_INIT_VALUES, .values = copy, .n_values = v->n};
}

/* Means and reciprocal deviations are states, so that a checkpoint evaluates without the training set. */
static void add_normalization(const DltSpec *spec, DltModelGraph *m, const DltDataset *ds)
{
    bool given = spec->data.normalize != DLT_NORM_NONE && spec->data.mean.n > 0;
    DltShape c = dlt_shape1(dlt_norm_count(ds));
    DltArena *arena = m->graph->arena;
    m->mean = dlt_state(m->build, "data.mean", c, DLT_F32,
                        given ? values(arena, &spec->data.mean, false) : dlt_init_zeros());
    m->rstd = dlt_state(m->build, "data.rstd", c, DLT_F32,
                        given ? values(arena, &spec->data.std, true) : dlt_init_ones());
}

static void add_fetch(const DltSpec *spec, const DltModelOptions *o, DltModelGraph *m)
{
    DltBuild *b = m->build;
    int split = o->split < 0 ? DLT_TRAIN : o->split;
    const DltDataset *ds = &spec->data.source[split].ds;
    int64_t rows = o->resident && o->split >= 0 ? ds->n : o->batch;
    DltFetch fetch = {.scale = ds->x_scale, .inner = 1, .batch = o->batch, .seed = spec->seed};
    if (ds->channel_axis >= 0)
        fetch.inner = dlt_shape_span(&ds->x_shape, ds->channel_axis + 1, ds->x_shape.rank);
    if (o->training) {
        DltFetch a = spec->data.augment;
        fetch.pad = a.pad, fetch.cutout = a.cutout, fetch.flip = a.flip, fetch.augment = a.augment;
    }
    b->step = m->step = dlt_input(b, "step", dlt_shape1((int64_t)sizeof(DltStepState)), DLT_U8);
    m->ticket = dlt_input(b, "ticket", dlt_shape2(o->batch, DLT_TICKET_INTS), DLT_I32);
    m->data_x = dlt_input(b, "data.x", data_shape(&ds->x_shape, rows), ds->x_dtype);
    add_normalization(spec, m, ds);
    m->x = dlt_build_op(b, DLT_OP_fetch_x, &fetch,
                        (DltTensor *const[]){m->data_x, m->ticket, m->mean, m->rstd}, 4);
    m->x->name = "input";
    if (o->split < 0) return;
    m->data_y = dlt_input(b, "data.y", data_shape(&ds->y_shape, rows), ds->y_dtype);
    DltNode *n =
        dlt_build_node(b, DLT_OP_fetch_y, &fetch, (DltTensor *const[]){m->data_y, m->ticket}, 2);
    if (!n) return;
    m->y = n->out[0];
    m->w = n->out[1];
    m->y->name = "target";
}

/* The model's outputs must be what the loss compares: one score a class, or as many values as targets. */
static DltStatus check_output(const DltSpec *spec, const DltModelGraph *m, DltErr *err)
{
    const DltDataset *ds = &spec->data.source[DLT_TRAIN].ds;
    const DltTensor *out = m->out;
    char shape[DLT_SHAPE_TEXT];
    int64_t last = dlt_dim(out, -1);
    bool classes = spec->loss->target == DLT_TARGET_CLASS;
    if (classes && ds->classes == 0)
        return dlt_err_at(
            err, DLT_E_CONFIG, spec->loss_opts.at,
            "loss.%s: needs class labels, but data.train has numbers as targets; mse fits",
            spec->loss->name);
    if (classes && last != ds->classes)
        return dlt_err_at(err, DLT_E_CONFIG, m->build->at,
                          "model: its output %s %s has %" PRId64
                          " scores, but data.train has %" PRId64 " classes; write ${data.classes}",
                          out->name, dlt_shape_text(&out->shape, shape), last, ds->classes);
    int64_t rows = dlt_shape_count(&m->y->shape), n = dlt_shape_count(&out->shape);
    if ((classes ? n / last : n) == rows) return DLT_OK;
    return dlt_err_at(err, DLT_E_CONFIG, m->build->at,
                      "model: its output %s %s does not fit the targets of data.train: %" PRId64
                      " for %" PRId64 " target values",
                      out->name, dlt_shape_text(&out->shape, shape), classes ? n / last : n, rows);
}

/* One f64 slab of accumulators with a view a metric. */
static void add_metrics(const DltSpec *spec, DltModelGraph *m)
{
    DltGraph *g = m->graph;
    int64_t n_out = dlt_dim(m->out, -1), total = 0;
    for (int i = 0; i < spec->n_metric; i++)
        total += spec->metric[i]->n_acc(n_out);
    DltShape all = dlt_shape1(total);
    g->metrics = dlt_graph_tensor(g, "state/metrics", &all, DLT_F64, DLT_STATE);
    g->metrics->saved = m->build->training; /* a resumed run goes on in the middle of a row */
    m->metric_acc = DLT_NEW_ARRAY(g->arena, spec->n_metric + 1, DltTensor *);
    int64_t at = 0;
    for (int i = 0; i < spec->n_metric; i++) {
        DltShape n = dlt_shape1(spec->metric[i]->n_acc(n_out));
        const char *name = dlt_arena_printf(g->arena, "metrics.%s", spec->metric[i]->name);
        m->metric_acc[i] = dlt_graph_view(g, name, &n, g->metrics, at);
        at += n.dim[0];
        spec->metric[i]->build(m->build, m->out, m->y, m->w, g->loss, m->metric_acc[i]);
    }
}

/* What predict shows: probabilities where the loss has them inside. */
static void add_activation(const DltSpec *spec, DltModelGraph *m)
{
    const char *name = spec->loss->activation;
    if (name && strcmp(name, "softmax") == 0) m->out = dlt_softmax(m->build, m->out);
    if (name && strcmp(name, "sigmoid") == 0)
        m->out = dlt_unary(m->build, m->out, DLT_FN_SIGMOID, 0);
    m->graph->output = m->out;
}

DltStatus dlt_spec_build(const DltSpec *spec, const DltModelOptions *o, DltModelGraph **model,
                         DltErr *err)
{
    DltModelGraph *m = DLT_NEW(spec->arena, DltModelGraph);
    m->graph = dlt_graph_new(spec->arena);
    m->build = DLT_NEW(spec->arena, DltBuild);
    dlt_build_init(m->build, m->graph, err);
    m->build->training = o->training;
    m->build->vocab = spec->data.source[DLT_TRAIN].ds.vocab;
    m->build->seed = spec->seed;
    add_fetch(spec, o, m);
    DLT_TRY(dlt_walk_model(spec, m, err));
    *model = m;
    if (o->split < 0) {
        add_activation(spec, m);
        return m->build->status;
    }
    DLT_TRY(check_output(spec, m, err));
    const char *scope = dlt_build_enter(m->build, "loss");
    m->graph->loss = spec->loss->build(m->build, &spec->loss_opts, m->out, m->y, m->w);
    add_metrics(spec, m);
    dlt_build_leave(m->build, scope);
    return m->build->status;
}

static DltDtype compute_type(int precision)
{
    return precision == DLT_PRECISION_BF16  ? DLT_BF16
           : precision == DLT_PRECISION_F16 ? DLT_F16
                                            : DLT_F32;
}

DltStatus dlt_spec_passes(const DltSpec *spec, DltModelGraph *m, const DltModelOptions *o,
                          const DltDeviceInfo *info, DltErr *err)
{
    DltPrecision precision = {compute_type(spec->train.precision)};
    if (o->training) {
        DltTensor **grad = NULL;
        DLT_TRY(dlt_pass_freeze(m->graph, &spec->train.update, err));
        DLT_TRY(dlt_pass_autodiff(m->build, &grad, err));
        DLT_TRY(dlt_pass_update(m->build, &spec->train.update, grad, err));
    }
    DLT_TRY(dlt_pass_layout(m->graph, info, err));
    DLT_TRY(dlt_pass_legalize(m->graph, &precision, err));
    DLT_TRY(dlt_pass_fuse(m->graph, spec->fuse_off, err));
    return dlt_pass_order(m->graph, err);
}

/* ---- what a config's model is checked for ---- */

static DltStatus check_params(const DltSpec *spec, const DltModelGraph *m, DltErr *err)
{
    for (int i = 0; i < spec->n_expect; i++) {
        const DltExpect *e = &spec->expect[i];
        if (strcmp(e->key, "params") != 0 || dlt_expect_holds(e, (double)m->n_param)) continue;
        return dlt_err_at(err, DLT_E_CONFIG, e->at, "expect.params: %s, but the model has %" PRId64,
                          e->text, m->n_param);
    }
    return DLT_OK;
}

DltStatus dlt_check_model(DltSpec *spec, DltErr *err)
{
    DltModelGraph *m = NULL;
    DltModelOptions o = {.training = true,
                         .split = DLT_TRAIN,
                         .batch = spec->train.micro,
                         .resident = spec->data.resident};
    DLT_TRY(dlt_spec_build(spec, &o, &m, err));
    DLT_TRY(dlt_pass_freeze(m->graph, &spec->train.update, err));
    return check_params(spec, m, err);
}
