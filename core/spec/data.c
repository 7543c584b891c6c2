/* `data:` sources, normalisation and augmentation. Reading looks only at the config; opening reads
 * the data sets' headers; loading reads their contents, makes the splits and measures means. A share
 * of train (`val: 10% of train`) is cut by a hash of the sample; val's and test's shares are nested
 * in one another, so they never overlap. */
#include "spec/read.h"

const char *const dlt_split_name[DLT_N_SPLIT] = {"train", "val", "test"};

static const DltEnum cache_choices[] = {
    {"auto", DLT_CACHE_AUTO},
    {"device", DLT_CACHE_DEVICE},
    {"host", DLT_CACHE_HOST},
    {NULL, 0},
};
static const DltEnum bad_choices[] = {
    {"stop", DLT_BAD_STOP},
    {"skip", DLT_BAD_SKIP},
    {NULL, 0},
};
static const DltEnum last_choices[] = {
    {"keep", DLT_LAST_KEEP},
    {"drop", DLT_LAST_DROP},
    {NULL, 0},
};

const DltField dlt_data_fields[] = {
    DLT_TREE(DltDataOpts, train, .required = true, .help = "training samples: one data format",
             .example = "train: {csv: iris.csv, target: species}"),
    DLT_TREE(DltDataOpts, val,
             .help = "samples that steer the run (best checkpoint, early stop): a data format or a "
                     "share of train",
             .example = "val: 10% of train"),
    DLT_TREE(DltDataOpts, test,
             .help = "samples measured once at the end: a data format or a share of train",
             .example = "test: {idx: images.gz, labels: labels.gz}"),
    DLT_TREE(DltDataOpts, tokenizer,
             .help = "how text: becomes ids, for all sources: bytes, chars, {bpe: FILE} or gpt2",
             .example = "tokenizer: chars"),
    DLT_INT(DltDataOpts, window, .lo = 1, .hi = 1 << 24, .unit = "tokens",
            .help = "tokens of a sample, for all sources of text: and tokens:",
            .example = "window: 1024"),
    DLT_TREE(DltDataOpts, mask,
             .help = "share of the tokens that are hidden, for models of masked text (BERT): the "
                     "loss counts these places alone. Drawn anew in each epoch by seed, epoch and "
                     "window; evaluation draws once. Default: none",
             .example = "mask: 0.15"),
    DLT_TREE(DltDataOpts, normalize,
             .help = "none, {mean, std}, or from train (also written standardize): (x - mean) / "
                     "std per channel of images and per column of tables; 8-bit images become "
                     "[0, 1] before. Default: none",
             .example = "normalize: {mean: 0.2860, std: 0.3530}"),
    DLT_TREE(DltDataOpts, augment, .help = "list of random changes of training images",
             .example = "augment: [{pad_crop: 4}, {flip: horizontal}, {cutout: 8}]"),
    DLT_ENUM(DltDataOpts, cache, .def = "auto", .choices = cache_choices,
             .help = "where samples lie: device, host (batches are sent over), or auto: device "
                     "when the set has at most 2 GiB",
             .example = "cache: host"),
    DLT_ENUM(DltDataOpts, last, .def = "keep", .choices = last_choices,
             .help = "samples of an epoch that fill no batch: keep (a batch may straddle two "
                     "epochs) or drop",
             .example = "last: drop"),
    DLT_ENUM(DltDataOpts, on_bad, .def = "stop", .choices = bad_choices,
             .help =
                 "what a record that cannot be used means (a cell that is no number, a label out "
                 "of range, NaN): stop: exit 3 before training; skip: it is left out of its set, "
                 "told, and named in skipped.jsonl of the run and in its checkpoints. Damaged or "
                 "cut files stop in any case",
             .example = "on_bad: skip"),
    DLT_INT(DltDataOpts, max_bad, .def = "100", .lo = 1, .hi = 100000, .unit = "records",
            .help = "on_bad: skip: more bad records in one set than this stop the run after all",
            .example = "max_bad: 20"),
    DLT_INT(DltDataOpts, threads, .def = "2", .lo = 1, .hi = 256,
            .help = "threads that read batches when the set is not on the device",
            .example = "threads: 4"),
    DLT_FIELDS_END,
};

const DltField dlt_mean_std_fields[] = {
    DLT_FLOATS(DltMeanStd, mean, .required = true, .lo = -1e30, .hi = 1e30,
               .help = "mean of each channel or column, or one for all",
               .example = "mean: [0.491, 0.482, 0.447]"),
    DLT_FLOATS(DltMeanStd, std, .required = true, .lo = 0, .hi = 1e30, .open_lo = true,
               .help = "standard deviation of each channel or column, or one for all",
               .example = "std: [0.247, 0.243, 0.262]"),
    DLT_FIELDS_END,
};

