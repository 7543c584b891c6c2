/* Blocks and residuals: templates with parameters, and y = body(x) + x. In a projection the filters,
 * units and stride that are not written are those that lead to the body's output; a block's
 * parameter takes part in this when its layers use it for nothing else but filters, units or
 * stride. */
#include "spec/walk.h"

#include "ops/elementwise.h"

#include <inttypes.h>

typedef struct Block {
    const DltYaml *params, *layers;
} Block;
const DltField dlt_block_fields[] = {
    DLT_TREE(Block, params, .help = "names of parameters with their defaults; `required` has none",
             .example = "params: {f: required, k: 3}"),
    DLT_TREE(Block, layers, .required = true, .help = "list of layers, which use $parameter",
             .example = "layers: [{conv: {filters: $f, kernel: $k}}, relu]"),
    DLT_FIELDS_END,
};

typedef struct Residual {
    const DltYaml *body, *project;
} Residual;
const DltField dlt_residual_fields[] = {
    DLT_TREE(Residual, body, .required = true, .main = true,
             .help = "list of layers whose output is added to their input",
             .example = "residual: [layer_norm, {dense: 64}]"),
    DLT_TREE(Residual, project,
             .help = "layer or list for the input where the shapes differ; filters, units and "
                     "stride that are not written follow the body",
             .example = "project: {conv: {kernel: 1, bias: false}}"),
    DLT_FIELDS_END,
};

typedef enum Role { ROLE_NONE, ROLE_CHANNELS, ROLE_STRIDE } Role;

const DltYaml *dlt_walk_block(const DltWalk *w, const char *name)
{
    return w->blocks ? dlt_yaml_get(w->blocks, name) : NULL;
}

static DltStatus check_block(DltWalk *w, int i)
{
    const char *name = w->blocks->key[i], *path = dlt_arena_printf(w->arena, "blocks.%s", name);
    const DltYaml *tree = w->blocks->item[i];
    DltOpts o = {0};
    if (dlt_layer_find(name) || strcmp(name, "residual") == 0 || strcmp(name, "sequential") == 0)
        return dlt_err_at(w->err, DLT_E_CONFIG, w->blocks->key_at[i],
                          "%s: is the name of a layer; give the block another", path);
    DLT_TRY(dlt_schema_read(w->arena, dlt_block_fields, sizeof(Block), tree,
                            (DltWhere){path, w->blocks->key_at[i]}, &o, w->err));
    const Block *b = o.v;
    if (b->layers->kind != DLT_YAML_LIST)
        return dlt_err_at(w->err, DLT_E_CONFIG, b->layers->at, "%s.layers: needs a list of layers",
                          path);
    if (b->params && b->params->kind != DLT_YAML_MAP)
        return dlt_err_at(w->err, DLT_E_CONFIG, b->params->at,
                          "%s.params: needs a map, such as {f: required, k: 3}", path);
    return DLT_OK;
}

DltStatus dlt_walk_check_blocks(DltWalk *w)
{
    DltStatus status = DLT_OK;
    if (!w->blocks) return DLT_OK;
    if (w->blocks->kind != DLT_YAML_MAP)
        return dlt_walk_poison(w, dlt_err_at(w->err, DLT_E_CONFIG, w->blocks->at,
                                             "blocks: needs a map of names and templates")),
               DLT_E_CONFIG;
    for (int i = 0; i < w->blocks->n; i++)
        status = dlt_first(status, check_block(w, i));
    if (status != DLT_OK) (void)dlt_walk_poison(w, status);
    w->n_report = w->err->n;
    return status;
}

/* ---- projections --------------------------------------------------------------------------- */

/* The smallest stride that makes `from` points `to` points, 0 when there is none: a stride s keeps
 * every s-th point, ceil(from / s) of them. */
static int64_t stride_between(int64_t from, int64_t to)
{
    for (int64_t s = 1; s <= from; s++)
        if ((from + s - 1) / s <= to) return (from + s - 1) / s == to ? s : 0;
    return 0;
}

static DltYaml *number(DltWalk *w, int64_t v, DltMark at)
{
    return dlt_yaml_scalar(w->arena, dlt_arena_printf(w->arena, "%" PRId64, v), at);
}

static DltYaml *channels_of_body(DltWalk *w, DltMark at)
{
    const DltShape *to = &w->follow->to;
    return number(w, to->dim[to->rank == 4 ? 1 : to->rank - 1], at);
}

