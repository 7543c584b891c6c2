/* The resolved config: what the user wrote with every default written out; read again, it gives itself. Blocks
 * and references stay as written, and layers get the defaults of their table. */
#include "spec/read.h"

typedef struct Out {
    const DltSpec *spec;
    DltArena *arena;
    DltYaml *root;
} Out;

static void put(Out *o, DltYaml *map, const char *key, DltYaml *value)
{
    if (value) dlt_yaml_put(o->arena, map, key, DLT_NO_MARK, value);
}

DltYaml *dlt_resolved_opts(DltArena *arena, const DltOpts *o, size_t size,
                           DltStatus (*check)(const DltOpts *, DltErr *))
{
    DltYaml *map = dlt_schema_resolved(arena, o), *given = dlt_yaml_map(arena, DLT_NO_MARK);
    if (!check) return map;
    DltErr *err = DLT_NEW(arena, DltErr);
    DltOpts again = {0};
    dlt_err_init(err);
    if (dlt_schema_read(arena, o->fields, size, map, o->name, o->at, &again, err) == DLT_OK &&
        check(&again, err) == DLT_OK)
        return map;
    for (int i = 0; i < map->n;
         i++) /* a default that has no effect beside the others is not written */
        for (const DltField *f = o->fields; f->key; f++)
            if (strcmp(f->key, map->key[i]) == 0 && dlt_opts_given(o, f->offset))
                dlt_yaml_put(arena, given, map->key[i], map->key_at[i], map->item[i]);
    return given;
}

static DltYaml *opts(Out *o, const DltOpts *v, size_t size,
                     DltStatus (*check)(const DltOpts *, DltErr *))
{
    return v->v ? dlt_resolved_opts(o->arena, v, size, check) : NULL;
}

/* {kind: {options}} */
static DltYaml *kind(Out *o, const char *name, DltYaml *options)
{
    DltYaml *map = dlt_yaml_map(o->arena, DLT_NO_MARK);
    put(o, map, name, options ? options : dlt_yaml_map(o->arena, DLT_NO_MARK));
    return map;
}

/* ---- layers ---- */

static bool is_default(const DltYaml *map, const DltField *f)
{
    return f->def && !dlt_yaml_get(map, f->key);
}

/* Options of a layer as written, with the table's defaults behind them. Where the layer's check refuses a default
 * beside what is written, none is added. */
static DltYaml *with_defaults(DltArena *arena, const DltLayerDef *def, const DltYaml *value)
{
    DltYaml *map = dlt_yaml_map(arena, DLT_NO_MARK);
    if (value && value->kind == DLT_YAML_MAP)
        map = dlt_yaml_copy(arena, value);
    else if (value && def->fields)
        dlt_yaml_put(arena, map, def->fields[0].key, DLT_NO_MARK, dlt_yaml_copy(arena, value));
    if (def->check) return map;
    for (const DltField *f = def->fields; f && f->key; f++)
        if (is_default(map, f))
            dlt_yaml_put(arena, map, f->key, DLT_NO_MARK,
                         dlt_yaml_scalar(arena, f->def, DLT_NO_MARK));
    return map;
}

static DltYaml *layers(DltArena *arena, const DltYaml *list);

static DltYaml *layer(DltArena *arena, const DltYaml *item)
{
    const char *word = item->kind == DLT_YAML_SCALAR ? item->text : NULL;
    if (item->kind == DLT_YAML_LIST) return layers(arena, item);
    if (word) {
        const DltLayerDef *def = dlt_layer_find(word);
        if (!def || !def->fields) return dlt_yaml_copy(arena, item);
        DltYaml *map = dlt_yaml_map(arena, DLT_NO_MARK);
        dlt_yaml_put(arena, map, word, DLT_NO_MARK, with_defaults(arena, def, NULL));
        return map;
    }
    DltYaml *map = dlt_yaml_copy(arena, item);
    for (int i = 0; i < map->n; i++) {
        const DltLayerDef *def = dlt_layer_find(map->key[i]);
        DltYaml *v = map->item[i];
        bool inputs = def && (def->max_in > 1) && v->kind == DLT_YAML_LIST;
        if (def && def->fields && !inputs) map->item[i] = with_defaults(arena, def, v);
        if (strcmp(map->key[i], "residual") != 0) continue;
        if (v->kind == DLT_YAML_LIST) map->item[i] = layers(arena, v);
        DltYaml *body = v->kind == DLT_YAML_MAP ? dlt_yaml_get(v, "body") : NULL;
        if (body) dlt_yaml_put(arena, v, "body", DLT_NO_MARK, layers(arena, body));
    }
    return map;
}

static DltYaml *layers(DltArena *arena, const DltYaml *list)
{
    if (list->kind != DLT_YAML_LIST) return dlt_yaml_copy(arena, list);
    DltYaml *out = dlt_yaml_list(arena, DLT_NO_MARK);
    for (int i = 0; i < list->n; i++)
        dlt_yaml_append(arena, out, layer(arena, list->item[i]));
    return out;
}