/* "12.5% of train" -> 0.125; 0 when it is something else. */
static double share_of_train(const char *text)
{
    char number[32];
    const char *percent = strchr(text, '%');
    double v;
    if (!percent || strcmp(percent, "% of train") != 0) return 0.0;
    if ((size_t)(percent - text) >= sizeof number) return 0.0;
    memcpy(number, text, (size_t)(percent - text));
    number[percent - text] = '\0';
    if (!dlt_parse_float(number, &v) || v <= 0.0 || v >= 100.0) return 0.0;
    return v / 100.0;
}

/* {idx: a, labels: b} and {idx: {images: a, labels: b}} -> {images: a, labels: b}. */
static DltYaml *format_options(DltReader *r, const DltYaml *item, const DltPick *pick,
                               const DltField *fields)
{
    DltYaml *map = dlt_yaml_map(r->arena, pick->value ? pick->value->at : pick->at);
    map->at = item->at;
    if (pick->value && pick->value->kind == DLT_YAML_MAP)
        for (int i = 0; i < pick->value->n; i++)
            dlt_yaml_put(r->arena, map, pick->value->key[i], pick->value->key_at[i],
                         pick->value->item[i]);
    else if (pick->value)
        dlt_yaml_put(r->arena, map, fields[0].key, pick->at, (DltYaml *)pick->value);
    for (int i = 0; item->kind == DLT_YAML_MAP && i < item->n; i++)
        if (item->item[i] != pick->value)
            dlt_yaml_put(r->arena, map, item->key[i], item->key_at[i], item->item[i]);
    return map;
}

static DltStatus read_format(DltReader *r, int split, const DltYaml *item, const char *path)
{
    DltSource *s = &r->spec->data.source[split];
    const char *const *known = dlt_registry_names(r->arena, DLT_REG_DATASET, NULL);
    /* The keys beside the format are its options: let its own table judge them. */
    const char *const *beside = NULL;
    const char **others = DLT_NEW_ARRAY(r->arena, item->n + 1, const char *);
    int n_other = 0;
    for (int i = 0; item->kind == DLT_YAML_MAP && i < item->n; i++)
        if (!dlt_dataset_find(item->key[i])) others[n_other++] = item->key[i];
    if (item->kind == DLT_YAML_MAP && n_other < item->n) beside = others;
    DltPickRule rule = {path, DLT_REG_DATASET, known, beside};
    DltPick pick;
    DLT_TRY(dlt_pick(item, &rule, &pick, r->err));
    s->def = dlt_dataset_find(pick.kind);
    DltYaml *options = format_options(r, item, &pick, s->def->fields);
    DLT_TRY(dlt_data_inherit(r, s->def->fields, path, options));
    DLT_TRY(
        dlt_schema_read(r->arena, s->def->fields, s->def->opt_size, options,
                        (DltWhere){dlt_arena_printf(r->arena, "%s.%s", path, pick.kind), pick.at},
                        &s->opts, r->err));
    return s->def->check ? s->def->check(&s->opts, r->err) : DLT_OK;
}

static DltStatus read_source(DltReader *r, int split, const DltYaml *tree)
{
    DltSource *s = &r->spec->data.source[split];
    const char *path = dlt_arena_printf(r->arena, "data.%s", dlt_split_name[split]);
    DltYaml *item = NULL;
    if (!tree) return DLT_OK;
    DLT_TRY(dlt_expand(r->arena, &r->scope, tree, &item, r->err));
    r->spec->sections->source[split] = item;
    if (item->kind != DLT_YAML_SCALAR) return read_format(r, split, item, path);
    s->fraction = split == DLT_TRAIN ? 0.0 : share_of_train(item->text);
    if (s->fraction > 0.0) return DLT_OK;
    return dlt_err_at(r->err, DLT_E_CONFIG, item->at,
                      "%s: '%s' is no data source; write a format with its file, such as {csv: "
                      "file.csv, target: column}%s",
                      path, item->text, split == DLT_TRAIN ? "" : ", or a share: 10% of train");
}

static DltStatus read_normalize(DltReader *r, const DltYaml *tree)
{
    static const DltEnum words[] = {
        {"none", DLT_NORM_NONE},
        {"from train", DLT_NORM_FROM_TRAIN},
        {"standardize", DLT_NORM_FROM_TRAIN},
        {NULL, 0},
    };
    DltDataSpec *d = &r->spec->data;
    DltYaml *value = NULL;
    if (!tree) return DLT_OK;
    DLT_TRY(dlt_expand(r->arena, &r->scope, tree, &value, r->err));
    for (const DltEnum *w = words; value->kind == DLT_YAML_SCALAR && w->name; w++)
        if (strcmp(w->name, value->text) == 0) {
            d->normalize = w->value;
            return DLT_OK;
        }
    if (value->kind != DLT_YAML_MAP)
        return dlt_err_at(r->err, DLT_E_CONFIG, value->at,
                          "data.normalize: needs none, from train, standardize or {mean, std}");
    DltOpts *o = &r->spec->sections->mean_std;
    DLT_TRY(dlt_schema_read(r->arena, dlt_mean_std_fields, sizeof(DltMeanStd), value,
                            (DltWhere){"data.normalize", value->at}, o, r->err));
    const DltMeanStd *m = o->v;
    d->normalize = DLT_NORM_GIVEN;
    d->mean = m->mean;
    d->std = m->std;
    if (m->mean.n != m->std.n)
        return dlt_err_at(r->err, DLT_E_CONFIG, value->at,
                          "data.normalize: %d means and %d standard deviations; their numbers must "
                          "agree",
                          m->mean.n, m->std.n);
    return DLT_OK;
}