/* The body's stride, once a projection; NULL when a layer before has had it, or there is none. */
static DltYaml *stride_of_body(DltWalk *w, DltMark at)
{
    DltFollow *f = w->follow;
    if (f->stride_done || f->from.rank != 4 || f->to.rank != 4) return NULL;
    int64_t h = stride_between(f->from.dim[2], f->to.dim[2]),
            v = stride_between(f->from.dim[3], f->to.dim[3]);
    f->stride_done = true;
    if (h == 0 || v == 0) return NULL;
    if (h == v) return number(w, h, at);
    DltYaml *list = dlt_yaml_list(w->arena, at);
    dlt_yaml_append(w->arena, list, number(w, h, at));
    dlt_yaml_append(w->arena, list, number(w, v, at));
    return list;
}

static Role role_of_field(const char *key)
{
    static const struct {
        const char *key;
        Role role;
    } rows[] = {{"filters", ROLE_CHANNELS}, {"units", ROLE_CHANNELS}, {"stride", ROLE_STRIDE}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(rows[i].key, key) == 0) return rows[i].role;
    return ROLE_NONE;
}

static bool has_field(const DltLayerDef *def, const char *key)
{
    for (const DltField *f = def->fields; f && f->key; f++)
        if (strcmp(f->key, key) == 0) return true;
    return false;
}

/* Options with the main argument under its key. */
static DltYaml *as_map(DltWalk *w, const char *main_key, const DltYaml *value, DltMark at)
{
    if (value && value->kind == DLT_YAML_MAP) return dlt_yaml_copy(w->arena, value);
    DltYaml *map = dlt_yaml_map(w->arena, at);
    if (value) dlt_yaml_put(w->arena, map, main_key, value->at, dlt_yaml_copy(w->arena, value));
    return map;
}

const DltYaml *dlt_walk_follow(DltWalk *w, const DltLayerDef *def, const DltYaml *value, DltMark at)
{
    if (!w->follow) return value;
    bool conv = has_field(def, "filters"), dense = has_field(def, "units");
    if (!conv && !dense) return value;
    DltYaml *map = as_map(w, def->fields[0].key, value, at);
    const char *channels = conv ? "filters" : "units";
    if (!dlt_yaml_get(map, channels))
        dlt_yaml_put(w->arena, map, channels, at, channels_of_body(w, at));
    if (!conv) return map;
    if (dlt_yaml_get(map, "stride")) {
        w->follow->stride_done = true;
        return map;
    }
    DltYaml *stride = stride_of_body(w, at);
    if (stride) dlt_yaml_put(w->arena, map, "stride", at, stride);
    return map;
}

/* True for "$name" and "${name}". */
static bool is_reference(const DltYaml *value, const char *name)
{
    if (value->kind != DLT_YAML_SCALAR || value->text[0] != '$') return false;
    const char *text = value->text + 1;
    size_t n = strlen(name);
    if (text[0] != '{') return strcmp(text, name) == 0;
    return strncmp(text + 1, name, n) == 0 && strcmp(text + 1 + n, "}") == 0;
}

static Role role_in_list(DltWalk *w, const DltYaml *list, const char *param, int depth);

static const char *first_param(const DltYaml *block)
{
    const DltYaml *params = dlt_yaml_get(block, "params");
    return params && params->kind == DLT_YAML_MAP && params->n > 0 ? params->key[0] : "";
}

/* What the item `kind: value` uses the parameter for. */
static Role role_in_kind(DltWalk *w, const char *kind, const DltYaml *value, const char *param,
                         int depth)
{
    const DltLayerDef *def = dlt_layer_find(kind);
    const DltYaml *block = dlt_walk_block(w, kind);
    if (value->kind == DLT_YAML_LIST) return role_in_list(w, value, param, depth + 1);
    if (!def && !block) { /* residual: {body: ...} */
        const DltYaml *body = dlt_yaml_get(value, "body");
        return body ? role_in_list(w, body, param, depth + 1) : ROLE_NONE;
    }
    const char *main_key = def ? (def->fields ? def->fields[0].key : "") : first_param(block);
    int n = value->kind == DLT_YAML_MAP ? value->n : 1;
    for (int i = 0; i < n; i++) {
        bool map = value->kind == DLT_YAML_MAP;
        const char *key = map ? value->key[i] : main_key;
        if (!is_reference(map ? value->item[i] : value, param)) continue;
        const DltYaml *layers = block ? dlt_yaml_get(block, "layers") : NULL;
        return def      ? role_of_field(key)
               : layers ? role_in_list(w, layers, key, depth + 1)
                        : ROLE_NONE;
    }
    return ROLE_NONE;
}

