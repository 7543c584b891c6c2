/* One config from its text to a validated run: reads the sections in the order in which they need each other,
 * opens the data sets' headers, builds the model once to find its errors, and writes the resolved config. */
#include "base/file.h"
#include "spec/read.h"

enum { RESUME_NEVER, RESUME_AUTO };
static const DltEnum resume_choices[] = {{"never", RESUME_NEVER}, {"auto", RESUME_AUTO}, {NULL, 0}};

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
    DLT_ENUM(DltRoot, resume, .def = "never", .choices = resume_choices,
             .help =
                 "auto: train goes on with the run that lies in --out, where there is one, so that "
                 "a scheduler may start the same command again",
             .example = "resume: auto"),
    DLT_TREE(DltRoot, expect,
             .help = "tests on the config and its result; a broken one ends the run",
             .example = "expect: {val.top1: \"> 94% by end\"}"),
    DLT_FIELDS_END,
};

const DltSection dlt_sections[] = {
    {"config", "the whole file", dlt_root_fields},
    {"model", "the list of layers, and changes of it", dlt_model_fields},
    {"model.residual", "y = body(x) + x", dlt_residual_fields},
    {"blocks.NAME", "a template of layers", dlt_block_fields},
    {"data", "where the samples come from", dlt_data_fields},
    {"data.mask", "hidden tokens that the model has to find", dlt_mask_fields},
    {"data.normalize", "means and deviations given by hand", dlt_mean_std_fields},
    {"train", "how the weights are found", dlt_train_fields},
    {"train.batch", "samples an update, and at a time", dlt_batch_fields},
    {"train.clip", "bound on the gradient", dlt_clip_fields},
    {"train.stop_early", "ending a run that no longer improves", dlt_stop_fields},
    {"train.loss_scale", "the factor on the loss with f16", dlt_loss_scale_fields},
    {"train.guard", "numbers that are not finite", dlt_guard_fields},
    {"train.optimizer.groups", "parameters with settings of their own", dlt_group_fields},
    {"eval", "what is measured, and when", dlt_eval_fields},
    {"eval.sample", "text that the model writes as it learns", dlt_sample_fields},
    {"checkpoint", "what is saved, and when", dlt_checkpoint_fields},
    {"checkpoint.keep", "which checkpoints stay", dlt_keep_fields},
    {"log", "how often progress is written", dlt_log_fields},
    {NULL, NULL, NULL},
};

/* ${data.classes} and the like. While the data sets are not open every figure is 1, so that the rest
 * of the config can be checked all the same. */
static const char *lookup(void *ctx, DltArena *arena, const char *dotted)
{
    const DltSpec *spec = ctx;
    const DltDataset *ds = &spec->data.source[DLT_TRAIN].ds;
    bool open = spec->data.source[DLT_TRAIN].split.ds != NULL;
    const struct {
        const char *name;
        int64_t value;
    } known[] = {
        {"data.classes", ds->classes},
        {"data.vocab", ds->vocab},
        {"data.window", ds->vocab > 0 ? ds->x_shape.dim[0] : 0},
        {"data.samples", spec->data.source[DLT_TRAIN].split.n},
        {"data.features", ds->x_shape.rank == 1 && ds->vocab == 0 ? ds->x_shape.dim[0] : 0},
        {"data.channels", ds->x_shape.rank == 3 ? ds->x_shape.dim[0] : 0}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(known[i].name, dotted) != 0) continue;
        if (!open) return "1";
        if (known[i].value > 0) return dlt_arena_printf(arena, "%lld", (long long)known[i].value);
    }
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

/* The root with its scalars expanded; sections are expanded by their own readers, and vars, blocks
 * and model item by item. */
static DltStatus expand_root(DltReader *r, DltYaml **out)
{
    const DltYaml *tree = r->spec->tree;
    DltStatus status = DLT_OK;
    *out = dlt_yaml_map(r->arena, tree->at);
    for (int i = 0; i < tree->n; i++) {
        DltYaml *value = tree->item[i];
        bool own = value->kind == DLT_YAML_SCALAR && strncmp(tree->key[i], "x-", 2) != 0;
        if (own) status = dlt_first(status, dlt_expand(r->arena, &r->scope, value, &value, r->err));
        if (value) dlt_yaml_put(r->arena, *out, tree->key[i], tree->key_at[i], value);
    }
    return status;
}

static DltStatus check_device(const DltSpec *spec, DltErr *err)
{
    static const char *const known[] = {"auto", "cpu", "cuda", NULL};
    int64_t index;
    for (int i = 0; known[i]; i++)
        if (strcmp(spec->device, known[i]) == 0) return DLT_OK;
    if (strncmp(spec->device, "cuda:", 5) == 0 && dlt_parse_int(spec->device + 5, &index) &&
        index >= 0 && index < 1024)
        return DLT_OK;
    return dlt_err_at(err, DLT_E_CONFIG, spec->device_at,
                      "device: '%s' is unknown; known: auto, cpu, cuda, cuda:N", spec->device);
}

