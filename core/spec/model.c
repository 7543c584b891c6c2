/* The model interpreter: a list of layers becomes graph nodes. An item is a layer, a block of
 * `blocks:`, a residual, a sequential or a list; beside its kind may stand name, from and repeat.
 *
 * Names: an item is called by `name`; without one a layer by its kind (conv, conv_2 ... inside one
 * list), a block, sequential or list by its position, and a residual by nothing: its branches are
 * body and project. A repeat with a name gives name.0, name.1 ...; without one it is as if the item
 * were written so often. So the first convolution of the second block of stage2 is
 * stage2.1.body.0.conv, whatever stands before it.
 *
 * Every item is looked at even after an error: the build is poisoned, the options are still checked.
 * The walk can also write the model down with every default in it (DltList.out). */
#include "spec/walk.h"

#include <inttypes.h>

static const char *const beside[] = {"name", "from", "repeat", NULL};
static const char sequential[] = "sequential", residual[] = "residual";
enum { MAX_REPEAT = 10000 };

/* One item, taken apart. */
typedef struct Item {
    DltPick pick;
    const char *name; /* as given, or NULL */
    DltMark name_at;
    const DltYaml *from, *repeat;
} Item;

DltTensor *dlt_walk_poison(DltWalk *w, DltStatus status)
{
    if (w->b->status == DLT_OK) w->b->status = status;
    return dlt_build_poison(w->b);
}

DltTensor *dlt_walk_go_on(DltWalk *w, DltTensor *x)
{
    w->failed = dlt_first(w->failed, w->b->status);
    w->b->status = DLT_OK;
    return x;
}

DltTensor *dlt_walk_error(DltWalk *w, DltMark at, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    const char *text = dlt_arena_vprintf(w->arena, fmt, args);
    va_end(args);
    return dlt_walk_poison(w, dlt_err_at(w->err, DLT_E_CONFIG, at, "%s", text));
}

static bool same_place(const DltMark *a, const DltMark *b)
{
    return a->file && b->file && strcmp(a->file, b->file) == 0 && a->line == b->line &&
           a->col == b->col;
}

/* A block used eight times reports its typing error once. */
static void drop_repeated_reports(DltWalk *w)
{
    DltErr *err = w->err;
    int n = w->n_report;
    for (int i = n; i < err->n; i++) {
        bool seen = false;
        for (int k = 0; k < n && err->report[i].at.line > 0; k++)
            seen = seen || same_place(&err->report[k].at, &err->report[i].at);
        if (!seen) err->report[n++] = err->report[i];
    }
    err->n = w->n_report = n;
}

/* ---- inputs -------------------------------------------------------------------------------- */

/* `from` beside the item, or the list that is the argument of add, mul and concat. */
static DltStatus find_inputs(DltWalk *w, const char *path, const DltYaml *names, DltTensor *x,
                             DltTensor *in[DLT_MAX_IN], int *n_in)
{
    *n_in = 1;
    in[0] = x;
    if (!names) return DLT_OK;
    bool list = names->kind == DLT_YAML_LIST;
    *n_in = list ? names->n : 1;
    if (*n_in > DLT_MAX_IN)
        return dlt_err_at(w->err, DLT_E_CONFIG, names->at, "%s: %d inputs; at most %d", path, *n_in,
                          DLT_MAX_IN);
    for (int i = 0; i < *n_in; i++) {
        const DltYaml *name = list ? names->item[i] : names;
        if (name->kind != DLT_YAML_SCALAR)
            return dlt_err_at(w->err, DLT_E_CONFIG, name->at, "%s: an input is the name of a layer",
                              path);
        in[i] = dlt_walk_find(w, name->text, x);
        if (in[i]) continue;
        const char *near = dlt_walk_nearest(w, name->text);
        return dlt_err_at(w->err, DLT_E_CONFIG, name->at, "%s: no layer above is named '%s'%s%s%s",
                          path, name->text, near ? "; did you mean '" : "", near ? near : "",
                          near ? "'?" : "");
    }
    return DLT_OK;
}

