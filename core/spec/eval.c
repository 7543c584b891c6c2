/* `eval:`, `checkpoint:`, `log:` and the metric names that several sections use. Metrics fit the
 * loss: class metrics with class targets, value metrics with values. */
#include "spec/read.h"

static const DltEnum weights_choices[] = {
    {"raw", DLT_WEIGHTS_RAW},
    {"ema", DLT_WEIGHTS_EMA},
    {NULL, 0},
};

const DltField dlt_eval_fields[] = {
    DLT_SPAN(DltEvalOpts, every, .def = "1 epochs", .lo = 0, .hi = 1e15, .open_lo = true,
             .help = "how often val is measured (test, when there is no val and this is written)",
             .example = "every: 250 steps"),
    DLT_STRS(DltEvalOpts, metrics, .help = "what is measured; default: what fits the loss",
             .example = "metrics: [top1, top5]"),
    DLT_ENUM(DltEvalOpts, weights, .def = "raw", .choices = weights_choices,
             .help = "weights that are measured: raw, or ema (needs train.ema)",
             .example = "weights: ema"),
    DLT_TREE(DltEvalOpts, sample,
             .help = "number of tokens that a model of text writes into the log behind each "
                     "evaluation, or {tokens, prompt, temperature}",
             .example = "sample: {tokens: 200, prompt: \"KING:\"}"),
    DLT_FIELDS_END,
};

const DltField dlt_sample_fields[] = {
    DLT_INT(DltSampleOpts, tokens, .required = true, .main = true, .lo = 1, .hi = 1 << 20,
            .unit = "tokens", .help = "length of the text", .example = "tokens: 200"),
    DLT_STR(DltSampleOpts, prompt,
            .help = "what it goes on with; default: the beginning of a document, or a new line",
            .example = "prompt: \"KING:\""),
    DLT_FLOAT(DltSampleOpts, temperature, .def = "0.8", .lo = 0, .hi = 100,
              .help = "scores are divided by it before one is drawn; 0: the likeliest token",
              .example = "temperature: 0"),
    DLT_FIELDS_END,
};

const DltField dlt_checkpoint_fields[] = {
    DLT_STR(DltCheckpointOpts, every, .def = "60 s",
            .help = "how often last.bin is written: a span, a time, or both joined by `or`",
            .example = "every: 1000 steps or 30 min"),
    DLT_TREE(DltCheckpointOpts, keep, .help = "which checkpoints stay",
             .example = "keep: {last: 2, best: 1 by val.top1 max, every: 20000 steps}"),
    DLT_FIELDS_END,
};

const DltField dlt_keep_fields[] = {
    DLT_INT(DltKeepOpts, last, .def = "1", .lo = 0, .hi = 1000,
            .help = "number of step-N.bin kept besides last.bin", .example = "last: 2"),
    DLT_STR(DltKeepOpts, best,
            .help = "the metric that decides about best.bin and its direction, or none; default: "
                    "the first metric of val",
            .example = "best: 1 by val.top1 max"),
    DLT_SPAN(DltKeepOpts, every, .lo = 0, .hi = 1e15, .open_lo = true,
             .help = "checkpoints at these multiples stay for ever",
             .example = "every: 20000 steps"),
    DLT_FIELDS_END,
};

const DltField dlt_log_fields[] = {
    DLT_SPAN(DltLogOpts, every, .lo = 0, .hi = 1e15, .open_lo = true,
             .help = "how often a row of metrics.csv and a line of progress is written; default: "
                     "about a hundred times a run",
             .example = "every: 50 steps"),
    DLT_FIELDS_END,
};

static const DltMetricDef *metric_in_use(const DltSpec *spec, const char *name)
{
    for (int i = 0; i < spec->n_metric; i++)
        if (strcmp(spec->metric[i]->name, name) == 0) return spec->metric[i];
    return NULL;
}

