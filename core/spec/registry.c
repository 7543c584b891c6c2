/* The registries behind the names of a config, and picking one of them out of `kind: {...}`. A name
 * that is not there is answered with the nearest one, and with the place where it belongs. */
#include "spec/read.h"

#define ROW(function, table)                                                                       \
    static bool function(int i, DltRegistryRow *row)                                               \
    {                                                                                              \
        if (!(table)[i]) return false;                                                             \
        *row = (DltRegistryRow){(table)[i]->name, (table)[i]->help, (table)[i]->fields};           \
        return true;                                                                               \
    }
ROW(layer_row, dlt_layers)
ROW(loss_row, dlt_losses)
ROW(optim_row, dlt_optims)
ROW(schedule_row, dlt_schedules)
ROW(dataset_row, dlt_datasets)
ROW(tokenizer_row, dlt_tokenizers)

static bool metric_row(int i, DltRegistryRow *row)
{
    if (!dlt_metrics[i]) return false;
    *row = (DltRegistryRow){dlt_metrics[i]->name, dlt_metrics[i]->help, NULL};
    return true;
}

static bool augment_row(int i, DltRegistryRow *row)
{
    if (!dlt_augments[i].name) return false;
    *row = (DltRegistryRow){dlt_augments[i].name, dlt_augments[i].help, dlt_augments[i].fields};
    return true;
}

const DltRegistry dlt_registries[DLT_N_REGISTRY] = {
    [DLT_REG_LAYER] = {"model", "layer", "layers", layer_row},
    [DLT_REG_LOSS] = {"loss", "loss", "losses", loss_row},
    [DLT_REG_OPTIM] = {"train.optimizer", "optimizer", "optimizers", optim_row},
    [DLT_REG_SCHEDULE] = {"train.schedule", "schedule piece", "schedule pieces", schedule_row},
    [DLT_REG_METRIC] = {"eval.metrics", "metric", "metrics", metric_row},
    [DLT_REG_DATASET] = {"data", "data format", "data formats", dataset_row},
    [DLT_REG_AUGMENT] = {"data.augment", "augmentation", "augmentations", augment_row},
    [DLT_REG_TOKENIZER] = {"data.tokenizer", "tokenizer", "tokenizers", tokenizer_row},
};

const char *const *dlt_registry_names(DltArena *arena, int registry, const char *const *more)
{
    const DltRegistry *reg = &dlt_registries[registry];
    DltRegistryRow row;
    int n = 0, n_more = 0;
    while (reg->row(n, &row))
        n++;
    while (more && more[n_more])
        n_more++;
    const char **names = DLT_NEW_ARRAY(arena, n + n_more + 1, const char *);
    for (int i = 0; i < n; i++) {
        if (reg->row(i, &row)) names[i] = row.name;
    }
    for (int i = 0; i < n_more; i++)
        names[n + i] = more[i];
    return names;
}

static bool in_list(const char *word, const char *const *list)
{
    for (; list && *list; list++)
        if (strcmp(*list, word) == 0) return true;
    return false;
}

static bool in_registry(const DltRegistry *reg, const char *name)
{
    DltRegistryRow row;
    for (int i = 0; reg->row(i, &row); i++)
        if (strcmp(row.name, name) == 0) return true;
    return false;
}

/* Where `name` would be right: another registry's path, or NULL. */
static const DltRegistry *home_of(int registry, const char *name)
{
    for (int i = 0; i < DLT_N_REGISTRY; i++)
        if (i != registry && in_registry(&dlt_registries[i], name)) return &dlt_registries[i];
    return NULL;
}

/* "a, b, c" into buf; cut with "..." when it is too long. */
static const char *join(const char *const *list, char *buf, size_t size)
{
    size_t n = 0;
    buf[0] = '\0';
    for (int i = 0; list && list[i]; i++) {
        int m = snprintf(buf + n, size - n, "%s%s", i ? ", " : "", list[i]);
        if (m < 0 || (size_t)m >= size - n) {
            snprintf(buf + size - 4, 4, "...");
            break;
        }
        n += (size_t)m;
    }
    return buf;
}