static DltYaml *blocks(DltArena *arena, const DltYaml *tree)
{
    DltYaml *out = dlt_yaml_copy(arena, tree);
    for (int i = 0; i < out->n; i++) {
        DltYaml *list = dlt_yaml_get(out->item[i], "layers");
        if (list) dlt_yaml_put(arena, out->item[i], "layers", DLT_NO_MARK, layers(arena, list));
    }
    return out;
}

/* ---- sections ---- */

static DltYaml *data(Out *o)
{
    struct DltSections *s = o->spec->sections;
    DltYaml *map = opts(o, &s->data, sizeof(DltDataOpts), NULL);
    for (int i = 0; i < DLT_N_SPLIT; i++) {
        const DltSource *source = &o->spec->data.source[i];
        if (!s->source[i]) continue;
        if (source->fraction > 0)
            put(o, map, dlt_split_name[i], dlt_yaml_copy(o->arena, s->source[i]));
        else
            put(o, map, dlt_split_name[i],
                kind(o, source->def->name, opts(o, &source->opts, source->def->opt_size, NULL)));
    }
    if (s->mean_std.v) put(o, map, "normalize", opts(o, &s->mean_std, sizeof(DltMeanStd), NULL));
    DltYaml *list = dlt_yaml_list(o->arena, DLT_NO_MARK);
    for (int i = 0; i < DLT_N_AUGMENT; i++)
        if (s->augment[i].v)
            dlt_yaml_append(o->arena, list,
                            kind(o, dlt_augments[i].name,
                                 opts(o, &s->augment[i], dlt_augments[i].opt_size, NULL)));
    if (list->n > 0) put(o, map, "augment", list);
    return map;
}

static DltYaml *optimizer(Out *o)
{
    const DltTrainSpec *t = &o->spec->train;
    DltYaml *map =
        kind(o, t->optim->name, opts(o, &t->optim_opts, t->optim->opt_size, t->optim->check));
    DltYaml *list = dlt_yaml_list(o->arena, DLT_NO_MARK);
    for (int i = 0; i < t->update.n_group; i++)
        dlt_yaml_append(
            o->arena, list,
            opts(o, &o->spec->sections->group[i], sizeof(DltGroupOpts), dlt_group_check));
    if (list->n > 0) put(o, map, "groups", list);
    return map;
}

static DltYaml *train(Out *o)
{
    struct DltSections *s = o->spec->sections;
    const DltTrainSpec *t = &o->spec->train;
    DltYaml *map = opts(o, &s->train, sizeof(DltTrainOpts), NULL);
    put(o, map, "batch", opts(o, &s->batch, sizeof(DltBatchOpts), NULL));
    put(o, map, "optimizer", optimizer(o));
    put(o, map, "clip", opts(o, &s->clip, sizeof(DltClipOpts), NULL));
    put(o, map, "stop_early", opts(o, &s->stop, sizeof(DltStopOpts), NULL));
    put(o, map, "guard", opts(o, &s->guard, sizeof(DltGuardOpts), dlt_guard_check));
    DltYaml *list = dlt_yaml_list(o->arena, DLT_NO_MARK);
    for (int i = 0; i < t->n_piece; i++)
        dlt_yaml_append(
            o->arena, list,
            kind(o, t->piece[i].def->name,
                 opts(o, &t->piece[i].opts, t->piece[i].def->opt_size, t->piece[i].def->check)));
    if (list->n > 0) put(o, map, "schedule", list);
    return map;
}

/* Without val, writing the default interval would ask for something to measure. */
static DltYaml *eval(Out *o)
{
    const DltOpts *v = &o->spec->sections->eval;
    DltYaml *all = opts(o, v, sizeof(DltEvalOpts), NULL),
            *map = dlt_yaml_map(o->arena, DLT_NO_MARK);
    bool every = o->spec->eval_split == DLT_VAL || dlt_opts_given(v, offsetof(DltEvalOpts, every));
    for (int i = 0; i < all->n; i++)
        if (every || strcmp(all->key[i], "every") != 0) put(o, map, all->key[i], all->item[i]);
    return map;
}

DltYaml *dlt_spec_resolve(const DltSpec *spec)
{
    struct DltSections *s = spec->sections;
    Out o = {.spec = spec, .arena = spec->arena};
    const DltRoot *root = s->root.v;
    DltYaml *map = opts(&o, &s->root, sizeof(DltRoot), NULL);
    put(&o, map, "name", dlt_yaml_scalar(o.arena, spec->name, DLT_NO_MARK));
    if (root->blocks) put(&o, map, "blocks", blocks(o.arena, root->blocks));
    put(&o, map, "data", data(&o));
    put(&o, map, "model", layers(o.arena, spec->model));
    put(&o, map, "loss",
        kind(&o, spec->loss->name,
             opts(&o, &spec->loss_opts, spec->loss->opt_size, spec->loss->check)));
    put(&o, map, "train", train(&o));
    put(&o, map, "eval", eval(&o));
    DltYaml *checkpoint = opts(&o, &s->checkpoint, sizeof(DltCheckpointOpts), NULL);
    if (checkpoint) put(&o, checkpoint, "keep", opts(&o, &s->keep, sizeof(DltKeepOpts), NULL));
    put(&o, map, "checkpoint", checkpoint);
    put(&o, map, "log", opts(&o, &s->log, sizeof(DltLogOpts), NULL));
    return map;
}
