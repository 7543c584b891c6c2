/* A spec as a graph: inputs, data fetch, layers, loss, metrics; and the passes that make it a whole step. */
#include "spec/read.h"

#include "base/log.h"
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
    if (o->split >= 0) fetch.mask = spec->data.mask;
    b->step = m->step = dlt_input(b, "step", dlt_shape1((int64_t)sizeof(DltStepState)), DLT_U8);
    m->ticket = dlt_input(b, "ticket", dlt_shape2(o->batch, DLT_TICKET_INTS), DLT_I32);
    DltShape sample = ds->x_shape;
    if (o->decode || o->fill > 0) {
        b->context = sample.dim[0];
        sample = dlt_shape1(o->decode ? 1 : o->fill);
        b->filling = o->fill > 0;
    }
    if (o->decode) b->place = m->place = dlt_input(b, "place", dlt_shape1(1), DLT_I32);
    m->data_x = dlt_input(b, "data.x", data_shape(&sample, rows), ds->x_dtype);
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

/* The model's outputs must be what the loss compares: one score a class, or as many values as targets. A
 * vocabulary may be rounded up, so that matrix products have round sizes: scores of ids that never come
 * learn to be small. */
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
    if (classes && (last < ds->classes || (ds->vocab == 0 && last > ds->classes)))
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

/* What predict shows: the loss's activation, which is a layer, on the outputs. */
static void add_activation(const DltSpec *spec, DltModelGraph *m, DltErr *err)
{
    const DltLayerDef *def = spec->loss->activation ? dlt_layer_find(spec->loss->activation) : NULL;
    DltOpts o = {0};
    if (!def) return;
    DltStatus status = dlt_schema_read(m->graph->arena, def->fields, def->opt_size, NULL,
                                       (DltWhere){def->name, spec->loss_opts.at}, &o, err);
    DLT_BUG_ON(status != DLT_OK); /* activations need no options */
    m->out = def->build(m->build, &o, &m->out, 1);
    m->graph->output = m->out;
}

static DltModelGraph *new_model(const DltSpec *spec, bool training, DltErr *err)
{
    DltModelGraph *m = DLT_NEW(spec->arena, DltModelGraph);
    m->graph = dlt_graph_new(spec->arena);
    m->build = DLT_NEW(spec->arena, DltBuild);
    dlt_build_init(m->build, m->graph, err);
    m->build->training = training;
    m->build->vocab = spec->data.source[DLT_TRAIN].ds.vocab;
    m->build->seed = spec->seed;
    return m;
}

static DltStatus add_loss(const DltSpec *spec, DltModelGraph *m, DltErr *err)
{
    DLT_TRY(check_output(spec, m, err));
    m->build->at = spec->loss_opts.at;
    const char *scope = dlt_build_enter(m->build, "loss");
    m->graph->loss = spec->loss->build(m->build, &spec->loss_opts, m->out, m->y, m->w);
    add_metrics(spec, m);
    dlt_build_leave(m->build, scope);
    return m->build->status;
}

/* The loss scale of f16, which is part of the run's state; the step's nodes find it in `step`. */
static void add_scaler(const DltSpec *spec, DltModelGraph *m)
{
    DltBuild *b = m->build;
    double *values = DLT_NEW_ARRAY(m->graph->arena, DLT_SCALER, double);
    values[DLT_SCALER_SCALE] = spec->train.update.scale_init;
    DltInit init = {.kind = DLT_INIT_VALUES, .values = values, .n_values = DLT_SCALER};
    b->scaler = dlt_state(b, "state/loss_scale", dlt_shape1(DLT_SCALER), DLT_F32, init);
    (void)dlt_build_node(b, DLT_OP_scale_loss, NULL, (DltTensor *const[]){b->step, b->scaler}, 2);
}

/* What lies behind the last kept keys and values is not computed. */
static void cut_fill(DltModelGraph *m)
{
    DltGraph *g = m->graph;
    while (g->n_node > 0 &&
           (!g->node[g->n_node - 1]->out[0] || g->node[g->n_node - 1]->out[0]->role != DLT_STATE))
        g->n_node--;
    m->out = g->output = NULL;
}

