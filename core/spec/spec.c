/* One config from its text to a validated run: reads the sections in the order in which they need each other,
 * opens the data sets' headers, builds the model once to find its errors, and writes the resolved config. */
#include "base/file.h"
#include "spec/read.h"

const DltField dlt_root_fields[] = {
    DLT_INT(DltRoot, dltrain, .def = "1", .lo = 1, .hi = 1, .help = "version of this language",
            .example = "dltrain: 1"),
    DLT_STR(DltRoot, name, .help = "name of the run, for its folder; default: the file's name",
            .example = "name: baseline"),
    DLT_INT(DltRoot, seed, .def = "0", .lo = 0, .hi = 9e15,
            .help = "seed of initial weights, order, dropout and augmentation",
            .example = "seed: 1337"),
    DLT_TREE(DltRoot, vars, .help = "variables, used as $name or ${expression}",
             .example = "vars: {width: 64}"),
    DLT_TREE(DltRoot, blocks, .help = "templates of layers with parameters",
             .example = "blocks: {mlp: {params: {d: required}, layers: [{dense: $d}, relu]}}"),
    DLT_TREE(DltRoot, data, .required = true, .help = "where the samples come from",
             .example = "data: {train: {csv: iris.csv, target: species}}"),
    DLT_TREE(DltRoot, model, .required = true, .help = "list of layers",
             .example = "model: [flatten, {dense: 10}]"),
    DLT_TREE(DltRoot, loss, .required = true, .help = "what training makes small",
             .example = "loss: cross_entropy"),
    DLT_TREE(DltRoot, train, .required = true, .help = "how the weights are found",
             .example = "train: {for: 5 epochs, batch: 128, optimizer: {adamw: {lr: 1e-3}}}"),
    DLT_TREE(DltRoot, eval, .help = "what is measured, and when",
             .example = "eval: {every: 1 epochs}"),
    DLT_TREE(DltRoot, checkpoint, .help = "what is saved, and when",
             .example = "checkpoint: {every: 30 min}"),
    DLT_TREE(DltRoot, log, .help = "how often progress is written",
             .example = "log: {every: 50 steps}"),
    DLT_TREE(DltRoot, passes, .help = "switches of the graph passes: {fuse: {RULE: off}}",
             .example = "passes: {fuse: {batch_norm_relu: off}}"),
    DLT_STR(DltRoot, device, .def = "auto", .help = "auto, cpu, cuda or cuda:N",
            .example = "device: cpu"),
    DLT_TREE(DltRoot, expect,
             .help = "tests on the config and its result; a broken one ends the run",
             .example = "expect: {val.top1: \"> 94% by end\"}"),
    DLT_FIELDS_END,
};

const DltSection dlt_sections[] = {
    {"config", "the whole file", dlt_root_fields},
    {"data", "where the samples come from", dlt_data_fields},
    {"data.normalize", "means and deviations given by hand", dlt_mean_std_fields},
    {"train", "how the weights are found", dlt_train_fields},
    {"train.batch", "samples an update, and at a time", dlt_batch_fields},
    {"train.clip", "bound on the gradient", dlt_clip_fields},
    {"train.stop_early", "ending a run that no longer improves", dlt_stop_fields},
    {"train.guard", "numbers that are not finite", dlt_guard_fields},
    {"train.optimizer.groups", "parameters with settings of their own", dlt_group_fields},
    {"eval", "what is measured, and when", dlt_eval_fields},
    {"checkpoint", "what is saved, and when", dlt_checkpoint_fields},
    {"checkpoint.keep", "which checkpoints stay", dlt_keep_fields},
    {"log", "how often progress is written", dlt_log_fields},
    {NULL, NULL, NULL},
};

/* ${data.classes} and the like, once the data sets are open. */
static const char *lookup(void *ctx, DltArena *arena, const char *dotted)
{
    const DltSpec *spec = ctx;
    const DltDataset *ds = &spec->data.source[DLT_TRAIN].ds;
    const struct {
        const char *name;
        int64_t value;
    } known[] = {{"data.classes", ds->classes},
                 {"data.vocab", ds->vocab},
                 {"data.samples", spec->data.source[DLT_TRAIN].split.n},
                 {"data.features", ds->x_shape.rank == 1 ? ds->x_shape.dim[0] : 0},
                 {"data.channels", ds->x_shape.rank == 3 ? ds->x_shape.dim[0] : 0}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(known[i].name, dotted) == 0 && known[i].value > 0)
            return dlt_arena_printf(arena, "%lld", (long long)known[i].value);
    return NULL;
}

DltScope dlt_spec_scope(const DltSpec *spec)
{
    return (DltScope){
        .vars = dlt_yaml_get(spec->tree, "vars"), .lookup = lookup, .ctx = (void *)spec};
}

/* File name without folder and .yaml. */
static const char *name_of(DltArena *arena, const char *path)
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    const char *dot = strrchr(base, '.');
    return dot && dot > base ? dlt_arena_strn(arena, base, (size_t)(dot - base)) : base;
}