DltStatus dlt_spec_unknown(DltErr *err, DltMark at, const char *path, int registry,
                           const char *name, const char *const *known)
{
    char list[600];
    const DltRegistry *reg = &dlt_registries[registry], *home = home_of(registry, name);
    join(known, list, sizeof list);
    if (home)
        return dlt_err_at(err, DLT_E_CONFIG, at,
                          "%s: '%s' is no %s but a %s; it belongs to %s. known here: %s", path,
                          name, reg->noun, home->noun, home->path, list);
    const char *near = dlt_nearest(name, known);
    return dlt_err_at(err, DLT_E_CONFIG, at, "%s: unknown %s '%s'%s%s%s known: %s", path, reg->noun,
                      name, near ? "; did you mean '" : "", near ? near : "", near ? "'?" : ";",
                      list);
}

/* Several keys beside each other of which at most one may be the kind. */
static DltStatus pick_trouble(const DltYaml *item, const DltPickRule *rule, DltErr *err)
{
    const DltRegistry *reg = &dlt_registries[rule->registry];
    int first = -1, other = -1;
    for (int i = 0; i < item->n; i++) {
        if (in_list(item->key[i], rule->beside)) continue;
        int *slot = in_list(item->key[i], rule->known) ? &first : &other;
        if (*slot >= 0 && slot == &first)
            return dlt_err_at(err, DLT_E_CONFIG, item->key_at[i],
                              "%s: '%s' and '%s' are both a %s; each needs its own list item",
                              rule->path, item->key[first], item->key[i], reg->noun);
        if (*slot < 0) *slot = i;
    }
    if (first < 0)
        return dlt_spec_unknown(err, item->key_at[other], rule->path, rule->registry,
                                item->key[other], rule->known);
    char beside[200];
    join(rule->beside, beside, sizeof beside);
    return dlt_err_at(err, DLT_E_CONFIG, item->key_at[other],
                      "%s: unknown key '%s' beside '%s'; options stand inside it: {%s: {%s: ...}}. "
                      "beside it: %s",
                      rule->path, item->key[other], item->key[first], item->key[first],
                      item->key[other], beside[0] ? beside : "nothing");
}

DltStatus dlt_pick(const DltYaml *item, const DltPickRule *rule, DltPick *pick, DltErr *err)
{
    const DltRegistry *reg = &dlt_registries[rule->registry];
    char list[600];
    int found = -1, n = 0;
    if (item->kind == DLT_YAML_LIST)
        return dlt_err_at(err, DLT_E_CONFIG, item->at, "%s: a list stands where one %s belongs",
                          rule->path, reg->noun);
    if (item->kind == DLT_YAML_SCALAR) {
        *pick = (DltPick){item->text, item->at, NULL};
    } else {
        for (int i = 0; i < item->n; i++) {
            if (in_list(item->key[i], rule->beside)) continue;
            found = i;
            n++;
        }
        if (n > 1) return pick_trouble(item, rule, err);
        if (n == 1) *pick = (DltPick){item->key[found], item->key_at[found], item->item[found]};
    }
    if ((item->kind == DLT_YAML_MAP && n == 0) || pick->kind[0] == '\0')
        return dlt_err_at(err, DLT_E_CONFIG, item->at, "%s: no %s is named here; known: %s",
                          rule->path, reg->noun, join(rule->known, list, sizeof list));
    if (!in_list(pick->kind, rule->known))
        return dlt_spec_unknown(err, pick->at, rule->path, rule->registry, pick->kind, rule->known);
    return DLT_OK;
}

DltNames *dlt_spec_names(DltArena *arena)
{
    DltNames *names = dlt_names_new(arena);
    for (int k = 0; k < DLT_N_REGISTRY; k++) {
        DltRegistryRow row;
        for (int i = 0; dlt_registries[k].row(i, &row); i++)
            if (row.fields)
                dlt_names_add(names,
                              dlt_arena_printf(arena, "%s.%s", dlt_registries[k].path, row.name),
                              row.fields);
    }
    for (const DltSection *s = dlt_sections; s->name; s++)
        if (s->fields) dlt_names_add(names, s->fields == dlt_root_fields ? "" : s->name, s->fields);
    return names;
}

DltStatus dlt_read_fields(DltReader *r, const DltField *fields, size_t size, const DltYaml *tree,
                          const char *path, DltMark at, DltOpts *out)
{
    DltYaml *expanded = NULL;
    if (tree) DLT_TRY(dlt_expand(r->arena, &r->scope, tree, &expanded, r->err));
    return dlt_schema_read(r->arena, fields, size, expanded, (DltWhere){path, tree ? tree->at : at},
                           out, r->err);
}
