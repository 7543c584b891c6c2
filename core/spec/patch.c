/* `model:` as one list of layers. It is written as a list, or as {layers, patch}, where patch changes
 * layers by their names: {head: {units: 100}} merges options, {head: 100} sets the main argument,
 * and {head: {conv: {...}}} or {head: {repeat: 3}} changes the item itself. */
#include "config/suggest.h"
#include "spec/read.h"

typedef struct Model {
    const DltYaml *layers, *patch;
} Model;
const DltField dlt_model_fields[] = {
    DLT_TREE(Model, layers, .required = true, .main = true, .help = "list of layers",
             .example = "model: [flatten, {dense: 128}, relu, {dense: \"${data.classes}\"}]"),
    DLT_TREE(Model, patch,
             .help = "changes of named layers, above all of a config that is extended",
             .example = "patch: {head: {units: 100}}"),
    DLT_FIELDS_END,
};

static const char *const structural[] = {"residual", "sequential"};
static const char *const beside[] = {"name", "from", "repeat"};

const char *const *dlt_model_kinds(const DltSpec *spec)
{
    const DltYaml *blocks = dlt_yaml_get(spec->tree, "blocks");
    int n_block = blocks && blocks->kind == DLT_YAML_MAP ? blocks->n : 0;
    const char **more = DLT_NEW_ARRAY(spec->arena, n_block + 3, const char *);
    more[0] = structural[0];
    more[1] = structural[1];
    for (int i = 0; i < n_block; i++)
        more[2 + i] = blocks->key[i];
    return dlt_registry_names(spec->arena, DLT_REG_LAYER, more);
}

static bool is_beside(const char *key)
{
    for (size_t i = 0; i < sizeof beside / sizeof beside[0]; i++)
        if (strcmp(beside[i], key) == 0) return true;
    return false;
}

static bool is_kind(const char *const *kinds, const char *key)
{
    for (; *kinds; kinds++)
        if (strcmp(*kinds, key) == 0) return true;
    return false;
}

/* The item of that name in a list, in lists inside it and in the branches of residuals. */
static DltYaml *find_named(DltYaml *tree, const char *name, int depth)
{
    DltYaml *found = NULL;
    if (depth == 0 || tree->kind == DLT_YAML_SCALAR) return NULL;
    const DltYaml *own = dlt_yaml_get(tree, "name");
    if (own && own->kind == DLT_YAML_SCALAR && strcmp(own->text, name) == 0) return tree;
    for (int i = 0; i < tree->n && !found; i++)
        found = find_named(tree->item[i], name, depth - 1);
    return found;
}

/* Names that layers have, at most `room` of them. */
static int gather_names(const DltYaml *tree, int depth, const char **name, int n, int room)
{
    if (depth == 0 || tree->kind == DLT_YAML_SCALAR) return n;
    const DltYaml *own = dlt_yaml_get(tree, "name");
    if (own && own->kind == DLT_YAML_SCALAR && n < room) name[n++] = own->text;
    for (int i = 0; i < tree->n; i++)
        n = gather_names(tree->item[i], depth - 1, name, n, room);
    return n;
}

static int kind_of(const DltYaml *item)
{
    for (int i = 0; i < item->n; i++)
        if (!is_beside(item->key[i])) return i;
    return -1;
}

/* Key of the main argument of a layer or block, or NULL. */
static const char *main_key(const DltSpec *spec, const char *kind)
{
    const DltLayerDef *def = dlt_layer_find(kind);
    const DltYaml *blocks = dlt_yaml_get(spec->tree, "blocks");
    if (def) return def->fields && def->fields[0].main ? def->fields[0].key : NULL;
    const DltYaml *block = blocks ? dlt_yaml_get(blocks, kind) : NULL;
    const DltYaml *params = block ? dlt_yaml_get(block, "params") : NULL;
    return params && params->kind == DLT_YAML_MAP && params->n > 0 ? params->key[0] : NULL;
}

/* Changes the options `*value` of a layer of this kind. */
static void change_options(const DltSpec *spec, const char *kind, DltYaml **value,
                           const DltYaml *change)
{
    const char *key = main_key(spec, kind);
    const DltYaml *old = *value;
    bool was_map = old->kind == DLT_YAML_MAP, is_map = change->kind == DLT_YAML_MAP;
    if (was_map != is_map && key) {
        DltYaml *map = dlt_yaml_map(spec->arena, old->at);
        const DltYaml *bare = was_map ? change : old;
        bool empty = bare->kind == DLT_YAML_SCALAR && bare->text[0] == '\0';
        if (!empty) dlt_yaml_put(spec->arena, map, key, bare->at, (DltYaml *)bare);
        old = was_map ? old : map;
        change = was_map ? map : change;
    }
    *value = dlt_yaml_merge(spec->arena, old, change);
}