static Role role_in_list(DltWalk *w, const DltYaml *list, const char *param, int depth)
{
    if (depth > DLT_MAX_NESTING || list->kind != DLT_YAML_LIST) return ROLE_NONE;
    for (int i = 0; i < list->n && ++w->n_search < DLT_MAX_SEARCH; i++) {
        const DltYaml *item = list->item[i];
        for (int k = 0; item->kind == DLT_YAML_MAP && k < item->n; k++) {
            Role role = role_in_kind(w, item->key[k], item->item[k], param, depth);
            if (role != ROLE_NONE) return role;
        }
    }
    return ROLE_NONE;
}

/* Value of a parameter that a projection does not write, or NULL. */
static DltYaml *follow_param(DltWalk *w, const DltYaml *layers, const char *param, DltMark at)
{
    if (!w->follow) return NULL;
    w->n_search = 0;
    Role role = role_in_list(w, layers, param, 0);
    if (role == ROLE_CHANNELS) return channels_of_body(w, at);
    return role == ROLE_STRIDE ? stride_of_body(w, at) : NULL;
}

/* ---- blocks -------------------------------------------------------------------------------- */

static DltStatus refuse_param(DltWalk *w, const DltPick *pick, const DltYaml *params,
                              const DltYaml *given, int i, const char *path)
{
    const char **known = DLT_NEW_ARRAY(w->arena, (params ? params->n : 0) + 1, const char *);
    char *list = dlt_arena_str(w->arena, "none");
    for (int k = 0; params && k < params->n; k++) {
        known[k] = params->key[k];
        list = k == 0 ? dlt_arena_str(w->arena, known[k])
                      : dlt_arena_printf(w->arena, "%s, %s", list, known[k]);
    }
    const char *near = dlt_nearest(given->key[i], known);
    return dlt_err_at(w->err, DLT_E_CONFIG, given->key_at[i],
                      "%s: the block %s has no parameter '%s'%s%s%s; known: %s", path, pick->kind,
                      given->key[i], near ? "; did you mean '" : "", near ? near : "",
                      near ? "'?" : "", list);
}

/* Parameters of a block: what is given, else (in a projection) what follows the body, else the
 * default, which may refer to parameters before it and to variables. */
static DltStatus block_params(DltWalk *w, const DltPick *pick, const DltYaml *block,
                              const char *path, DltYaml **vars)
{
    static const char required[] = "required";
    const DltYaml *params = dlt_yaml_get(block, "params"), *layers = dlt_yaml_get(block, "layers");
    DltStatus status = DLT_OK;
    *vars = dlt_yaml_map(w->arena, pick->at);
    DltScope global = dlt_spec_scope(w->spec), scope = {.outer = &global, .vars = *vars};
    if (pick->value && pick->value->kind != DLT_YAML_MAP && !params)
        return dlt_err_at(w->err, DLT_E_CONFIG, pick->value->at,
                          "%s: the block %s has no parameters", path, pick->kind);
    DltYaml *given = as_map(w, first_param(block), pick->value, pick->at);
    for (int i = 0; params && i < params->n; i++) {
        const char *key = params->key[i];
        const DltYaml *def = params->item[i];
        DltYaml *v = dlt_yaml_get(given, key);
        bool must = def->kind == DLT_YAML_SCALAR && strcmp(def->text, required) == 0;
        if (!v) v = follow_param(w, layers, key, pick->at);
        if (!v && must)
            status =
                dlt_err_at(w->err, DLT_E_CONFIG, pick->at,
                           "%s: the block %s requires its parameter '%s'", path, pick->kind, key);
        if (!v && !must) DLT_TRY(dlt_expand(w->arena, &scope, def, &v, w->err));
        dlt_yaml_put(w->arena, *vars, key, pick->at, v ? v : number(w, 1, pick->at));
    }
    for (int i = 0; i < given->n; i++)
        if (!params || !dlt_yaml_get(params, given->key[i]))
            status = dlt_first(status, refuse_param(w, pick, params, given, i, path));
    return status;
}