static DltStatus check_inputs(DltWalk *w, const DltLayerDef *def, const DltPick *pick,
                              const char *path, int n_in)
{
    int min = def->min_in > 0 ? def->min_in : 1, max = def->max_in > 0 ? def->max_in : 1;
    if (n_in >= min && n_in <= max) return DLT_OK;
    if (max > 1)
        return dlt_err_at(w->err, DLT_E_CONFIG, pick->at,
                          "%s: takes %d to %d inputs, not %d: write {%s: [a, b]} with names of "
                          "layers above, input or previous",
                          path, min, max, n_in, def->name);
    return dlt_err_at(w->err, DLT_E_CONFIG, pick->at, "%s: takes one input, not %d", path, n_in);
}

/* ---- layers -------------------------------------------------------------------------------- */

/* {kind: value, from: ..., name: ...} into the resolved list. */
static void write_item(DltWalk *w, DltList *l, const char *kind, DltYaml *value,
                       const DltYaml *from, const char *name)
{
    if (!l->out) return;
    DltYaml *item = dlt_yaml_map(w->arena, DLT_NO_MARK);
    dlt_yaml_put(w->arena, item, kind, DLT_NO_MARK, value);
    if (from) dlt_yaml_put(w->arena, item, "from", DLT_NO_MARK, dlt_yaml_copy(w->arena, from));
    if (name)
        dlt_yaml_put(w->arena, item, "name", DLT_NO_MARK,
                     dlt_yaml_scalar(w->arena, name, DLT_NO_MARK));
    dlt_yaml_append(w->arena, l->out, item);
}

static DltTensor *build_layer(DltWalk *w, DltList *l, const Item *item, const char *name,
                              DltTensor *x)
{
    const DltPick *pick = &item->pick;
    const DltLayerDef *def = dlt_layer_find(pick->kind);
    const char *path = dlt_arena_printf(w->arena, "%s.%s", l->path, pick->kind);
    const DltYaml *value = pick->value, *from = item->from;
    DltTensor *in[DLT_MAX_IN] = {0};
    DltOpts *o = DLT_NEW(w->arena, DltOpts); /* lives as long as what was built from it */
    int n_in = 1;
    bool sound = !dlt_build_failed(w->b);
    if (value && def->max_in > 1 && !from && value->kind == DLT_YAML_LIST) {
        from = value;
        value = NULL;
    }
    DltStatus status = find_inputs(w, path, from, x, in, &n_in);
    if (status == DLT_OK) status = check_inputs(w, def, pick, path, n_in);
    bool goes_on = sound && status == DLT_OK && def->keeps_shape;
    value = dlt_walk_follow(w, def, value, pick->at);
    status = dlt_first(status, dlt_schema_read(w->arena, def->fields, def->opt_size, value,
                                               (DltWhere){path, pick->at}, o, w->err));
    if (status == DLT_OK && def->check) status = def->check(o, w->err);
    if (status != DLT_OK) {
        x = dlt_walk_poison(w, status);
        return goes_on ? dlt_walk_go_on(w, in[0]) : x;
    }
    if (l->out)
        write_item(w, l, pick->kind, dlt_resolved_opts(w->arena, o, def->opt_size, def->check),
                   from, name);
    w->b->at = pick->at;
    const char *old = dlt_build_enter(w->b, name);
    x = def->build(w->b, o, in, n_in);
    dlt_build_leave(w->b, old);
    return goes_on && dlt_build_failed(w->b) ? dlt_walk_go_on(w, in[0]) : x;
}

/* ---- sequential and lists ------------------------------------------------------------------ */

static DltTensor *build_sequential(DltWalk *w, DltList *l, const DltPick *pick, DltYaml *out,
                                   DltTensor *x)
{
    if (!pick->value || pick->value->kind != DLT_YAML_LIST)
        return dlt_walk_error(w, pick->at, "%s.sequential: needs a list of layers", l->path);
    DltList inner = {.scope = l->scope,
                     .repeat = l->repeat,
                     .path = dlt_arena_printf(w->arena, "%s.sequential", l->path),
                     .out = out};
    return dlt_walk_list(w, &inner, pick->value, x);
}

