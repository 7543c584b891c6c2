/* `train:` and `loss:`: how long, how much at a time, in which precision, and what guards the run.
 * Optimizer, groups and schedule are read in optimizer.c. */
#include "spec/read.h"

#include <inttypes.h>
#include <math.h>

static const DltEnum precision_choices[] = {
    {"f32", DLT_PRECISION_F32},
    {"tf32", DLT_PRECISION_TF32},
    {"bf16", DLT_PRECISION_BF16},
    {"f16", DLT_PRECISION_F16},
    {NULL, 0},
};
static const DltEnum recompute_choices[] = {
    {"none", DLT_RECOMPUTE_NONE},
    {"mlp", DLT_RECOMPUTE_MLP},
    {"blocks", DLT_RECOMPUTE_BLOCKS},
    {"auto", DLT_RECOMPUTE_AUTO},
    {NULL, 0},
};
static const DltEnum guard_choices[] = {
    {"stop", DLT_GUARD_STOP},
    {"skip", DLT_GUARD_SKIP},
    {"rollback", DLT_GUARD_ROLLBACK},
    {NULL, 0},
};

const DltField dlt_train_fields[] = {
    {.key = "for",
     .type = DLT_T_SPAN,
     .offset = offsetof(DltTrainOpts, length),
     .required = true,
     .lo = 0,
     .hi = 1e15,
     .open_lo = true,
     .help = "length of the run in epochs, steps (optimizer updates) or samples",
     .example = "for: 5 epochs"},
    DLT_TREE(DltTrainOpts, batch, .required = true,
             .help = "samples an optimizer update, over all devices: a number, N tokens (whole "
                     "windows) or {global, micro}",
             .example = "batch: {global: 512, micro: 128}"),
    DLT_ENUM(DltTrainOpts, precision, .def = "tf32", .choices = precision_choices,
             .help = "tf32: f32 numbers, TF32 tensor cores where the device has them; f32 is "
                     "strict; bf16, f16: products of that type with f32 master weights, f16 with a "
                     "loss scale (GPU)",
             .example = "precision: bf16"),
    DLT_TREE(DltTrainOpts, optimizer, .required = true,
             .help = "one optimizer with its options, and parameter groups",
             .example = "optimizer: {adamw: {lr: 1e-3}, groups: [{match: \"*.bias\", weight_decay: "
                        "0}]}"),
    DLT_TREE(DltTrainOpts, schedule, .help = "list of pieces of the learning rate, in order",
             .example = "schedule: [{warmup: 5 epochs}, {cosine: {to: 0}}]"),
    DLT_TREE(DltTrainOpts, clip, .help = "bound on the gradient's global norm",
             .example = "clip: {norm: 1.0}"),
    DLT_FLOAT(DltTrainOpts, ema, .def = "0", .lo = 0, .hi = 1, .open_hi = true,
              .help = "decay of the running average of the weights; 0: none",
              .example = "ema: 0.999"),
    DLT_TREE(DltTrainOpts, stop_early,
             .help = "end the run when a metric has not improved for some evaluations",
             .example = "stop_early: {patience: 5, metric: val.loss}"),
    DLT_TREE(DltTrainOpts, loss_scale,
             .help =
                 "f16: the factor on the loss that keeps small gradients from vanishing; an update "
                 "whose gradient overflows is left out",
             .example = "loss_scale: {init: 1024, interval: 500}"),
    DLT_TREE(DltTrainOpts, guard,
             .help = "what happens when the loss or a gradient is not finite, or the loss jumps",
             .example = "guard: {nonfinite: skip, limit: 10}"),
    DLT_BOOL(DltTrainOpts, deterministic, .def = "true",
             .help = "same bits on every run on one type of device",
             .example = "deterministic: false"),
    DLT_ENUM(DltTrainOpts, recompute, .def = "none", .choices = recompute_choices,
             .help = "forward results that are computed again in the backward pass: mlp: those of "
                     "activations, dropouts and row norms; blocks: everything between two residual "
                     "sums; auto: the least of these with which the run fits the device",
             .example = "recompute: blocks"),
    DLT_FIELDS_END,
};