/* A block sees its parameters, then $i and $n of the innermost repeat, then the variables. */
DltTensor *dlt_walk_use_block(DltWalk *w, DltList *l, const DltPick *pick, DltYaml *out,
                              DltTensor *x)
{
    const DltYaml *block = dlt_walk_block(w, pick->kind);
    const DltYaml *layers = block ? dlt_yaml_get(block, "layers") : NULL;
    DltYaml *vars = NULL;
    if (!layers || layers->kind != DLT_YAML_LIST)
        return dlt_walk_poison(w, DLT_E_CONFIG); /* reported by dlt_walk_check_blocks */
    const char *path = dlt_arena_printf(w->arena, "%s.%s", l->path, pick->kind);
    DltStatus status = block_params(w, pick, block, path, &vars);
    if (status != DLT_OK) (void)dlt_walk_poison(w, status);
    DltScope global = dlt_spec_scope(w->spec), repeat = {.outer = &global, .vars = l->repeat},
             scope = {.outer = l->repeat ? &repeat : &global, .vars = vars};
    DltList inner = {.scope = &scope,
                     .repeat = l->repeat,
                     .path = dlt_arena_printf(w->arena, "blocks.%s.layers", pick->kind),
                     .out = out};
    return dlt_walk_list(w, &inner, layers, x);
}

/* ---- residual ------------------------------------------------------------------------------ */

/* One branch of a residual: a list, or one item standing for a list. */
static DltTensor *branch(DltWalk *w, DltList *l, const char *name, const char *key,
                         const DltYaml *items, DltYaml *out, DltTensor *x)
{
    DltYaml *list = dlt_yaml_list(w->arena, items->at);
    DltList inner = {.scope = l->scope,
                     .repeat = l->repeat,
                     .path = dlt_arena_printf(w->arena, "%s.residual.%s", l->path, key)};
    if (items->kind != DLT_YAML_LIST) dlt_yaml_append(w->arena, list, (DltYaml *)items);
    if (out) {
        inner.out = dlt_yaml_list(w->arena, DLT_NO_MARK);
        dlt_yaml_put(w->arena, out, key, DLT_NO_MARK, inner.out);
    }
    const char *old = dlt_build_enter(w->b, name);
    x = dlt_walk_list(w, &inner, items->kind == DLT_YAML_LIST ? items : list, x);
    dlt_build_leave(w->b, old);
    return x;
}

/* The names of the branches: body and project, or body_2 and project_2 in one list. */
static void branch_names(DltWalk *w, DltList *l, bool named, const char **body,
                         const char **project)
{
    *body = named ? "body" : dlt_walk_unique(w, l, "body");
    *project = dlt_arena_printf(w->arena, "project%s", *body + strlen("body"));
}

/* y = body(x) + x, or + project(x) where the shapes differ.  He et al. 2016, equations 1 and 2. */
DltTensor *dlt_walk_residual(DltWalk *w, DltList *l, const DltPick *pick, DltYaml *out,
                             DltTensor *x, bool named)
{
    const char *path = dlt_arena_printf(w->arena, "%s.residual", l->path), *body, *project;
    DltOpts o = {0};
    bool sound = !dlt_build_failed(w->b);
    DltStatus status = dlt_schema_read(w->arena, dlt_residual_fields, sizeof(Residual), pick->value,
                                       (DltWhere){path, pick->at}, &o, w->err);
    if (status != DLT_OK) return dlt_walk_poison(w, status);
    const Residual *r = o.v;
    branch_names(w, l, named, &body, &project);
    DltTensor *y = branch(w, l, body, "body", r->body, out, x);
    if (dlt_build_failed(w->b)) return sound && !r->project ? dlt_walk_go_on(w, x) : y;
    if (!dlt_shape_equal(&x->shape, &y->shape) && r->project) {
        DltFollow follow = {.from = x->shape, .to = y->shape}, *outer = w->follow;
        w->follow = &follow;
        x = branch(w, l, project, "project", r->project, out, x);
        w->follow = outer;
    }
    if (dlt_build_failed(w->b)) return x;
    char a[DLT_SHAPE_TEXT], b[DLT_SHAPE_TEXT];
    if (!dlt_shape_equal(&x->shape, &y->shape))
        return dlt_walk_error(
            w, pick->at, "%s: its %s %s %s and its body's %s %s cannot be added%s", path,
            r->project ? "projection" : "input", x->name, dlt_shape_text(&x->shape, a), y->name,
            dlt_shape_text(&y->shape, b),
            r->project ? "" : "; project: {...} can make the input fit (conv or dense)");
    w->b->at = pick->at;
    x->residual = true;
    y = dlt_add(w->b, y, x);
    y->residual = true;
    return y;
}