/* passes: {fuse: {RULE: off}} -> names of rules that are off. */
static DltStatus read_passes(DltReader *r, const DltYaml *passes)
{
    DltSpec *spec = r->spec;
    const DltYaml *fuse = passes ? dlt_yaml_get(passes, "fuse") : NULL;
    if (!passes) return DLT_OK;
    if (!fuse || fuse->kind != DLT_YAML_MAP || passes->n != 1)
        return dlt_err_at(r->err, DLT_E_CONFIG, passes->at, "passes: needs {fuse: {RULE: off}}");
    const char **off = DLT_NEW_ARRAY(r->arena, fuse->n + 1, const char *);
    int n = 0;
    for (int i = 0; i < fuse->n; i++) {
        const DltFuseRule *rule = dlt_fuse_rules;
        while (rule->name && strcmp(rule->name, fuse->key[i]) != 0)
            rule++;
        const DltYaml *v = fuse->item[i];
        bool is_off = v->kind == DLT_YAML_SCALAR && strcmp(v->text, "off") == 0;
        if (!rule->name)
            return dlt_err_at(r->err, DLT_E_CONFIG, fuse->key_at[i],
                              "passes.fuse: no rule is named '%s'; `dltrain explain` lists them",
                              fuse->key[i]);
        if (!is_off && (v->kind != DLT_YAML_SCALAR || strcmp(v->text, "on") != 0))
            return dlt_err_at(r->err, DLT_E_CONFIG, v->at, "passes.fuse.%s: on or off",
                              fuse->key[i]);
        if (is_off) off[n++] = fuse->key[i];
    }
    spec->fuse_off = off;
    return DLT_OK;
}

static DltStatus read_root(DltReader *r)
{
    DltSpec *spec = r->spec;
    DltOpts *o = &spec->sections->root;
    DltStatus status = dlt_schema_read(r->arena, dlt_root_fields, sizeof(DltRoot), spec->tree, "",
                                       spec->tree->at, o, r->err);
    const DltRoot *root = o->v;
    if (!root) return status;
    spec->name = root->name ? root->name : name_of(r->arena, spec->path);
    spec->seed = (uint64_t)root->seed;
    spec->model = root->model;
    spec->device = root->device ? root->device : "auto";
    spec->device_at = dlt_opts_mark(o, offsetof(DltRoot, device));
    if (spec->name[0] == '\0' || strchr(spec->name, '/') || spec->name[0] == '.')
        status = dlt_err_at(r->err, DLT_E_CONFIG, dlt_opts_mark(o, offsetof(DltRoot, name)),
                            "name: '%s' cannot name a folder", spec->name);
    return status;
}

/* Every section is read even after an error in another, so that all reports come at once. */
static DltStatus read_sections(DltReader *r)
{
    DltStatus status = read_root(r);
    const DltRoot *root = r->spec->sections->root.v;
    if (!root) return status;
    status = dlt_first(status, dlt_read_data(r, root->data));
    if (root->loss) status = dlt_first(status, dlt_read_loss(r, root->loss));
    if (root->train) status = dlt_first(status, dlt_read_train(r, root->train));
    status = dlt_first(status, dlt_read_eval(r, root->eval));
    status = dlt_first(status, dlt_read_checkpoint(r, root->checkpoint));
    status = dlt_first(status, dlt_read_log(r, root->log));
    status = dlt_first(status, dlt_read_expect(r, root->expect));
    return dlt_first(status, read_passes(r, root->passes));
}

static DltStatus read_tree(DltSpec *spec, DltErr *err)
{
    DltReader r = {.arena = spec->arena, .spec = spec, .err = err};
    if (spec->tree->kind != DLT_YAML_MAP)
        return dlt_err_at(err, DLT_E_CONFIG, spec->tree->at,
                          "a config is a map of sections: data, model, loss, train; `dltrain init "
                          "mlp` prints one");
    dlt_names_prefer(spec->names, spec->tree);
    r.scope = dlt_spec_scope(spec);
    DLT_TRY(read_sections(&r));
    DLT_TRY(dlt_open_data(&r));
    DLT_TRY(dlt_check_data(spec, err));
    DltStatus status = dlt_spec_count(spec, err);
    DLT_TRY(dlt_first(status, dlt_check_model(spec, err)));
    spec->resolved = dlt_spec_resolve(spec);
    return DLT_OK;
}

static DltSpec *new_spec(DltArena *arena, const char *path, const char *folder, int n_override,
                         const char *const *override)
{
    DltSpec *spec = DLT_NEW(arena, DltSpec);
    spec->arena = arena;
    spec->sections = DLT_NEW(arena, struct DltSections);
    spec->path = path;
    spec->folder = folder;
    spec->n_override = n_override;
    spec->override = override;
    spec->names = dlt_spec_names(arena); /* overrides are completed by them */
    dlt_names_set_current(spec->names);
    return spec;
}

enum { MAX_CONFIG_BYTES = 1 << 20 };

DltStatus dlt_spec_read(DltArena *arena, const char *path, int n_override,
                        const char *const *override, DltSpec **spec, DltErr *err)
{
    DltSpec *s = new_spec(arena, path, dlt_path_folder(arena, dlt_path_absolute(arena, path)),
                          n_override, override);
    DLT_TRY(dlt_config_load(arena, path, n_override, override, &s->tree, err));
    char *text = NULL;
    int64_t n = 0;
    DLT_TRY(
        dlt_file_read(arena, path, MAX_CONFIG_BYTES, DLT_E_CONFIG, DLT_NO_MARK, &text, &n, err));
    s->text = text;
    *spec = s;
    return read_tree(s, err);
}

DltStatus dlt_spec_read_text(DltArena *arena, const char *name, const char *text,
                             const char *folder, int n_override, const char *const *override,
                             DltSpec **spec, DltErr *err)
{
    DltSpec *s = new_spec(arena, name, folder, n_override, override);
    s->text = text;
    DLT_TRY(dlt_config_load_text(arena, name, text, n_override, override, &s->tree, err));
    *spec = s;
    return read_tree(s, err);
}