static DltStatus read_root(DltReader *r)
{
    DltSpec *spec = r->spec;
    DltOpts *o = &spec->sections->root;
    DltYaml *tree = NULL;
    if (r->scope.vars && r->scope.vars->kind != DLT_YAML_MAP)
        return dlt_err_at(r->err, DLT_E_CONFIG, r->scope.vars->at,
                          "vars: needs a map of names and values");
    DltStatus status = expand_root(r, &tree);
    status = dlt_first(status, dlt_schema_read(r->arena, dlt_root_fields, sizeof(DltRoot), tree,
                                               (DltWhere){"", spec->tree->at}, o, r->err));
    const DltRoot *root = o->v;
    spec->name = root->name ? root->name : name_of(r->arena, spec->path);
    spec->seed = (uint64_t)root->seed;
    spec->resume_auto = root->resume == RESUME_AUTO;
    spec->device = root->device ? root->device : "auto";
    spec->device_at = dlt_opts_mark(o, offsetof(DltRoot, device));
    if (spec->name[0] == '\0' || strchr(spec->name, '/') || spec->name[0] == '.')
        status = dlt_err_at(r->err, DLT_E_CONFIG, dlt_opts_mark(o, offsetof(DltRoot, name)),
                            "name: '%s' cannot name a folder", spec->name);
    return dlt_first(status, check_device(spec, r->err));
}

/* Every section is read even after an error in another, so that all reports come at once. */
static DltStatus read_sections(DltReader *r)
{
    const DltRoot *root = r->spec->sections->root.v;
    DltStatus status = DLT_OK;
    if (root->loss) status = dlt_first(status, dlt_read_loss(r, root->loss));
    if (root->train) status = dlt_first(status, dlt_read_train(r, root->train));
    status = dlt_first(status, dlt_read_eval(r, root->eval));
    status = dlt_first(status, dlt_read_checkpoint(r, root->checkpoint));
    status = dlt_first(status, dlt_read_log(r, root->log));
    status = dlt_first(status, dlt_read_expect(r, root->expect));
    return dlt_first(status, read_passes(r, root->passes));
}

static DltStatus check_model(DltReader *r, DltKnown known)
{
    const DltRoot *root = r->spec->sections->root.v;
    if (!root->model) return DLT_E_CONFIG; /* reported as missing */
    DLT_TRY(dlt_read_model(r, root->model));
    return dlt_check_model(r->spec, known, r->err);
}

static void append_reports(DltErr *to, const DltErr *from)
{
    for (int i = 0; i < from->n; i++) {
        const DltReport *report = &from->report[i];
        if (report->note)
            dlt_err_note(to, report->at, "%s", report->text);
        else
            (void)dlt_err_at(to, report->status, report->at, "%s", report->text);
    }
}

/* The data sets are opened before the other sections, which may ask for data.classes. What was wrong
 * with them is told last, for an unknown key is worth more than a missing file behind it. */
static DltStatus read_all(DltReader *r, DltErr *data_err)
{
    DltSpec *spec = r->spec;
    DltErr *err = r->err;
    DltStatus status = read_root(r);
    const DltRoot *root = spec->sections->root.v;
    if (!root) return status;
    DltStatus data = root->data ? dlt_read_data(r, root->data) : DLT_E_CONFIG;
    status = dlt_first(status, data);
    if (data == DLT_OK) {
        r->err = data_err;
        data = dlt_open_data(r);
        r->err = err;
    }
    status = dlt_first(status, read_sections(r));
    if (data == DLT_OK) status = dlt_first(status, dlt_check_data(spec, err));
    bool ready = data == DLT_OK && status == DLT_OK;
    if (ready) status = dlt_spec_count(spec, err);
    DltKnown known = ready ? DLT_KNOWN_ALL : data == DLT_OK ? DLT_KNOWN_SHAPES : DLT_KNOWN_WORDS;
    status = dlt_first(status, check_model(r, known));
    append_reports(err, data_err);
    return dlt_first(status, data);
}

static DltStatus read_tree(DltSpec *spec, DltErr *err)
{
    DltReader r = {.arena = spec->arena, .spec = spec, .err = err};
    DltErr *data_err = DLT_NEW(spec->arena, DltErr);
    dlt_err_init(data_err);
    dlt_names_prefer(spec->names, spec->tree);
    r.scope = dlt_spec_scope(spec);
    DLT_TRY(read_all(&r, data_err));
    spec->resolved = dlt_spec_resolve(spec, NULL);
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

/* A checkpoint must do without the files that this one extends. */
static DltStatus text_of_run(DltSpec *s, const char *bytes, int64_t n, DltErr *err)
{
    DltYaml *as_written = NULL;
    DLT_TRY(dlt_yaml_parse(s->arena, s->path, bytes, n, &as_written, err));
    bool extends = dlt_yaml_get(as_written, "extends") != NULL;
    s->text = extends ? dlt_yaml_write(s->arena, s->tree) : bytes;
    return DLT_OK;
}

DltStatus dlt_spec_read(DltArena *arena, const char *path, int n_override,
                        const char *const *override, DltSpec **spec, DltErr *err)
{
    DltSpec *s = new_spec(arena, path, dlt_path_folder(arena, dlt_path_absolute(arena, path)),
                          n_override, override);
    DLT_TRY(dlt_config_load(arena, path, n_override, override, &s->tree, err));
    char *bytes = NULL;
    int64_t n = 0;
    DLT_TRY(dlt_file_read(arena, path, (DltFileRule){DLT_YAML_BYTES, DLT_E_CONFIG, DLT_NO_MARK},
                          &bytes, &n, err));
    DLT_TRY(text_of_run(s, bytes, n, err));
    *spec = s;
    return read_tree(s, err);
}

DltStatus dlt_spec_read_stored(DltArena *arena, const DltStored *stored, int n_override,
                               const char *const *override, DltSpec **spec, DltErr *err)
{
    DltSpec *s = new_spec(arena, stored->name, stored->folder, n_override, override);
    DltStored *own = DLT_NEW(arena, DltStored);
    *own = *stored;
    s->stored = own;
    s->text = stored->text;
    DLT_TRY(dlt_config_load_text(arena, s->path, s->text, n_override, override, &s->tree, err));
    *spec = s;
    return read_tree(s, err);
}