const DltField dlt_batch_fields[] = {
    DLT_INT(DltBatchOpts, global, .required = true, .main = true, .lo = 1, .hi = 1 << 30,
            .unit = "samples", .help = "samples an optimizer update", .example = "batch: 128"),
    DLT_INT(DltBatchOpts, micro, .lo = 1, .hi = 1 << 30, .unit = "samples",
            .help = "samples at a time; gradients are summed over global / micro of them. Default: "
                    "global; auto: the most that divide global and fit three quarters of the "
                    "device's memory",
            .example = "micro: 32"),
    DLT_FIELDS_END,
};

const DltField dlt_clip_fields[] = {
    DLT_FLOAT(DltClipOpts, norm, .required = true, .main = true, .lo = 0, .hi = 1e30,
              .open_lo = true, .help = "largest global norm of the gradient (Pascanu et al. 2013)",
              .example = "norm: 1.0"),
    DLT_FIELDS_END,
};

/* Defaults as torch.amp.GradScaler's. */
const DltField dlt_loss_scale_fields[] = {
    DLT_FLOAT(DltLossScaleOpts, init, .def = "65536", .main = true, .lo = 1, .hi = 1e30,
              .help = "where the scale begins", .example = "init: 1024"),
    DLT_FLOAT(DltLossScaleOpts, growth, .def = "2", .lo = 1, .hi = 1024,
              .help = "factor after `interval` updates in a row without overflow; 1: never more",
              .example = "growth: 2"),
    DLT_FLOAT(DltLossScaleOpts, backoff, .def = "0.5", .lo = 0, .hi = 1, .open_lo = true,
              .open_hi = true, .help = "factor after an overflow; the scale does not fall below 1",
              .example = "backoff: 0.5"),
    DLT_INT(DltLossScaleOpts, interval, .def = "2000", .lo = 1, .hi = 1000000, .unit = "updates",
            .help = "updates without overflow after which the scale grows",
            .example = "interval: 500"),
    DLT_FIELDS_END,
};

const DltField dlt_stop_fields[] = {
    DLT_INT(DltStopOpts, patience, .required = true, .main = true, .lo = 1, .hi = 1000000,
            .unit = "evaluations", .help = "evaluations without improvement before the run ends",
            .example = "patience: 5"),
    DLT_STR(DltStopOpts, metric, .def = "val.loss", .help = "what must improve",
            .example = "metric: val.top1"),
    DLT_FIELDS_END,
};

const DltField dlt_guard_fields[] = {
    DLT_ENUM(DltGuardOpts, nonfinite, .def = "stop", .choices = guard_choices,
             .help = "what happens to a bad update. stop: end with exit 7; skip: leave it out and "
                     "go on; rollback: go back to the newest checkpoint and on with the samples "
                     "behind the bad ones",
             .example = "nonfinite: skip"),
    DLT_FLOAT(DltGuardOpts, loss_spike, .def = "0", .lo = 0, .hi = 1e9,
              .help = "an update is bad too when its loss is more than this many times the mean of "
                      "the last `window` losses; 0: no such rule",
              .example = "loss_spike: 3"),
    DLT_INT(DltGuardOpts, window, .def = "50", .lo = 2, .hi = DLT_GUARD_WINDOW_MAX,
            .unit = "updates", .help = "loss_spike: updates whose mean loss counts",
            .example = "window: 100"),
    DLT_INT(DltGuardOpts, limit, .def = "10", .lo = 1, .hi = 1000000,
            .help = "more bad updates in a row (skip) or rollbacks than this end the run",
            .example = "limit: 10"),
    DLT_SPAN(DltGuardOpts, hang, .def = "25 s", .lo = 0, .hi = 1e9,
             .help = "a GPU that has not answered one call for so long is given up: exit 5, with a "
                     "record in the run's folder; 0 s: wait for ever",
             .example = "hang: 2 min"),
    DLT_FIELDS_END,
};

/* The map without `micro: auto`: the session finds the number. */
static DltYaml *take_auto(DltReader *r, const DltYaml *batch)
{
    const DltYaml *micro = batch->kind == DLT_YAML_MAP ? dlt_yaml_get(batch, "micro") : NULL;
    DltTrainSpec *t = &r->spec->train;
    t->micro_auto = micro && micro->kind == DLT_YAML_SCALAR && strcmp(micro->text, "auto") == 0;
    if (!t->micro_auto) return dlt_yaml_copy(r->arena, batch);
    DltYaml *rest = dlt_yaml_map(r->arena, batch->at);
    for (int i = 0; i < batch->n; i++)
        if (batch->item[i] != micro)
            dlt_yaml_put(r->arena, rest, batch->key[i], batch->key_at[i],
                         dlt_yaml_copy(r->arena, batch->item[i]));
    return rest;
}