static DltStatus build(const DltSpec *spec, const DltModelOptions *o, DltYaml *out,
                       DltModelGraph **model, DltErr *err)
{
    DltModelGraph *m = new_model(spec, o->training, err);
    add_fetch(spec, o, m);
    if (o->training && spec->train.precision == DLT_PRECISION_F16) add_scaler(spec, m);
    DLT_TRY(dlt_walk_model(spec, m, out, err));
    *model = m;
    if (o->split >= 0) return add_loss(spec, m, err);
    if (o->fill > 0) {
        cut_fill(m);
        return m->build->status;
    }
    m->graph->output = m->out;
    if (!o->scores) add_activation(spec, m, err);
    return m->build->status;
}

DltStatus dlt_spec_build(const DltSpec *spec, const DltModelOptions *o, DltModelGraph **model,
                         DltErr *err)
{
    return build(spec, o, NULL, model, err);
}

static DltDtype compute_type(int precision)
{
    return precision == DLT_PRECISION_BF16  ? DLT_BF16
           : precision == DLT_PRECISION_F16 ? DLT_F16
                                            : DLT_F32;
}

static DltStatus check_precision(const DltSpec *spec, DltDtype type, const DltDeviceInfo *info,
                                 DltErr *err)
{
    bool missing = (type == DLT_BF16 && !info->has_bf16) || (type == DLT_F16 && !info->has_f16);
    if (!missing) return DLT_OK;
    DltMark at = dlt_opts_mark(&spec->sections->train, offsetof(DltTrainOpts, precision));
    return dlt_err_at(
        err, DLT_E_CONFIG, at,
        "train.precision: this device (%s) has no kernels for %s; tf32 and f32 are there",
        info->name, dlt_dtype_name(type));
}

/* The rules that are not used: those the config names, bits for relu's mask on devices whose own layout does
 * not have a byte's eight channels side by side, and there, on a CPU, those whose node has no fast kernel. */
static const char *const *rules_off(const DltSpec *spec, DltArena *arena, const DltDeviceInfo *info)
{
    static const char *const other[] = {"batch_norm_bits", "activation_backward", "norm_bias",
                                        "classifier"};
    enum { OTHERS = sizeof other / sizeof other[0] };
    int n = 0;
    if (info->image_layout == DLT_NHWC) return spec->fuse_off;
    while (spec->fuse_off && spec->fuse_off[n])
        n++;
    const char **off = DLT_NEW_ARRAY(arena, n + OTHERS + 1, const char *);
    for (int i = 0; i < n; i++)
        off[i] = spec->fuse_off[i];
    for (int i = 0; i < OTHERS; i++)
        off[n + i] = other[i];
    return off;
}

DltStatus dlt_spec_passes(const DltSpec *spec, DltModelGraph *m, const DltModelOptions *o,
                          const DltDeviceInfo *info, DltErr *err)
{
    DltPrecision precision = {compute_type(spec->train.precision)};
    DLT_TRY(check_precision(spec, precision.compute, info, err));
    if (o->training) {
        DltTensor **grad = NULL;
        DLT_TRY(dlt_pass_freeze(m->graph, &spec->train.update, err));
        int n_forward = m->graph->n_node;
        DLT_TRY(dlt_pass_autodiff(m->build, &grad, err));
        DLT_TRY(dlt_pass_filters(m->graph, info, grad, err)); /* before convolutions are doubled */
        DLT_TRY(dlt_pass_recompute(m->graph, n_forward, spec->train.recompute, err));
        DLT_TRY(dlt_pass_update(m->build, &spec->train.update, grad, err));
    } else {
        DLT_TRY(dlt_pass_filters(m->graph, info, NULL, err));
    }
    DltDeviceInfo image = *info;
    if (precision.compute != DLT_F32 && info->low_block > 0) {
        image.image_layout = info->low_layout;
        image.image_block = info->low_block;
    }
    DLT_TRY(dlt_pass_layout(m->graph, &image, err));
    DLT_TRY(dlt_pass_legalize(m->graph, &precision, err));
    DLT_TRY(dlt_pass_fuse(m->graph, info, rules_off(spec, m->graph->arena, info), err));
    return dlt_pass_order(m->graph, err);
}

