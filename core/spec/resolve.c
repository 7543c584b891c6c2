/* The resolved config: what the run is, with every default written out and nothing left to look up.
 * Blocks, repeats, variables and changes of named layers are carried out, so it has no `vars` and
 * no `blocks`. Read again, it gives itself. */
#include "base/file.h"
#include "spec/read.h"

#include <inttypes.h>

typedef struct Out {
    const DltSpec *spec;
    DltArena *arena;
    const char *folder; /* relative paths are written behind it; NULL: as they are */
} Out;

/* Where a key of a resolved map was written; no file: it was chosen. */
static DltMark key_mark(const DltYaml *map, const char *key)
{
    for (int i = 0; map && i < map->n; i++)
        if (strcmp(map->key[i], key) == 0) return map->key_at[i];
    return DLT_NO_MARK;
}

static void put(Out *o, DltYaml *map, const char *key, DltYaml *value)
{
    if (value) dlt_yaml_put(o->arena, map, key, key_mark(map, key), value);
}

/* True when the table and its check accept these options as written ones. */
static bool accepted(DltArena *arena, const DltOpts *o, size_t size, const DltYaml *map,
                     DltStatus (*check)(const DltOpts *, DltErr *))
{
    static const DltMark somewhere = {.file = "resolved", .line = 1, .col = 1};
    DltErr *err = DLT_NEW(arena, DltErr);
    DltYaml *written = dlt_yaml_map(arena, DLT_NO_MARK);
    DltOpts again = {0};
    dlt_err_init(err);
    for (int i = 0; i < map->n; i++) {
        DltYaml *value = dlt_yaml_copy(arena, map->item[i]);
        value->at = somewhere; /* the mark of a default would say that nobody wrote it */
        dlt_yaml_put(arena, written, map->key[i], somewhere, value);
    }
    return dlt_schema_read(arena, o->fields, size, written, (DltWhere){o->name, somewhere}, &again,
                           err) == DLT_OK &&
           check(&again, err) == DLT_OK;
}

static bool is_given(const DltOpts *o, const char *key)
{
    for (const DltField *f = o->fields; f->key; f++)
        if (strcmp(f->key, key) == 0) return dlt_opts_given(o, f->offset);
    return false;
}

/* The same pairs, ordered as the table lists them. */
static DltYaml *in_order(DltArena *arena, const DltField *fields, const DltYaml *map)
{
    DltYaml *sorted = dlt_yaml_map(arena, DLT_NO_MARK);
    for (const DltField *f = fields; f->key; f++) {
        DltYaml *value = dlt_yaml_get(map, f->key);
        if (value) dlt_yaml_put(arena, sorted, f->key, key_mark(map, f->key), value);
    }
    return sorted;
}

DltYaml *dlt_resolved_opts(DltArena *arena, const DltOpts *o, size_t size,
                           DltStatus (*check)(const DltOpts *, DltErr *))
{
    DltYaml *map = dlt_schema_resolved(arena, o);
    if (!check || accepted(arena, o, size, map, check)) return map;
    DltYaml *given = dlt_yaml_map(arena, DLT_NO_MARK);
    for (int i = 0; i < map->n; i++)
        if (is_given(o, map->key[i]))
            dlt_yaml_put(arena, given, map->key[i], map->key_at[i], map->item[i]);
    for (int i = 0; i < map->n; i++) {
        if (is_given(o, map->key[i])) continue;
        DltYaml *more = dlt_yaml_copy(arena, given);
        dlt_yaml_put(arena, more, map->key[i], map->key_at[i], map->item[i]);
        if (accepted(arena, o, size, more, check)) given = more;
    }
    return in_order(arena, o->fields, given);
}

static DltYaml *word(Out *o, const char *text)
{
    return dlt_yaml_scalar(o->arena, text, DLT_NO_MARK);
}

static DltYaml *opts(Out *o, const DltOpts *v, size_t size,
                     DltStatus (*check)(const DltOpts *, DltErr *))
{
    DltYaml *map = v->v ? dlt_resolved_opts(o->arena, v, size, check) : NULL;
    for (const DltField *f = v->fields; map && o->folder && f->key; f++) {
        const DltYaml *path = f->file ? dlt_yaml_get(map, f->key) : NULL;
        if (path) put(o, map, f->key, word(o, dlt_path_join(o->arena, o->folder, path->text)));
    }
    return map;
}