/* "524288 tokens" -> the number of windows that they fill, as text; other values stay. */
static DltStatus windows_of(DltReader *r, const char *path, DltYaml **value)
{
    const DltYaml *v = *value;
    DltSpan span;
    if (v->kind != DLT_YAML_SCALAR || !dlt_parse_span(v->text, &span) || span.unit != DLT_U_TOKENS)
        return DLT_OK;
    int64_t window = dlt_data_window(r->spec);
    if (window == 0)
        return dlt_err_at(r->err, DLT_E_CONFIG, v->at,
                          "%s: %s, but data.train has samples; write their number", path, v->text);
    double n = span.n / (double)window;
    if (n != floor(n) || n < 1)
        return dlt_err_at(r->err, DLT_E_CONFIG, v->at,
                          "%s: %s are no whole number of windows of %" PRId64 " tokens", path,
                          v->text, window);
    *value = dlt_yaml_scalar(r->arena, dlt_arena_printf(r->arena, "%.0f", n), v->at);
    return DLT_OK;
}

static DltStatus read_batch(DltReader *r, const DltYaml *written)
{
    DltTrainSpec *t = &r->spec->train;
    DltOpts *o = &r->spec->sections->batch;
    DltYaml *tree = take_auto(r, written);
    DLT_TRY(windows_of(r, "train.batch", &tree));
    for (int i = 0; tree->kind == DLT_YAML_MAP && i < tree->n; i++)
        DLT_TRY(windows_of(r, "train.batch", &tree->item[i]));
    DLT_TRY(dlt_schema_read(r->arena, dlt_batch_fields, sizeof(DltBatchOpts), tree,
                            (DltWhere){"train.batch", tree->at}, o, r->err));
    const DltBatchOpts *b = o->v;
    t->batch = b->global;
    t->micro = dlt_opts_given(o, offsetof(DltBatchOpts, micro)) ? b->micro : b->global;
    t->update.n_micro = t->batch / t->micro;
    if (t->micro <= t->batch && t->batch % t->micro == 0) return DLT_OK;
    return dlt_err_at(r->err, DLT_E_CONFIG, dlt_opts_mark(o, offsetof(DltBatchOpts, micro)),
                      "train.batch.micro: %" PRId64 " does not divide global %" PRId64, t->micro,
                      t->batch);
}

static DltStatus read_clip(DltReader *r, const DltYaml *tree)
{
    DltOpts *o = &r->spec->sections->clip;
    if (!tree) return DLT_OK;
    DLT_TRY(dlt_schema_read(r->arena, dlt_clip_fields, sizeof(DltClipOpts), tree,
                            (DltWhere){"train.clip", tree->at}, o, r->err));
    r->spec->train.update.clip = ((const DltClipOpts *)o->v)->norm;
    return DLT_OK;
}

static DltStatus read_stop(DltReader *r, const DltYaml *tree)
{
    DltOpts *o = &r->spec->sections->stop;
    if (!tree) return DLT_OK;
    DLT_TRY(dlt_schema_read(r->arena, dlt_stop_fields, sizeof(DltStopOpts), tree,
                            (DltWhere){"train.stop_early", tree->at}, o, r->err));
    const DltStopOpts *s = o->v;
    r->spec->train.stop_patience = (int)s->patience;
    r->spec->train.stop_metric = s->metric; /* looked up once the metrics are known */
    return DLT_OK;
}

static DltStatus read_loss_scale(DltReader *r, const DltYaml *tree)
{
    DltOpts *o = &r->spec->sections->loss_scale;
    DltUpdateConfig *u = &r->spec->train.update;
    bool f16 = r->spec->train.precision == DLT_PRECISION_F16;
    if (!tree && !f16) return DLT_OK;
    DLT_TRY(dlt_schema_read(r->arena, dlt_loss_scale_fields, sizeof(DltLossScaleOpts), tree,
                            (DltWhere){"train.loss_scale", tree ? tree->at : DLT_NO_MARK}, o,
                            r->err));
    const DltLossScaleOpts *s = o->v;
    u->scale_init = s->init;
    u->scale_growth = s->growth;
    u->scale_backoff = s->backoff;
    u->scale_interval = s->interval;
    if (f16) return DLT_OK;
    return dlt_err_at(r->err, DLT_E_CONFIG, tree->at,
                      "train.loss_scale: has no effect without precision: f16");
}

