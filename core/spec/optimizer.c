/* `train.optimizer`, its parameter groups, and `train.schedule`. */
#include "spec/read.h"

const DltField dlt_group_fields[] = {
    DLT_STRS(DltGroupOpts, match, .required = true,
             .help =
                 "patterns over parameter names (* is any text), separated by commas; the first "
                 "group that matches takes the parameter",
             .example = "match: \"*.bias, *norm*\""),
    DLT_FLOAT(DltGroupOpts, weight_decay, .lo = 0, .hi = 1e6,
              .help = "weight decay of the group; default: the optimizer's",
              .example = "weight_decay: 0"),
    DLT_STR(DltGroupOpts, lr,
            .help = "learning rate of the group: a factor (x0.1) or a peak rate of its own",
            .example = "lr: x0.1"),
    DLT_BOOL(DltGroupOpts, freeze, .def = "false", .help = "leave these parameters as they are",
             .example = "freeze: true"),
    DLT_FIELDS_END,
};

static double double_at(const void *opts, size_t offset)
{
    double v;
    memcpy(&v, (const char *)opts + offset, sizeof v);
    return v;
}

/* "x0.1" is a factor, "1e-4" a rate that becomes a factor of the optimizer's. */
static DltStatus group_rate(DltReader *r, const DltOpts *o, const char *path, double *factor)
{
    const DltTrainSpec *t = &r->spec->train;
    const DltGroupOpts *g = o->v;
    DltMark at = dlt_opts_mark(o, offsetof(DltGroupOpts, lr));
    bool relative = g->lr[0] == 'x';
    double v;
    if (!dlt_parse_float(g->lr + relative, &v) || v < 0.0 || v > 1e6)
        return dlt_err_at(r->err, DLT_E_CONFIG, at,
                          "%s.lr: '%s' is neither a factor such as x0.1 nor a rate such as 1e-4",
                          path, g->lr);
    double base = double_at(t->optim_opts.v, t->optim->lr_offset);
    if (!relative && base <= 0.0)
        return dlt_err_at(r->err, DLT_E_CONFIG, at,
                          "%s.lr: the optimizer's lr is 0, so a rate of its own cannot follow its "
                          "schedule; write a factor",
                          path);
    *factor = relative ? v : v / base;
    return DLT_OK;
}

DltStatus dlt_group_check(const DltOpts *o, DltErr *err)
{
    static const struct {
        const char *key;
        size_t at;
    } useless[] = {{"lr", offsetof(DltGroupOpts, lr)},
                   {"weight_decay", offsetof(DltGroupOpts, weight_decay)}};
    const DltGroupOpts *g = o->v;
    for (size_t i = 0; g->freeze && i < 2; i++)
        if (dlt_opts_given(o, useless[i].at))
            return dlt_err_at(err, DLT_E_CONFIG, dlt_opts_mark(o, useless[i].at),
                              "%s.%s: has no effect with freeze: true", o->name, useless[i].key);
    return DLT_OK;
}

static DltStatus read_group(DltReader *r, const DltYaml *tree, int i, DltOpts *o, DltGroup *group)
{
    const DltTrainSpec *t = &r->spec->train;
    const char *path = dlt_arena_printf(r->arena, "train.optimizer.groups[%d]", i);
    DLT_TRY(dlt_schema_read(r->arena, dlt_group_fields, sizeof(DltGroupOpts), tree,
                            (DltWhere){path, tree->at}, o, r->err));
    const DltGroupOpts *g = o->v;
    const char **match = DLT_NEW_ARRAY(r->arena, g->match.n + 1, const char *);
    for (int k = 0; k < g->match.n; k++)
        match[k] = g->match.v[k];
    *group = (DltGroup){.match = match,
                        .at = dlt_opts_mark(o, offsetof(DltGroupOpts, match)),
                        .lr_factor = 1.0,
                        .weight_decay = t->update.weight_decay,
                        .freeze = g->freeze};
    if (dlt_opts_given(o, offsetof(DltGroupOpts, weight_decay)))
        group->weight_decay = g->weight_decay;
    if (g->lr) DLT_TRY(group_rate(r, o, path, &group->lr_factor));
    return dlt_group_check(o, r->err);
}