/* {kind: {options}} */
static DltYaml *kind(Out *o, const char *name, DltYaml *options)
{
    DltYaml *map = dlt_yaml_map(o->arena, DLT_NO_MARK);
    put(o, map, name, options ? options : dlt_yaml_map(o->arena, DLT_NO_MARK));
    return map;
}

/* ---- sections ---- */

/* A tokenizer's files; it stands in `data` or in a source. */
static void place_tokenizer(Out *o, DltYaml *map)
{
    const DltDataSpec *d = &o->spec->data;
    if (!o->folder || !d->tokenizer || !dlt_yaml_get(map, "tokenizer")) return;
    const DltTokenizerDef *def = d->tokenizer->def;
    put(o, map, "tokenizer",
        kind(o, def->name, opts(o, &d->tokenizer_opts, def->opt_size, def->check)));
}

static DltYaml *without(Out *o, const DltYaml *map, const char *key)
{
    DltYaml *rest = dlt_yaml_map(o->arena, map->at);
    for (int i = 0; i < map->n; i++)
        if (strcmp(map->key[i], key) != 0)
            dlt_yaml_put(o->arena, rest, map->key[i], map->key_at[i], map->item[i]);
    return rest;
}

static DltYaml *data(Out *o)
{
    struct DltSections *s = o->spec->sections;
    DltYaml *map = opts(o, &s->data, sizeof(DltDataOpts), NULL);
    if (((const DltDataOpts *)s->data.v)->on_bad != DLT_BAD_SKIP) map = without(o, map, "max_bad");
    for (int i = 0; i < DLT_N_SPLIT; i++) {
        const DltSource *source = &o->spec->data.source[i];
        if (!s->source[i]) continue;
        if (source->fraction > 0) {
            put(o, map, dlt_split_name[i], dlt_yaml_copy(o->arena, s->source[i]));
            continue;
        }
        DltYaml *options = opts(o, &source->opts, source->def->opt_size, source->def->check);
        place_tokenizer(o, options);
        put(o, map, dlt_split_name[i], kind(o, source->def->name, options));
    }
    place_tokenizer(o, map);
    bool measured = o->spec->data.normalize == DLT_NORM_FROM_TRAIN;
    put(o, map, "normalize",
        s->mean_std.v ? opts(o, &s->mean_std, sizeof(DltMeanStd), NULL)
                      : word(o, measured ? "from train" : "none"));
    put(o, map, "mask", opts(o, &s->mask, sizeof(DltMaskOpts), dlt_mask_check));
    DltYaml *list = dlt_yaml_list(o->arena, DLT_NO_MARK);
    for (int i = 0; i < DLT_N_AUGMENT; i++)
        if (s->augment[i].v)
            dlt_yaml_append(o->arena, list,
                            kind(o, dlt_augments[i].name,
                                 opts(o, &s->augment[i], dlt_augments[i].opt_size, NULL)));
    if (list->n > 0) put(o, map, "augment", list);
    return in_order(o->arena, dlt_data_fields, map);
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
    DltYaml *batch = opts(o, &s->batch, sizeof(DltBatchOpts), NULL);
    put(o, batch, "micro",
        word(o, t->micro_auto ? "auto" : dlt_arena_printf(o->arena, "%" PRId64, t->micro)));
    put(o, map, "batch", batch);
    put(o, map, "optimizer", optimizer(o));
    put(o, map, "clip", opts(o, &s->clip, sizeof(DltClipOpts), NULL));
    put(o, map, "stop_early", opts(o, &s->stop, sizeof(DltStopOpts), NULL));
    put(o, map, "loss_scale", opts(o, &s->loss_scale, sizeof(DltLossScaleOpts), NULL));
    put(o, map, "guard", opts(o, &s->guard, sizeof(DltGuardOpts), dlt_guard_check));
    DltYaml *list = dlt_yaml_list(o->arena, DLT_NO_MARK);
    for (int i = 0; i < t->n_piece; i++)
        dlt_yaml_append(
            o->arena, list,
            kind(o, t->piece[i].def->name,
                 opts(o, &t->piece[i].opts, t->piece[i].def->opt_size, t->piece[i].def->check)));
    if (list->n > 0) put(o, map, "schedule", list);
    return in_order(o->arena, dlt_train_fields, map);
}