/* A block, residual or sequential: what it holds is written as a list of its own. */
static DltTensor *build_container(DltWalk *w, DltList *l, const Item *item, const char *name,
                                  DltTensor *x)
{
    const DltPick *pick = &item->pick;
    bool is_residual = strcmp(pick->kind, residual) == 0;
    DltTensor *in[DLT_MAX_IN] = {0};
    int n_in = 1;
    DltYaml *out = !l->out       ? NULL
                   : is_residual ? dlt_yaml_map(w->arena, DLT_NO_MARK)
                                 : dlt_yaml_list(w->arena, DLT_NO_MARK);
    DltStatus status = find_inputs(w, dlt_arena_printf(w->arena, "%s.%s", l->path, pick->kind),
                                   item->from, x, in, &n_in);
    if (status == DLT_OK && n_in != 1)
        status = dlt_err_at(w->err, DLT_E_CONFIG, item->from->at, "%s.%s: takes one input, not %d",
                            l->path, pick->kind, n_in);
    if (status != DLT_OK) in[0] = dlt_walk_poison(w, status);
    const char *old = w->b->scope;
    if (name) (void)dlt_build_enter(w->b, name);
    if (is_residual) w->b->n_residual++;
    if (is_residual)
        x = dlt_walk_residual(w, l, pick, out, in[0], name != NULL);
    else if (strcmp(pick->kind, sequential) == 0)
        x = build_sequential(w, l, pick, out, in[0]);
    else
        x = dlt_walk_use_block(w, l, pick, out, in[0]);
    dlt_build_leave(w->b, old);
    if (out) write_item(w, l, is_residual ? residual : sequential, out, item->from, name);
    return x;
}

/* ---- items --------------------------------------------------------------------------------- */

/* Builds one item under `name` (NULL: a residual without one), with its row and its output's name. */
static DltTensor *build_named(DltWalk *w, DltList *l, const Item *item, const char *name,
                              DltTensor *x)
{
    const DltLayerDef *def = dlt_layer_find(item->pick.kind);
    const char *old = w->b->scope;
    int n_node = w->m->graph->n_node, n_tensor = w->m->graph->n_tensor;
    const char *label = name ? name : dlt_walk_unique(w, l, residual);
    if (++w->n_layer > DLT_MAX_LAYERS)
        return dlt_walk_error(w, item->pick.at,
                              "model: more than %d layers when blocks and repeats are written out",
                              DLT_MAX_LAYERS);
    (void)dlt_build_enter(w->b, label);
    int row = dlt_walk_open_row(w, item->pick.kind);
    dlt_build_leave(w->b, old);
    w->depth++;
    DltTensor *y = def ? build_layer(w, l, item, name, x) : build_container(w, l, item, name, x);
    w->depth--;
    if (!dlt_build_failed(w->b)) dlt_walk_close_row(w, row, n_node, n_tensor, y);
    (void)dlt_build_enter(w->b, label);
    if (!dlt_walk_remember(w, y))
        y = dlt_walk_error(w, item->name ? item->name_at : item->pick.at,
                           "%s: the name '%s' is taken by a layer above", l->path, w->b->scope);
    dlt_build_leave(w->b, old);
    drop_repeated_reports(w);
    return y;
}

/* The item's name in its list. */
static const char *own_name(DltWalk *w, DltList *l, const Item *item)
{
    if (item->name) return item->name;
    if (dlt_layer_find(item->pick.kind)) return dlt_walk_unique(w, l, item->pick.kind);
    if (strcmp(item->pick.kind, residual) == 0) return NULL;
    return dlt_arena_printf(w->arena, "%d", l->position);
}

/* Parts of letters, digits, '_' and '-', joined by dots. */
static bool is_name(const char *text)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    for (;;) {
        size_t n = strspn(text, letters);
        if (n == 0) return false;
        if (text[n] == '\0') return true;
        if (text[n] != '.') return false;
        text += n + 1;
    }
}