static DltStatus read_guard(DltReader *r, const DltYaml *tree)
{
    DltOpts *o = &r->spec->sections->guard;
    DLT_TRY(dlt_schema_read(r->arena, dlt_guard_fields, sizeof(DltGuardOpts), tree,
                            (DltWhere){"train.guard", tree ? tree->at : DLT_NO_MARK}, o, r->err));
    const DltGuardOpts *g = o->v;
    DltTrainSpec *t = &r->spec->train;
    t->on_bad = g->nonfinite;
    t->guard_limit = g->limit;
    t->loss_spike = g->loss_spike;
    t->spike_window = g->window;
    t->hang_s = g->hang.n;
    t->update.settle = g->nonfinite != DLT_GUARD_STOP || t->precision == DLT_PRECISION_F16;
    return dlt_guard_check(o, r->err);
}

DltStatus dlt_guard_check(const DltOpts *o, DltErr *err)
{
    const DltGuardOpts *g = o->v;
    size_t limit = offsetof(DltGuardOpts, limit), window = offsetof(DltGuardOpts, window);
    if (g->hang.unit != DLT_U_SECONDS)
        return dlt_err_at(err, DLT_E_CONFIG, dlt_opts_mark(o, offsetof(DltGuardOpts, hang)),
                          "train.guard.hang: is no time; write `25 s` or `2 min`");
    if (g->loss_spike > 0 && g->loss_spike <= 1)
        return dlt_err_at(err, DLT_E_CONFIG, dlt_opts_mark(o, offsetof(DltGuardOpts, loss_spike)),
                          "train.guard.loss_spike: %g times the mean loss is no spike; write a "
                          "factor above 1, or 0 for none",
                          g->loss_spike);
    if (g->loss_spike == 0.0 && dlt_opts_given(o, window))
        return dlt_err_at(err, DLT_E_CONFIG, dlt_opts_mark(o, window),
                          "train.guard.window: has no effect without loss_spike");
    if (g->nonfinite != DLT_GUARD_STOP || !dlt_opts_given(o, limit)) return DLT_OK;
    return dlt_err_at(err, DLT_E_CONFIG, dlt_opts_mark(o, limit),
                      "train.guard.limit: has no effect with nonfinite: stop");
}

DltStatus dlt_read_train(DltReader *r, const DltYaml *tree)
{
    DltTrainSpec *t = &r->spec->train;
    DltOpts *opts = &r->spec->sections->train;
    DltStatus status = dlt_read_fields(r, dlt_train_fields, sizeof(DltTrainOpts), tree, "train",
                                       DLT_NO_MARK, opts);
    const DltTrainOpts *o = opts->v;
    if (!o) return status;
    t->length = o->length;
    t->precision = o->precision;
    t->deterministic = o->deterministic;
    t->recompute = (DltRecompute)o->recompute;
    t->update.ema = o->ema;
    t->ema_on = o->ema > 0.0;
    if (o->batch) status = dlt_first(status, read_batch(r, o->batch));
    if (o->optimizer) status = dlt_first(status, dlt_read_optimizer(r, o->optimizer));
    status = dlt_first(status, dlt_read_schedule(r, o->schedule));
    status = dlt_first(status, read_clip(r, o->clip));
    status = dlt_first(status, read_stop(r, o->stop_early));
    status = dlt_first(status, read_loss_scale(r, o->loss_scale));
    return dlt_first(status, read_guard(r, o->guard));
}

DltStatus dlt_read_loss(DltReader *r, const DltYaml *tree)
{
    DltSpec *spec = r->spec;
    DltYaml *item = NULL;
    DltPickRule rule = {"loss", DLT_REG_LOSS, dlt_registry_names(r->arena, DLT_REG_LOSS, NULL),
                        NULL};
    DltPick pick;
    DLT_TRY(dlt_expand(r->arena, &r->scope, tree, &item, r->err));
    DLT_TRY(dlt_pick(item, &rule, &pick, r->err));
    spec->loss = dlt_loss_find(pick.kind);
    DLT_TRY(dlt_schema_read(r->arena, spec->loss->fields, spec->loss->opt_size, pick.value,
                            (DltWhere){dlt_arena_printf(r->arena, "loss.%s", pick.kind), pick.at},
                            &spec->loss_opts, r->err));
    return spec->loss->check ? spec->loss->check(&spec->loss_opts, r->err) : DLT_OK;
}