/* Without val, writing the default interval would ask for something to measure. */
static DltYaml *eval(Out *o)
{
    const DltOpts *v = &o->spec->sections->eval;
    DltYaml *all = opts(o, v, sizeof(DltEvalOpts), NULL),
            *map = dlt_yaml_map(o->arena, DLT_NO_MARK);
    bool every = o->spec->eval_split == DLT_VAL || dlt_opts_given(v, offsetof(DltEvalOpts, every));
    for (int i = 0; i < all->n; i++)
        if (every || strcmp(all->key[i], "every") != 0)
            dlt_yaml_put(o->arena, map, all->key[i], all->key_at[i], all->item[i]);
    DltYaml *metrics = dlt_yaml_list(o->arena, DLT_NO_MARK);
    for (int i = 0; i < o->spec->n_metric; i++)
        dlt_yaml_append(o->arena, metrics, word(o, o->spec->metric[i]->name));
    put(o, map, "metrics", metrics);
    put(o, map, "sample", opts(o, &o->spec->sections->sample, sizeof(DltSampleOpts), NULL));
    return in_order(o->arena, dlt_eval_fields, map);
}

/* {key: text} of what the run must reach. */
static DltYaml *expect(Out *o)
{
    DltYaml *map = dlt_yaml_map(o->arena, DLT_NO_MARK);
    for (int i = 0; i < o->spec->n_expect; i++)
        dlt_yaml_put(o->arena, map, o->spec->expect[i].key, o->spec->expect[i].at,
                     word(o, o->spec->expect[i].text));
    return map->n > 0 ? map : NULL;
}

static DltYaml *checkpoint(Out *o)
{
    const struct DltSections *s = o->spec->sections;
    const DltKeep *k = &o->spec->keep;
    DltYaml *map = opts(o, &s->checkpoint, sizeof(DltCheckpointOpts), NULL),
            *keep = opts(o, &s->keep, sizeof(DltKeepOpts), NULL);
    const char *best = k->best_metric ? dlt_arena_printf(o->arena, "1 by %s %s", k->best_metric,
                                                         k->best_max ? "max" : "min")
                                      : "none";
    put(o, keep, "best", word(o, best));
    put(o, map, "keep", in_order(o->arena, dlt_keep_fields, keep));
    return map;
}

/* A scalar of the top level, with the mark of its field. */
static void put_root(Out *o, DltYaml *map, size_t offset, DltYaml *value)
{
    const DltOpts *root = &o->spec->sections->root;
    for (int i = 0; root->fields[i].key; i++)
        if (root->fields[i].offset == offset)
            dlt_yaml_put(o->arena, map, root->fields[i].key, root->mark[i], value);
}

DltYaml *dlt_spec_resolve(const DltSpec *spec, const char *folder)
{
    struct DltSections *s = spec->sections;
    Out o = {.spec = spec, .arena = spec->arena, .folder = folder};
    const DltRoot *root = s->root.v;
    DltYaml *map = dlt_yaml_map(o.arena, DLT_NO_MARK);
    put_root(&o, map, offsetof(DltRoot, dltrain), word(&o, "1"));
    put_root(&o, map, offsetof(DltRoot, name), word(&o, spec->name));
    put_root(&o, map, offsetof(DltRoot, seed),
             word(&o, dlt_arena_printf(o.arena, "%" PRIu64, spec->seed)));
    put_root(&o, map, offsetof(DltRoot, device), word(&o, spec->device));
    if (spec->resume_auto) put_root(&o, map, offsetof(DltRoot, resume), word(&o, "auto"));
    put(&o, map, "data", data(&o));
    put(&o, map, "model", s->model);
    put(&o, map, "loss",
        kind(&o, spec->loss->name,
             opts(&o, &spec->loss_opts, spec->loss->opt_size, spec->loss->check)));
    put(&o, map, "train", train(&o));
    put(&o, map, "eval", eval(&o));
    put(&o, map, "checkpoint", checkpoint(&o));
    put(&o, map, "log", opts(&o, &s->log, sizeof(DltLogOpts), NULL));
    put(&o, map, "passes", (DltYaml *)root->passes);
    put(&o, map, "expect", expect(&o));
    return map;
}