static const char *metric_names(const DltSpec *spec)
{
    char *text = dlt_arena_str(spec->arena, "");
    for (int i = 0; i < spec->n_metric; i++)
        text = dlt_arena_printf(spec->arena, "%s%s%s", text, i ? ", " : "", spec->metric[i]->name);
    return text;
}

DltStatus dlt_metric_of(const DltSpec *spec, DltMark at, const char *path, const char *name,
                        const DltMetricDef **def, DltErr *err)
{
    const char *dot = strchr(name, '.');
    for (int i = 0; dot && i < DLT_N_SPLIT; i++) {
        size_t n = strlen(dlt_split_name[i]);
        if ((size_t)(dot - name) != n || strncmp(name, dlt_split_name[i], n) != 0) continue;
        if (!spec->data.source[i].def && spec->data.source[i].fraction == 0.0)
            return dlt_err_at(err, DLT_E_CONFIG, at, "%s: '%s' needs data.%s, which is not there",
                              path, name, dlt_split_name[i]);
        *def = metric_in_use(spec, dot + 1);
        if (*def) return DLT_OK;
        return dlt_err_at(err, DLT_E_CONFIG, at,
                          "%s: '%s' is not measured in this run; measured: %s (eval.metrics)", path,
                          dot + 1, metric_names(spec));
    }
    return dlt_err_at(err, DLT_E_CONFIG, at,
                      "%s: '%s' is no metric of a split; write one such as val.loss or test.%s",
                      path, name, spec->n_metric > 1 ? spec->metric[1]->name : "loss");
}

static DltStatus add_metric(DltReader *r, const char *name, DltMark at, const DltMetricDef **list,
                            int *n)
{
    const DltSpec *spec = r->spec;
    const DltMetricDef *m = dlt_metric_find(name);
    if (!m)
        return dlt_spec_unknown(r->err, at, "eval.metrics", DLT_REG_METRIC, name,
                                dlt_registry_names(r->arena, DLT_REG_METRIC, NULL));
    for (int i = 0; i < *n; i++)
        if (list[i] == m) return DLT_OK;
    if (spec->loss && !m->any_target && m->target != spec->loss->target)
        return dlt_err_at(r->err, DLT_E_CONFIG, at,
                          "eval.metrics: %s measures %s, but the loss %s has %s as targets", name,
                          m->target == DLT_TARGET_CLASS ? "classes" : "values", spec->loss->name,
                          spec->loss->target == DLT_TARGET_CLASS ? "classes" : "values");
    list[(*n)++] = m;
    return DLT_OK;
}

static DltStatus set_metrics(DltReader *r, const DltOpts *opts)
{
    DltSpec *spec = r->spec;
    const DltEvalOpts *o = opts->v;
    DltMark at = dlt_opts_mark(opts, offsetof(DltEvalOpts, metrics));
    bool given = dlt_opts_given(opts, offsetof(DltEvalOpts, metrics));
    DltStatus status = DLT_OK;
    int n = 0, n_default = 0;
    while (spec->loss && spec->loss->metrics && spec->loss->metrics[n_default])
        n_default++;
    const char *const *name = given ? o->metrics.v : spec->loss ? spec->loss->metrics : NULL;
    int n_name = given ? o->metrics.n : n_default;
    const DltMetricDef **list = DLT_NEW_ARRAY(r->arena, n_name + 2, const DltMetricDef *);
    status = add_metric(r, "loss", at, list, &n);
    for (int i = 0; i < n_name; i++)
        status = dlt_first(status, add_metric(r, name[i], at, list, &n));
    spec->metric = list;
    spec->n_metric = n;
    return status;
}

static bool has_split(const DltSpec *spec, int split)
{
    return spec->data.source[split].def || spec->data.source[split].fraction > 0.0;
}