/* ---- what a config's model is checked for ---------------------------------------------------- */

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

/* Batches of the training stream are always full, so only micro batches can leave one value. */
static DltStatus check_batch_norm(const DltSpec *spec, const DltModelGraph *m, DltErr *err)
{
    for (int i = 0; i < m->graph->n_node; i++) {
        const DltNode *n = m->graph->node[i];
        char shape[DLT_SHAPE_TEXT];
        if (n->kind != DLT_OP_batch_norm_fwd) continue;
        const DltShape *x = &n->in[0]->shape;
        if (dlt_shape_count(x) > x->dim[1]) continue;
        return dlt_err_at(err, DLT_E_CONFIG, n->at,
                          "%s: its input %s %s has one value a channel, which has no variance; "
                          "train.batch must be more than %" PRId64 " at a time",
                          n->name, n->in[0]->name, dlt_shape_text(x, shape), spec->train.micro);
    }
    return DLT_OK;
}

static DltStatus check_trainable(const DltSpec *spec, const DltModelGraph *m, DltErr *err)
{
    const DltGraph *g = m->graph;
    for (int i = 0; i < g->n_tensor; i++)
        if (g->tensor[i]->role == DLT_PARAM && g->tensor[i]->trainable) return DLT_OK;
    return dlt_err_at(err, DLT_E_CONFIG, spec->model->at, "model: %s",
                      m->n_param > 0 ? "every parameter is frozen (train.optimizer.groups)"
                                     : "it has no parameters; nothing can be trained");
}

/* A line of advice: convolutions that work on maps of at most 4x4 points see little of an image. */
static void advise_map_sizes(const DltModelGraph *m)
{
    enum { SMALL = 4 };
    const DltNode *first = NULL;
    int n_conv = 0, n_small = 0;
    for (int i = 0; i < m->graph->n_node; i++) {
        const DltNode *n = m->graph->node[i];
        if (n->kind != DLT_OP_conv_fwd) continue;
        const DltShape *x = &n->in[0]->shape;
        bool small = x->dim[2] <= SMALL && x->dim[3] <= SMALL;
        n_conv++;
        n_small += small;
        if (small && !first) first = n;
    }
    if (!first || 2 * n_small <= n_conv) return;
    dlt_log("note: %d of %d convolutions work on maps of 4x4 points or less, the first being %s; "
            "smaller strides in front keep more of the image",
            n_small, n_conv, first->name);
}

/* Options and names, and shapes where the data set tells the first one: everything built on a poisoned
 * input is poison. Without a batch size, which another section got wrong, two samples stand for it. */
static DltStatus check_walk(const DltSpec *spec, DltKnown known, DltErr *err)
{
    DltModelGraph *m = new_model(spec, true, err);
    DltModelOptions o = {.training = true, .split = -1, .batch = 2};
    if (spec->train.micro > 0) o.batch = spec->train.micro;
    if (known == DLT_KNOWN_SHAPES) {
        add_fetch(spec, &o, m);
    } else {
        m->build->status = DLT_E_CONFIG;
        m->x = dlt_build_poison(m->build);
    }
    int before = err->n + err->n_dropped;
    (void)!dlt_walk_model(spec, m, NULL, err);
    return err->n + err->n_dropped > before ? DLT_E_CONFIG : DLT_OK;
}

DltStatus dlt_check_model(DltSpec *spec, DltKnown known, DltErr *err)
{
    DltModelGraph *m = NULL;
    DltModelOptions o = {.training = true,
                         .split = DLT_TRAIN,
                         .batch = spec->train.micro,
                         .resident = spec->data.resident};
    if (known != DLT_KNOWN_ALL) return check_walk(spec, known, err);
    spec->sections->model = dlt_yaml_list(spec->arena, DLT_NO_MARK);
    DLT_TRY(build(spec, &o, spec->sections->model, &m, err));
    DLT_TRY(dlt_pass_freeze(m->graph, &spec->train.update, err));
    DLT_TRY(check_trainable(spec, m, err));
    DLT_TRY(check_batch_norm(spec, m, err));
    DLT_TRY(check_params(spec, m, err));
    advise_map_sizes(m);
    return DLT_OK;
}