/* Expands the scalars beside the kind, and the value of a layer or block; lists of layers are
 * expanded item by item, when their own scope is known. */
static DltStatus expand_item(DltWalk *w, const DltList *l, const DltYaml *tree, Item *item)
{
    DltYaml *name = NULL, *from = NULL, *value = NULL;
    const DltYaml *given = tree->kind == DLT_YAML_MAP ? dlt_yaml_get(tree, "name") : NULL;
    const char *kind = item->pick.kind;
    bool lazy = strcmp(kind, residual) == 0 || strcmp(kind, sequential) == 0;
    if (given) DLT_TRY(dlt_expand(w->arena, l->scope, given, &name, w->err));
    if (item->from) DLT_TRY(dlt_expand(w->arena, l->scope, item->from, &from, w->err));
    item->from = from;
    if (item->pick.value && !lazy) {
        DLT_TRY(dlt_expand(w->arena, l->scope, item->pick.value, &value, w->err));
        item->pick.value = value;
    }
    if (!name) return DLT_OK;
    if (name->kind != DLT_YAML_SCALAR || !is_name(name->text))
        return dlt_err_at(w->err, DLT_E_CONFIG, name->at,
                          "%s.name: needs a word of letters, digits, '_' and '-'", l->path);
    item->name = name->text;
    item->name_at = name->at;
    return DLT_OK;
}

static DltTensor *one_item(DltWalk *w, DltList *l, const DltYaml *tree, const Item *as_written,
                           int64_t index, DltTensor *x)
{
    Item item = *as_written;
    DltStatus status = expand_item(w, l, tree, &item);
    drop_repeated_reports(w);
    if (status != DLT_OK) return dlt_walk_poison(w, status);
    if (item.name && index >= 0)
        item.name = dlt_arena_printf(w->arena, "%s.%" PRId64, item.name, index);
    if (item.name && !dlt_walk_take(w, l, item.name))
        return dlt_walk_error(w, item.name_at, "%s.name: '%s' is taken by a layer of the same list",
                              l->path, item.name);
    x = build_named(w, l, &item, own_name(w, l, &item), x);
    l->position++;
    return x;
}

/* The name of a repeat stands for its last item's output. */
static DltTensor *name_repeat(DltWalk *w, DltList *l, const DltYaml *tree, DltTensor *x)
{
    const DltYaml *name = dlt_yaml_get(tree, "name");
    if (!name || name->kind != DLT_YAML_SCALAR || strchr(name->text, '$')) return x;
    const char *old = dlt_build_enter(w->b, name->text);
    bool free = dlt_walk_remember(w, x);
    dlt_build_leave(w->b, old);
    if (free && dlt_walk_take(w, l, name->text)) return x;
    return dlt_walk_error(w, name->at, "%s.name: '%s' is taken by a layer of the same list",
                          l->path, name->text);
}

/* `repeat: n`: the item n times, with $i and $n inside. */
static DltTensor *repeat_item(DltWalk *w, DltList *l, const DltYaml *tree, const Item *item,
                              DltTensor *x)
{
    DltYaml *value = NULL;
    int64_t n = 0;
    DltStatus status = dlt_expand(w->arena, l->scope, item->repeat, &value, w->err);
    if (status != DLT_OK) return dlt_walk_poison(w, status);
    if (value->kind != DLT_YAML_SCALAR || !dlt_parse_int(value->text, &n) || n < 0 ||
        n > MAX_REPEAT)
        return dlt_walk_error(w, item->repeat->at,
                              "%s.repeat: '%s' is no whole number from 0 to %d", l->path,
                              value->kind == DLT_YAML_SCALAR ? value->text : "a list", MAX_REPEAT);
    const DltScope *scope = l->scope;
    const DltYaml *repeat = l->repeat;
    for (int64_t i = 0; i < n && w->n_layer <= DLT_MAX_LAYERS; i++) {
        DltYaml *vars = dlt_yaml_map(w->arena, item->repeat->at);
        const int64_t number[2] = {i, n};
        static const char *const key[2] = {"i", "n"};
        for (int k = 0; k < 2; k++)
            dlt_yaml_put(w->arena, vars, key[k], item->repeat->at,
                         dlt_yaml_scalar(w->arena,
                                         dlt_arena_printf(w->arena, "%" PRId64, number[k]),
                                         item->repeat->at));
        DltScope inner = {.outer = scope, .vars = vars};
        l->scope = &inner;
        l->repeat = vars;
        x = one_item(w, l, tree, item, i, x);
    }
    l->scope = scope;
    l->repeat = repeat;
    return n > 0 ? name_repeat(w, l, tree, x) : x;
}