static DltStatus set_stop_metric(DltReader *r)
{
    DltTrainSpec *t = &r->spec->train;
    const DltOpts *o = &r->spec->sections->stop;
    const DltMetricDef *def = NULL;
    if (!t->stop_metric) return DLT_OK;
    DltMark at = dlt_opts_mark(o, offsetof(DltStopOpts, metric));
    DLT_TRY(dlt_metric_of(r->spec, at, "train.stop_early.metric", t->stop_metric, &def, r->err));
    t->stop_max = def->higher_is_better;
    int split = r->spec->eval_split;
    size_t n = split < 0 ? 0 : strlen(dlt_split_name[split]);
    if (split >= 0 && strncmp(t->stop_metric, dlt_split_name[split], n) == 0) return DLT_OK;
    return dlt_err_at(r->err, DLT_E_CONFIG, at,
                      "train.stop_early.metric: %s is not measured during the run; what is: %s",
                      t->stop_metric,
                      split < 0 ? "nothing (there is no val)" : dlt_split_name[split]);
}

/* The data are not open yet: whether they are text is seen by their format. */
static DltStatus read_sample(DltReader *r, const DltYaml *tree)
{
    DltOpts *opts = &r->spec->sections->sample;
    const DltSpec *spec = r->spec;
    if (!tree) return DLT_OK;
    DLT_TRY(dlt_read_fields(r, dlt_sample_fields, sizeof(DltSampleOpts), tree, "eval.sample",
                            tree->at, opts));
    const DltSampleOpts *o = opts->v;
    r->spec->sample.prompt = o->prompt;
    r->spec->sample.tokens = o->tokens;
    r->spec->sample.temperature = o->temperature;
    /* a tokenizer that an error kept from being read is not missed twice */
    bool unread = !spec->data.source[DLT_TRAIN].def || (!spec->data.tokenizer && r->err->n > 0);
    const char *why = unread                      ? NULL
                      : !spec->data.tokenizer     ? "the data have no tokenizer"
                      : spec->data.mask.share > 0 ? "with data.mask it sees both sides"
                                                  : NULL;
    if (!why && o->prompt && !o->prompt[0]) why = "its prompt is empty; leave it out";
    if (!why) return DLT_OK;
    return dlt_err_at(r->err, DLT_E_CONFIG, tree->at, "eval.sample: the model cannot write: %s",
                      why);
}

DltStatus dlt_read_eval(DltReader *r, const DltYaml *tree)
{
    DltSpec *spec = r->spec;
    DltOpts *opts = &spec->sections->eval;
    DltStatus status =
        dlt_read_fields(r, dlt_eval_fields, sizeof(DltEvalOpts), tree, "eval", DLT_NO_MARK, opts);
    const DltEvalOpts *o = opts->v;
    if (!o) return status;
    bool given = dlt_opts_given(opts, offsetof(DltEvalOpts, every));
    status = dlt_first(status, set_metrics(r, opts));
    status = dlt_first(status, read_sample(r, o->sample));
    spec->eval_every = o->every;
    spec->eval_ema = o->weights == DLT_WEIGHTS_EMA;
    spec->eval_split = has_split(spec, DLT_VAL)             ? DLT_VAL
                       : given && has_split(spec, DLT_TEST) ? DLT_TEST
                                                            : -1;
    if (given && spec->eval_split < 0 && spec->sample.tokens == 0)
        status = dlt_err_at(r->err, DLT_E_CONFIG, dlt_opts_mark(opts, offsetof(DltEvalOpts, every)),
                            "eval.every: nothing to measure; data has neither val nor test");
    if (spec->eval_ema && !spec->train.ema_on)
        status =
            dlt_err_at(r->err, DLT_E_CONFIG, dlt_opts_mark(opts, offsetof(DltEvalOpts, weights)),
                       "eval.weights: ema needs train.ema, such as ema: 0.999");
    return dlt_first(status, set_stop_metric(r));
}

/* "1000 steps or 30 min" -> one or two spans. */
static bool parse_every(DltArena *arena, const char *text, DltSpan span[2])
{
    const char * or = strstr(text, " or ");
    if (! or) return dlt_parse_span(text, &span[0]) && span[0].n > 0.0;
    return dlt_parse_span(dlt_arena_strn(arena, text, (size_t)(or -text)), &span[0]) &&
           dlt_parse_span(or +4, &span[1]) && span[0].n > 0.0 && span[1].n > 0.0;
}

