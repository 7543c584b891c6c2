/* The model interpreter: a list of layers becomes graph nodes. An item is a layer, a block of `blocks:`, a
 * residual or a list; beside its kind may stand name, from and repeat.
 *
 * Names: an item is called by `name`, else a layer by its kind (conv, conv_2 ... inside one list), a block by
 * its position, a residual by nothing: its branches are body and project. So the first convolution of the
 * second block of stage2 is stage2.1.body.0.conv, whatever stands before it. */
#include "spec/walk.h"

#include "ops/elementwise.h"

#include <inttypes.h>

static const char *const beside[] = {"name", "from", "repeat", NULL};
static const char *const structural[] = {"residual", NULL};
enum { MAX_DEPTH = 32, MAX_ITEMS = 20000 };

static DltTensor *walk_list(DltWalk *w, const DltYaml *list, const DltScope *scope, DltTensor *x,
                            const char *path);
static DltTensor *walk_item(DltWalk *w, DltWalkList *l, const DltYaml *item, DltTensor *x,
                            const char *path);

/* Reports at `at` and poisons the build. */
static DltTensor *fail(DltWalk *w, DltMark at, const char *text)
{
    w->b->at = at;
    return dlt_build_error(w->b, "%s", text);
}

static DltTensor *poison(DltWalk *w, DltStatus status)
{
    if (w->b->status == DLT_OK) w->b->status = status;
    return dlt_build_poison(w->b);
}

/* Blocks that repeat blocks grow without bound in few words, so what is written out is counted. */
static bool is_too_many(DltWalk *w, DltMark at)
{
    if (++w->n_item <= MAX_ITEMS) return false;
    fail(w, at,
         dlt_arena_printf(w->arena,
                          "model: more than %d layers when blocks and repeats are written out",
                          MAX_ITEMS));
    return true;
}

/* ---- the layer table ---- */

static int open_row(DltWalk *w, const char *kind)
{
    DltModelGraph *m = w->m;
    if (m->n_row == w->cap_row) {
        int cap = w->cap_row ? 2 * w->cap_row : 64;
        DltLayerRow *row = DLT_NEW_ARRAY(w->arena, cap, DltLayerRow);
        if (m->n_row) memcpy(row, m->row, (size_t)m->n_row * sizeof *row);
        m->row = row, w->cap_row = cap;
    }
    m->row[m->n_row] = (DltLayerRow){.name = w->b->scope, .kind = kind, .depth = w->depth};
    return m->n_row++;
}

/* Fills a row from what was added to the graph since (n_node, n_tensor). */
static void close_row(DltWalk *w, int row, int n_node, int n_tensor, const DltTensor *out)
{
    const DltGraph *g = w->m->graph;
    DltLayerRow *r = &w->m->row[row];
    r->leaf = row == w->m->n_row - 1;
    r->out = out->shape;
    for (int i = n_node; i < g->n_node; i++)
        r->flops += g->node[i]->op->flops(g->node[i]);
    for (int i = n_tensor; i < g->n_tensor; i++)
        if (g->tensor[i]->role == DLT_PARAM) r->params += dlt_shape_count(&g->tensor[i]->shape);
}

/* ---- one layer ---- */