static DltStatus read_groups(DltReader *r, const DltYaml *list)
{
    DltUpdateConfig *u = &r->spec->train.update;
    DltStatus status = DLT_OK;
    if (!list) return DLT_OK;
    if (list->kind != DLT_YAML_LIST)
        return dlt_err_at(r->err, DLT_E_CONFIG, list->at,
                          "train.optimizer.groups: needs a list, such as [{match: \"*.bias\", "
                          "weight_decay: 0}]");
    DltGroup *group = DLT_NEW_ARRAY(r->arena, list->n + 1, DltGroup);
    DltOpts *opts = DLT_NEW_ARRAY(r->arena, list->n + 1, DltOpts);
    for (int i = 0; i < list->n; i++)
        status = dlt_first(status, read_group(r, list->item[i], i, &opts[i], &group[i]));
    u->group = group;
    u->n_group = list->n;
    r->spec->sections->group = opts;
    return status;
}

DltStatus dlt_read_optimizer(DltReader *r, const DltYaml *tree)
{
    static const char *const beside[] = {"groups", NULL};
    DltTrainSpec *t = &r->spec->train;
    DltPickRule rule = {"train.optimizer", DLT_REG_OPTIM,
                        dlt_registry_names(r->arena, DLT_REG_OPTIM, NULL), beside};
    DltPick pick;
    DLT_TRY(dlt_pick(tree, &rule, &pick, r->err));
    t->optim = dlt_optim_find(pick.kind);
    DLT_TRY(dlt_schema_read(
        r->arena, t->optim->fields, t->optim->opt_size, pick.value,
        (DltWhere){dlt_arena_printf(r->arena, "train.optimizer.%s", pick.kind), pick.at},
        &t->optim_opts, r->err));
    t->update.optim = t->optim;
    t->update.opts = t->optim_opts.v;
    t->update.weight_decay = double_at(t->optim_opts.v, t->optim->weight_decay_offset);
    t->schedule.base = double_at(t->optim_opts.v, t->optim->lr_offset);
    DltStatus status = t->optim->check ? t->optim->check(&t->optim_opts, r->err) : DLT_OK;
    return dlt_first(status, read_groups(r, dlt_yaml_get(tree, "groups")));
}

static DltStatus read_piece(DltReader *r, const DltYaml *item, int i, bool last,
                            DltPieceSpec *piece)
{
    const char *path = dlt_arena_printf(r->arena, "train.schedule[%d]", i);
    DltPickRule rule = {path, DLT_REG_SCHEDULE,
                        dlt_registry_names(r->arena, DLT_REG_SCHEDULE, NULL), NULL};
    DltPick pick;
    DLT_TRY(dlt_pick(item, &rule, &pick, r->err));
    const DltScheduleDef *def = dlt_schedule_find(pick.kind);
    DltOpts *o = &piece->opts;
    DLT_TRY(dlt_schema_read(
        r->arena, def->fields, def->opt_size, pick.value,
        (DltWhere){dlt_arena_printf(r->arena, "%s.%s", path, pick.kind), pick.at}, o, r->err));
    piece->def = def;
    if (def->check) DLT_TRY(def->check(o, r->err));
    if (last || dlt_opts_given(o, def->span_offset)) return DLT_OK;
    return dlt_err_at(r->err, DLT_E_CONFIG, pick.at,
                      "%s: %s needs its span here, such as {%s: {span: 10 epochs}}; only the last "
                      "piece takes the rest of the run",
                      path, pick.kind, pick.kind);
}

DltStatus dlt_read_schedule(DltReader *r, const DltYaml *tree)
{
    DltTrainSpec *t = &r->spec->train;
    DltStatus status = DLT_OK;
    if (!tree) return DLT_OK;
    bool list = tree->kind == DLT_YAML_LIST;
    int n = list ? tree->n : 1;
    DltPieceSpec *piece = DLT_NEW_ARRAY(r->arena, n + 1, DltPieceSpec);
    for (int i = 0; i < n; i++)
        status =
            dlt_first(status, read_piece(r, list ? tree->item[i] : tree, i, i == n - 1, &piece[i]));
    t->piece = piece;
    t->n_piece = status == DLT_OK ? n : 0;
    return status;
}