/* "1 by val.top1 max", "val.top1", "none". */
static DltStatus read_best(DltReader *r, const DltOpts *opts, const char *text)
{
    static const char path[] = "checkpoint.keep.best";
    DltKeep *keep = &r->spec->keep;
    DltMark at = dlt_opts_mark(opts, offsetof(DltKeepOpts, best));
    char count[16], by[16], name[128], direction[16], more[2];
    if (strcmp(text, "none") == 0) return DLT_OK;
    int n = sscanf(text, "%15s %15s %127s %15s %1s", count, by, name, direction, more);
    if (n == 1) snprintf(name, sizeof name, "%.127s", text);
    bool max = n == 4 && strcmp(direction, "max") == 0;
    bool form = n == 1 || (n >= 3 && n <= 4 && strcmp(count, "1") == 0 && strcmp(by, "by") == 0 &&
                           (n == 3 || max || strcmp(direction, "min") == 0));
    if (!form)
        return dlt_err_at(r->err, DLT_E_CONFIG, at,
                          "%s: '%s' is not of the form `1 by val.top1 max`, `val.top1` or `none`",
                          path, text);
    const DltMetricDef *def = NULL;
    DLT_TRY(dlt_metric_of(r->spec, at, path, name, &def, r->err));
    int split = r->spec->eval_split;
    if (split < 0 || strncmp(name, dlt_split_name[split], strlen(dlt_split_name[split])) != 0)
        return dlt_err_at(r->err, DLT_E_CONFIG, at, "%s: %s is not measured during the run", path,
                          name);
    keep->best_metric = dlt_arena_str(r->arena, name);
    keep->best_max = n == 4 ? max : def->higher_is_better;
    return DLT_OK;
}

static DltStatus read_keep(DltReader *r, const DltYaml *tree)
{
    DltSpec *spec = r->spec;
    DltOpts *opts = &spec->sections->keep;
    DLT_TRY(dlt_schema_read(r->arena, dlt_keep_fields, sizeof(DltKeepOpts), tree,
                            (DltWhere){"checkpoint.keep", tree ? tree->at : DLT_NO_MARK}, opts,
                            r->err));
    const DltKeepOpts *o = opts->v;
    spec->keep.last = o->last;
    if (o->best) return read_best(r, opts, o->best);
    if (spec->eval_split != DLT_VAL || spec->n_metric == 0) return DLT_OK;
    const DltMetricDef *first = spec->metric[spec->n_metric > 1 ? 1 : 0];
    spec->keep.best_metric = dlt_arena_printf(r->arena, "val.%s", first->name);
    spec->keep.best_max = first->higher_is_better;
    return DLT_OK;
}

DltStatus dlt_read_checkpoint(DltReader *r, const DltYaml *tree)
{
    DltOpts *opts = &r->spec->sections->checkpoint;
    DltStatus status = dlt_read_fields(r, dlt_checkpoint_fields, sizeof(DltCheckpointOpts), tree,
                                       "checkpoint", DLT_NO_MARK, opts);
    const DltCheckpointOpts *o = opts->v;
    if (!o) return status;
    if (o->every && !parse_every(r->arena, o->every, r->spec->checkpoint_every))
        status = dlt_err_at(r->err, DLT_E_CONFIG,
                            dlt_opts_mark(opts, offsetof(DltCheckpointOpts, every)),
                            "checkpoint.every: '%s' is no interval; write steps, epochs or a time: "
                            "`1000 steps`, `30 min`, or both: `1000 steps or 30 min`",
                            o->every);
    return dlt_first(status, read_keep(r, o->keep));
}

DltStatus dlt_read_log(DltReader *r, const DltYaml *tree)
{
    return dlt_read_fields(r, dlt_log_fields, sizeof(DltLogOpts), tree, "log", DLT_NO_MARK,
                           &r->spec->sections->log);
}