/* Inputs: `from` beside the layer, or the list that is the argument of add, mul and concat. */
static DltStatus find_inputs(DltWalk *w, const DltLayerDef *def, const DltYaml *names, DltTensor *x,
                             DltTensor *in[DLT_MAX_IN], int *n_in)
{
    *n_in = 1;
    in[0] = x;
    if (!names) return DLT_OK;
    *n_in = names->kind == DLT_YAML_LIST ? names->n : 1;
    if (*n_in > DLT_MAX_IN)
        return dlt_err_at(w->err, DLT_E_CONFIG, names->at, "%s: %d inputs, at most %d", def->name,
                          *n_in, DLT_MAX_IN);
    for (int i = 0; i < *n_in; i++) {
        const DltYaml *name = names->kind == DLT_YAML_LIST ? names->item[i] : names;
        in[i] = name->kind == DLT_YAML_SCALAR ? dlt_walk_output(w, name->text) : NULL;
        if (in[i]) continue;
        const char *near =
            name->kind == DLT_YAML_SCALAR && w->names ? dlt_nearest(name->text, w->names) : NULL;
        return dlt_err_at(w->err, DLT_E_CONFIG, name->at,
                          "%s: no layer before it is named '%s'%s%s%s", def->name,
                          name->kind == DLT_YAML_SCALAR ? name->text : "(a list)",
                          near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    }
    return DLT_OK;
}

static DltYaml *number(DltWalk *w, int64_t v, DltMark at)
{
    return dlt_yaml_scalar(w->arena, dlt_arena_printf(w->arena, "%" PRId64, v), at);
}

static bool has_field(const DltLayerDef *def, const char *key)
{
    for (const DltField *f = def->fields; f && f->key; f++)
        if (strcmp(f->key, key) == 0) return true;
    return false;
}

/* A projection's filters (or units) and stride are those that lead to the body's output. */
static DltYaml *follow_body(DltWalk *w, const DltLayerDef *def, DltYaml *value, DltMark at)
{
    bool conv = has_field(def, "filters"), dense = has_field(def, "units");
    if (!w->follow || (!conv && !dense)) return value;
    DltYaml *map = dlt_yaml_map(w->arena, at);
    if (value && value->kind == DLT_YAML_MAP)
        map = dlt_yaml_copy(w->arena, value);
    else if (value)
        dlt_yaml_put(w->arena, map, def->fields[0].key, at, value);
    const DltShape *to = w->follow, *from = w->from;
    if (dense) dlt_yaml_put(w->arena, map, "units", at, number(w, to->dim[to->rank - 1], at));
    if (!conv || to->rank != 4) return map;
    dlt_yaml_put(w->arena, map, "filters", at, number(w, to->dim[1], at));
    if (w->stride_given || from->rank != 4) return map;
    DltYaml *stride = dlt_yaml_list(w->arena, at);
    for (int i = 2; i < 4; i++)
        dlt_yaml_append(w->arena, stride,
                        number(w, (from->dim[i] + to->dim[i] - 1) / to->dim[i], at));
    dlt_yaml_put(w->arena, map, "stride", at, stride);
    w->stride_given = true;
    return map;
}

static DltTensor *build_layer(DltWalk *w, const DltLayerDef *def, const DltPick *pick,
                              const DltYaml *from, const DltScope *scope, DltTensor *x)
{
    DltYaml *value = NULL;
    DltOpts *o = DLT_NEW(w->arena, DltOpts);
    DltTensor *in[DLT_MAX_IN] = {0};
    int n_in = 1, max_in = def->max_in > 0 ? def->max_in : 1,
        min_in = def->min_in > 0 ? def->min_in : 1;
    const char *path = w->b->scope;
    DltStatus status =
        pick->value ? dlt_expand(w->arena, scope, pick->value, &value, w->err) : DLT_OK;
    if (status != DLT_OK) return poison(w, status);
    if (value && value->kind == DLT_YAML_LIST && max_in > 1) from = value, value = NULL;
    status = find_inputs(w, def, from, x, in, &n_in);
    if (status != DLT_OK) return poison(w, status);
    if (n_in < min_in || n_in > max_in)
        return fail(w, pick->at,
                    dlt_arena_printf(w->arena,
                                     "%s: %d input%s given, it takes %s%d: write {%s: [a, b]}",
                                     path, n_in, n_in == 1 ? "" : "s",
                                     max_in > 1 ? "at least " : "", min_in, def->name));
    static const DltField none[] = {DLT_FIELDS_END};
    const DltField *fields = def->fields ? def->fields : none;
    value = follow_body(w, def, value, pick->at);
    status = dlt_schema_read(w->arena, fields, def->opt_size ? def->opt_size : 1, value, path,
                             pick->at, o, w->err);
    if (status == DLT_OK && def->check) status = def->check(o, w->err);
    if (status != DLT_OK) return poison(w, status);
    w->b->at = pick->at;
    return def->build(w->b, o, in, n_in);
}

/* ---- blocks ---- */

/* Parameters of a block: what the call gives, else the default; a missing required one is an error, except in
 * a projection, where it is the body's channel count. */
static DltStatus block_params(DltWalk *w, const DltPick *pick, const DltYaml *block,
                              const DltScope *scope, DltYaml **vars)
{
    const DltYaml *params = dlt_yaml_get(block, "params");
    DltYaml *given = NULL, *out = dlt_yaml_map(w->arena, pick->at);
    if (pick->value) DLT_TRY(dlt_expand(w->arena, scope, pick->value, &given, w->err));
    int n_param = params && params->kind == DLT_YAML_MAP ? params->n : 0;
    if (given && given->kind != DLT_YAML_MAP) { /* the main argument is the first parameter */
        DltYaml *map = dlt_yaml_map(w->arena, given->at);
        if (n_param == 0)
            return dlt_err_at(w->err, DLT_E_CONFIG, given->at, "%s: the block has no parameters",
                              pick->kind);
        dlt_yaml_put(w->arena, map, params->key[0], given->at, given);
        given = map;
    }
    for (int i = 0; i < n_param; i++) {
        DltYaml *v = given ? dlt_yaml_get(given, params->key[i]) : NULL;
        bool required = params->item[i]->kind == DLT_YAML_SCALAR &&
                        strcmp(params->item[i]->text, "required") == 0;
        if (!v && required && w->follow)
            v = number(w, w->follow->dim[w->follow->rank == 4 ? 1 : w->follow->rank - 1], pick->at);
        if (!v && required)
            return dlt_err_at(w->err, DLT_E_CONFIG, pick->at,
                              "%s: the parameter '%s' of the block is required", pick->kind,
                              params->key[i]);
        if (!v) DLT_TRY(dlt_expand(w->arena, scope, params->item[i], &v, w->err));
        dlt_yaml_put(w->arena, out, params->key[i], pick->at, v);
    }
    for (int i = 0; given && i < given->n; i++) {
        if (params && dlt_yaml_get(params, given->key[i])) continue;
        const char *near =
            params ? dlt_nearest(given->key[i], (const char *const *)params->key) : NULL;
        return dlt_err_at(w->err, DLT_E_CONFIG, given->key_at[i],
                          "%s: the block has no parameter '%s'%s%s%s", pick->kind, given->key[i],
                          near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    }
    *vars = out;
    return DLT_OK;
}

static DltTensor *build_block(DltWalk *w, const DltPick *pick, const DltYaml *block,
                              const DltScope *scope, DltTensor *x)
{
    DltYaml *vars = NULL;
    const DltYaml *layers = block->kind == DLT_YAML_MAP ? dlt_yaml_get(block, "layers") : NULL;
    if (!layers || layers->kind != DLT_YAML_LIST)
        return fail(w, block->at,
                    dlt_arena_printf(w->arena, "blocks.%s: needs layers: [...]", pick->kind));
    DltStatus status = block_params(w, pick, block, scope, &vars);
    if (status != DLT_OK) return poison(w, status);
    DltScope global = dlt_spec_scope(w->spec), inner = {.outer = &global, .vars = vars};
    return walk_list(w, layers, &inner, x, pick->kind);
}

/* ---- residual ---- */

static DltTensor *project(DltWalk *w, DltWalkList *l, const DltYaml *item, const DltScope *scope,
                          DltTensor *x, const DltTensor *y)
{
    const DltShape *old_follow = w->follow, *old_from = w->from;
    bool old_given = w->stride_given;
    w->follow = &y->shape, w->from = &x->shape, w->stride_given = false;
    const char *old = dlt_build_enter(w->b, dlt_walk_unique(w, l, "project"));
    DltYaml *list = dlt_yaml_list(w->arena, item->at);
    dlt_yaml_append(w->arena, list, (DltYaml *)item);
    x = walk_list(w, item->kind == DLT_YAML_LIST ? item : list, scope, x, "project");
    dlt_build_leave(w->b, old);
    w->follow = old_follow, w->from = old_from, w->stride_given = old_given;
    return x;
}

/* y = body(x) + x, or + project(x) where the shapes differ.  He et al. 2016. */
static DltTensor *build_residual(DltWalk *w, DltWalkList *l, const DltPick *pick, DltTensor *x)
{
    const DltYaml *v = pick->value, *body = v, *projection = NULL;
    if (v && v->kind == DLT_YAML_MAP) {
        body = dlt_yaml_get(v, "body");
        projection = dlt_yaml_get(v, "project");
        for (int i = 0; i < v->n; i++)
            if (strcmp(v->key[i], "body") != 0 && strcmp(v->key[i], "project") != 0)
                return fail(w, v->key_at[i],
                            dlt_arena_printf(w->arena,
                                             "residual: unknown key '%s'; known: body, project",
                                             v->key[i]));
    }
    if (!body || body->kind != DLT_YAML_LIST)
        return fail(w, pick->at,
                    "residual: needs a list of layers, or {body: [...], project: ...}");
    const char *old = dlt_build_enter(w->b, dlt_walk_unique(w, l, "body"));
    DltTensor *y = walk_list(w, body, l->scope, x, "residual.body");
    dlt_build_leave(w->b, old);
    if (dlt_build_failed(w->b)) return y;
    if (!dlt_shape_equal(&x->shape, &y->shape) && projection)
        x = project(w, l, projection, l->scope, x, y);
    if (dlt_build_failed(w->b)) return x;
    char a[DLT_SHAPE_TEXT], b[DLT_SHAPE_TEXT];
    w->b->at = pick->at;
    if (!dlt_shape_equal(&x->shape, &y->shape))
        return dlt_build_error(
            w->b, "residual: %s %s and its body's %s %s cannot be added%s", x->name,
            dlt_shape_text(&x->shape, a), y->name, dlt_shape_text(&y->shape, b),
            projection ? "" : "; give it project: a layer that makes the shapes equal");
    return dlt_add(w->b, y, x);
}

/* ---- items ---- */

/* What an item is, with its name entered as scope. */
static DltTensor *build_kind(DltWalk *w, DltWalkList *l, const DltPick *pick, const DltYaml *from,
                             DltTensor *x)
{
    const DltLayerDef *def = dlt_layer_find(pick->kind);
    if (strcmp(pick->kind, "residual") == 0) return build_residual(w, l, pick, x);
    const DltYaml *blocks = dlt_yaml_get(w->spec->tree, "blocks");
    const DltYaml *block = blocks ? dlt_yaml_get(blocks, pick->kind) : NULL;
    DltTensor *in[DLT_MAX_IN] = {0};
    int n_in = 1;
    if (!block) return build_layer(w, def, pick, from, l->scope, x);
    DltStatus status = find_inputs(w, &(DltLayerDef){.name = pick->kind}, from, x, in, &n_in);
    return status == DLT_OK ? build_block(w, pick, block, l->scope, in[0]) : poison(w, status);
}

static DltTensor *build_named(DltWalk *w, DltWalkList *l, const DltPick *pick, const DltYaml *from,
                              const char *name, DltTensor *x)
{
    const char *old = w->b->scope;
    int n_node = w->m->graph->n_node, n_tensor = w->m->graph->n_tensor;
    if (name) (void)dlt_build_enter(w->b, name);
    int row = open_row(w, pick->kind);
    w->depth++;
    DltTensor *y = build_kind(w, l, pick, from, x);
    w->depth--;
    if (!dlt_build_failed(w->b)) close_row(w, row, n_node, n_tensor, y);
    if (name) dlt_walk_remember(w, y);
    dlt_build_leave(w->b, old);
    return y;
}

/* `repeat: n`: the item n times, called name.0, name.1 ..., with $i and $n inside. */
static DltTensor *repeat_item(DltWalk *w, DltWalkList *l, const DltPick *pick, const DltYaml *from,
                              const char *name, const DltYaml *repeat, DltTensor *x)
{
    DltYaml *value = NULL;
    int64_t n = 0;
    DltStatus status = dlt_expand(w->arena, l->scope, repeat, &value, w->err);
    if (status != DLT_OK) return poison(w, status);
    if (value->kind != DLT_YAML_SCALAR || !dlt_parse_int(value->text, &n) || n < 0 || n > MAX_ITEMS)
        return fail(
            w, repeat->at,
            dlt_arena_printf(w->arena, "repeat: needs a whole number from 0 to %d", MAX_ITEMS));
    const char *old = w->b->scope;
    if (name) (void)dlt_build_enter(w->b, name);
    for (int64_t i = 0; i < n && !dlt_build_failed(w->b); i++) {
        if (is_too_many(w, repeat->at)) break;
        DltYaml *vars = dlt_yaml_map(w->arena, repeat->at);
        dlt_yaml_put(w->arena, vars, "i", repeat->at, number(w, i, repeat->at));
        dlt_yaml_put(w->arena, vars, "n", repeat->at, number(w, n, repeat->at));
        DltScope scope = {.outer = l->scope, .vars = vars};
        DltWalkList inner = {.scope = &scope};
        x = build_named(w, &inner, pick, from, dlt_arena_printf(w->arena, "%" PRId64, i), x);
    }
    dlt_build_leave(w->b, old);
    return x;
}

static const char *const *known_kinds(DltWalk *w)
{
    const DltYaml *blocks = dlt_yaml_get(w->spec->tree, "blocks");
    int n_block = blocks && blocks->kind == DLT_YAML_MAP ? blocks->n : 0;
    const char **more = DLT_NEW_ARRAY(w->arena, n_block + 2, const char *);
    more[0] = structural[0];
    for (int i = 0; i < n_block; i++)
        more[1 + i] = blocks->key[i];
    return dlt_registry_names(w->arena, DLT_REG_LAYER, more);
}

static bool is_block(const DltWalk *w, const char *kind)
{
    const DltYaml *blocks = dlt_yaml_get(w->spec->tree, "blocks");
    return blocks && dlt_yaml_get(blocks, kind) != NULL;
}

/* The item's own name in its list; NULL for a residual, which has none unless it is given one. */
static const char *item_name(DltWalk *w, DltWalkList *l, const DltPick *pick, const DltYaml *name,
                             int position)
{
    if (name) return name->text;
    if (strcmp(pick->kind, "residual") == 0) return NULL;
    if (is_block(w, pick->kind)) return dlt_arena_printf(w->arena, "%d", position);
    return dlt_walk_unique(w, l, pick->kind);
}

static DltTensor *walk_item(DltWalk *w, DltWalkList *l, const DltYaml *item, DltTensor *x,
                            const char *path)
{
    DltPick pick = {0};
    DltPickRule rule = {path, DLT_REG_LAYER, known_kinds(w), beside};
    int position = 0;
    const char *bracket = strrchr(path, '[');
    if (bracket) position = (int)strtol(bracket + 1, NULL, 10);
    DltStatus status = dlt_pick(item, &rule, &pick, w->err);
    if (status != DLT_OK) return poison(w, status);
    bool map = item->kind == DLT_YAML_MAP;
    const DltYaml *given = map ? dlt_yaml_get(item, "name") : NULL, *name = NULL;
    const DltYaml *from = map ? dlt_yaml_get(item, "from") : NULL,
                  *repeat = map ? dlt_yaml_get(item, "repeat") : NULL;
    DltYaml *expanded = NULL;
    if (given) {
        status = dlt_expand(w->arena, l->scope, given, &expanded, w->err);
        if (status != DLT_OK) return poison(w, status);
        name = expanded;
        if (name->kind != DLT_YAML_SCALAR || name->text[0] == '\0' ||
            strpbrk(name->text, "/ \t*?[]"))
            return fail(w, given->at,
                        dlt_arena_printf(w->arena,
                                         "%s.name: needs one word without blanks, '/' or patterns",
                                         path));
        if (dlt_walk_take_name(w, l, name->text) > 1)
            return fail(w, given->at,
                        dlt_arena_printf(w->arena,
                                         "%s.name: '%s' is taken by an earlier layer of this list",
                                         path, name->text));
    }
    const char *own = item_name(w, l, &pick, name, position);
    if (repeat) return repeat_item(w, l, &pick, from, own, repeat, x);
    return build_named(w, l, &pick, from, own, x);
}

/* A list of items; an item that is a reference to a list, or a list, is walked in its place. */
static DltTensor *walk_list(DltWalk *w, const DltYaml *list, const DltScope *scope, DltTensor *x,
                            const char *path)
{
    DltWalkList l = {.scope = scope};
    if (w->depth > MAX_DEPTH)
        return fail(w, list->at, "blocks are nested more than 32 deep (does a block use itself?)");
    for (int i = 0; i < list->n && !dlt_build_failed(w->b); i++) {
        const DltYaml *item = list->item[i];
        if (is_too_many(w, item->at)) return dlt_build_poison(w->b);
        const char *here = dlt_arena_printf(w->arena, "%s[%d]", path, i);
        DltYaml *expanded = NULL;
        if (item->kind == DLT_YAML_SCALAR && item->text[0] == '$') {
            DltStatus status = dlt_expand(w->arena, scope, item, &expanded, w->err);
            if (status != DLT_OK) return poison(w, status);
            item = expanded;
        }
        if (item->kind != DLT_YAML_LIST) {
            x = walk_item(w, &l, item, x, here);
            continue;
        }
        const char *old = dlt_build_enter(w->b, dlt_arena_printf(w->arena, "%d", i));
        x = walk_list(w, item, scope, x, here);
        dlt_build_leave(w->b, old);
    }
    return x;
}

DltStatus dlt_walk_model(const DltSpec *spec, DltModelGraph *m, DltErr *err)
{
    DltWalk w = {.spec = spec, .m = m, .b = m->build, .arena = m->graph->arena, .err = err};
    DltScope scope = dlt_spec_scope(spec);
    DltYaml *model = (DltYaml *)spec->model;
    if (model->kind == DLT_YAML_SCALAR)
        DLT_TRY(dlt_expand(w.arena, &scope, spec->model, &model, err));
    if (model->kind != DLT_YAML_LIST)
        return dlt_err_at(err, DLT_E_CONFIG, model->at, "model: needs a list of layers");
    m->out = walk_list(&w, model, &scope, m->x, "model");
    for (int i = 0; i < m->graph->n_tensor; i++) {
        const DltTensor *t = m->graph->tensor[i];
        if (t->role == DLT_PARAM) m->n_param += dlt_shape_count(&t->shape);
    }
    return m->build->status;
}