static void rename_kind(const DltSpec *spec, DltYaml *item, int at, const char *kind, DltMark mark)
{
    item->key[at] = dlt_arena_str(spec->arena, kind);
    item->key_at[at] = mark;
    item->item[at] = dlt_yaml_scalar(spec->arena, "", mark);
}

static DltStatus patch_item(const DltSpec *spec, DltYaml *item, const DltYaml *change,
                            const char *name, DltErr *err)
{
    const char *const *kinds = dlt_model_kinds(spec);
    int at = kind_of(item);
    bool whole = false;
    for (int i = 0; change->kind == DLT_YAML_MAP && i < change->n; i++)
        whole = whole || is_beside(change->key[i]) || is_kind(kinds, change->key[i]);
    if (at < 0)
        return dlt_err_at(err, DLT_E_CONFIG, change->at, "model.patch.%s: the layer has no kind",
                          name);
    if (!whole) {
        change_options(spec, item->key[at], &item->item[at], change);
        return DLT_OK;
    }
    for (int i = 0; i < change->n; i++) {
        const char *key = change->key[i];
        if (!is_beside(key) && !is_kind(kinds, key))
            return dlt_err_at(err, DLT_E_CONFIG, change->key_at[i],
                              "model.patch.%s: '%s' is no layer; beside one stand name, from and "
                              "repeat",
                              name, key);
        if (is_beside(key)) {
            dlt_yaml_put(spec->arena, item, key, change->key_at[i], change->item[i]);
            continue;
        }
        if (strcmp(item->key[at], key) != 0) rename_kind(spec, item, at, key, change->key_at[i]);
        change_options(spec, key, &item->item[at], change->item[i]);
    }
    return DLT_OK;
}

enum { PATCH_DEPTH = 16, MAX_NAMES = 1000 };

static DltStatus report_nobody(const DltSpec *spec, const DltYaml *layers, const char *word,
                               DltMark at, DltErr *err)
{
    const char **name = DLT_NEW_ARRAY(spec->arena, MAX_NAMES + 1, const char *);
    gather_names(layers, PATCH_DEPTH, name, 0, MAX_NAMES);
    return dlt_err_at(err, DLT_E_CONFIG, at, "model.patch: no layer of the model has `name: %s`%s",
                      word, dlt_suggest_word(spec->arena, word, name));
}

static DltStatus apply_patch(const DltSpec *spec, DltYaml *layers, const DltYaml *patch,
                             DltErr *err)
{
    DltStatus status = DLT_OK;
    if (patch->kind != DLT_YAML_MAP)
        return dlt_err_at(err, DLT_E_CONFIG, patch->at,
                          "model.patch: needs a map of layer names and changes");
    for (int i = 0; i < patch->n; i++) {
        DltYaml *item = find_named(layers, patch->key[i], PATCH_DEPTH);
        DltStatus one = item ? patch_item(spec, item, patch->item[i], patch->key[i], err)
                             : report_nobody(spec, layers, patch->key[i], patch->key_at[i], err);
        status = dlt_first(status, one);
    }
    return status;
}

DltStatus dlt_read_model(DltReader *r, const DltYaml *tree)
{
    DltSpec *spec = r->spec;
    DltOpts o = {0};
    DLT_TRY(dlt_schema_read(r->arena, dlt_model_fields, sizeof(Model), tree,
                            (DltWhere){"model", tree->at}, &o, r->err));
    const Model *m = o.v;
    DltYaml *layers = dlt_yaml_copy(r->arena, m->layers);
    if (layers->kind == DLT_YAML_SCALAR)
        DLT_TRY(dlt_expand(r->arena, &r->scope, m->layers, &layers, r->err));
    if (layers->kind != DLT_YAML_LIST)
        return dlt_err_at(r->err, DLT_E_CONFIG, layers->at,
                          "model: needs a list of layers, such as [flatten, {dense: 10}]");
    if (layers->n == 0)
        return dlt_err_at(r->err, DLT_E_CONFIG, layers->at, "model: the list has no layers");
    spec->model = layers;
    return m->patch ? apply_patch(spec, layers, m->patch, r->err) : DLT_OK;
}