static DltStatus read_augment(DltReader *r, const DltYaml *tree)
{
    const char *const *known = dlt_registry_names(r->arena, DLT_REG_AUGMENT, NULL);
    DltYaml *list = NULL;
    int last = -1;
    if (!tree) return DLT_OK;
    DLT_TRY(dlt_expand(r->arena, &r->scope, tree, &list, r->err));
    if (list->kind != DLT_YAML_LIST)
        return dlt_err_at(r->err, DLT_E_CONFIG, list->at,
                          "data.augment: needs a list, such as [{flip: horizontal}]");
    for (int i = 0; i < list->n; i++) {
        const char *path = dlt_arena_printf(r->arena, "data.augment[%d]", i);
        DltPickRule rule = {path, DLT_REG_AUGMENT, known, NULL};
        DltPick pick;
        DLT_TRY(dlt_pick(list->item[i], &rule, &pick, r->err));
        int k = 0;
        while (strcmp(dlt_augments[k].name, pick.kind) != 0)
            k++;
        if (k <= last)
            return dlt_err_at(r->err, DLT_E_CONFIG, pick.at,
                              "%s: %s comes after %s; each stands at most once, in the order in "
                              "which they run: pad_crop, flip, cutout",
                              path, pick.kind, dlt_augments[last].name);
        last = k;
        DltOpts *o = &r->spec->sections->augment[k];
        DLT_TRY(dlt_schema_read(
            r->arena, dlt_augments[k].fields, dlt_augments[k].opt_size, pick.value,
            (DltWhere){dlt_arena_printf(r->arena, "%s.%s", path, pick.kind), pick.at}, o, r->err));
        dlt_augments[k].set(&r->spec->data.augment, o->v);
    }
    return DLT_OK;
}

static DltStatus check_shares(DltReader *r)
{
    const DltSource *s = r->spec->data.source;
    double sum = s[DLT_VAL].fraction + s[DLT_TEST].fraction;
    if (sum < 1.0) return DLT_OK;
    return dlt_err_at(r->err, DLT_E_CONFIG, r->spec->sections->source[DLT_TEST]->at,
                      "data.test: val and test take %.0f%% of train; nothing is left to train on",
                      sum * 100.0);
}

/* on_bad has something to say. */
static DltStatus check_bad(DltReader *r)
{
    const DltOpts *opts = &r->spec->sections->data;
    const DltDataOpts *o = opts->v;
    const DltDatasetDef *blind = NULL; /* a format that can leave nothing out */
    if (o->on_bad != DLT_BAD_SKIP) {
        if (!dlt_opts_given(opts, offsetof(DltDataOpts, max_bad))) return DLT_OK;
        return dlt_err_at(r->err, DLT_E_CONFIG, dlt_opts_mark(opts, offsetof(DltDataOpts, max_bad)),
                          "data.max_bad: has no effect without on_bad: skip");
    }
    for (int i = 0; i < DLT_N_SPLIT; i++) {
        const DltDatasetDef *def = r->spec->data.source[i].def;
        if (def != NULL && def->skips) return DLT_OK;
        if (def != NULL) blind = def;
    }
    if (blind == NULL) return DLT_OK; /* told already */
    return dlt_err_at(r->err, DLT_E_CONFIG, dlt_opts_mark(opts, offsetof(DltDataOpts, on_bad)),
                      "data.on_bad: %s has no records that could be left out", blind->name);
}

DltStatus dlt_read_data(DltReader *r, const DltYaml *tree)
{
    DltDataSpec *d = &r->spec->data;
    DltOpts *opts = &r->spec->sections->data;
    DltStatus status =
        dlt_read_fields(r, dlt_data_fields, sizeof(DltDataOpts), tree, "data", tree->at, opts);
    const DltDataOpts *o = opts->v;
    if (!o) return status;
    const DltYaml *const source[DLT_N_SPLIT] = {o->train, o->val, o->test};
    for (int i = 0; i < DLT_N_SPLIT; i++)
        status = dlt_first(status, read_source(r, i, source[i]));
    if (status == DLT_OK) status = dlt_read_tokenizer(r);
    status = dlt_first(status, dlt_read_mask(r, o->mask));
    status = dlt_first(status, read_normalize(r, o->normalize));
    status = dlt_first(status, read_augment(r, o->augment));
    if (status == DLT_OK) status = check_shares(r);
    if (o->on_bad == DLT_BAD_SKIP) d->max_bad = o->max_bad;
    status = dlt_first(status, check_bad(r));
    d->n_thread = o->threads;
    d->drop_last = o->last == DLT_LAST_DROP;
    return status;
}