static DltTensor *walk_item(DltWalk *w, DltList *l, const DltYaml *tree, DltTensor *x)
{
    DltPickRule rule = {l->path, DLT_REG_LAYER, w->kinds, beside};
    Item item = {.repeat = NULL};
    bool map = tree->kind == DLT_YAML_MAP;
    if (tree->kind == DLT_YAML_LIST) {
        item.pick = (DltPick){sequential, tree->at, tree};
    } else {
        DltStatus status = dlt_pick(tree, &rule, &item.pick, w->err);
        drop_repeated_reports(w);
        if (status != DLT_OK) return dlt_walk_poison(w, status);
    }
    item.from = map ? dlt_yaml_get(tree, "from") : NULL;
    item.repeat = map ? dlt_yaml_get(tree, "repeat") : NULL;
    if (item.repeat) return repeat_item(w, l, tree, &item, x);
    return one_item(w, l, tree, &item, -1, x);
}

DltTensor *dlt_walk_list(DltWalk *w, DltList *l, const DltYaml *items, DltTensor *x)
{
    const char *path = l->path;
    if (w->depth > DLT_MAX_NESTING)
        return dlt_walk_error(w, items->at,
                              "%s: layers are nested more than %d deep (does a block use itself?)",
                              path, DLT_MAX_NESTING);
    for (int i = 0; i < items->n && w->n_layer <= DLT_MAX_LAYERS; i++) {
        const DltYaml *item = items->item[i];
        DltYaml *expanded = NULL;
        l->path = dlt_arena_printf(w->arena, "%s[%d]", path, i);
        if (item->kind == DLT_YAML_SCALAR) { /* $stem may be a layer or a list of layers */
            DltStatus status = dlt_expand(w->arena, l->scope, item, &expanded, w->err);
            drop_repeated_reports(w);
            if (status != DLT_OK) {
                x = dlt_walk_poison(w, status);
                continue;
            }
            item = expanded;
        }
        x = walk_item(w, l, item, x);
    }
    l->path = path;
    return x;
}

/* ---- the model ----------------------------------------------------------------------------- */

DltStatus dlt_walk_model(const DltSpec *spec, DltModelGraph *m, DltYaml *out, DltErr *err)
{
    DltArena *arena = m->graph->arena;
    DltWalk w = {.spec = spec,
                 .m = m,
                 .b = m->build,
                 .arena = arena,
                 .err = err,
                 .n_report = err->n,
                 .blocks = dlt_yaml_get(spec->tree, "blocks"),
                 .kinds = dlt_model_kinds(spec),
                 .name = DLT_NEW_ARRAY(arena, 2 * DLT_MAX_LAYERS + 1, const char *),
                 .output = DLT_NEW_ARRAY(arena, 2 * DLT_MAX_LAYERS, DltTensor *),
                 .output_set = dlt_keyset(arena, 2 * DLT_MAX_LAYERS)};
    DltScope scope = dlt_spec_scope(spec);
    DltList list = {.scope = &scope, .path = "model", .out = out};
    DltStatus status = dlt_walk_check_blocks(&w);
    m->out = dlt_walk_list(&w, &list, spec->model, m->x);
    dlt_build_scale_inits(m->build);
    for (int i = 0; i < m->graph->n_tensor; i++) {
        const DltTensor *t = m->graph->tensor[i];
        if (t->role == DLT_PARAM && !t->producer) m->n_param += dlt_shape_count(&t->shape);
    }
    return dlt_first(dlt_first(status, w.failed), m->build->status);
}
