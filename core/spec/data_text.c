/* What `data:` says about text: the tokenizer, written beside data.train or for all sources, and the
 * window, which sources take over from data.window. */
#include "spec/read.h"

#include <inttypes.h>

static const DltField *field_of(const DltField *fields, const char *key)
{
    for (const DltField *f = fields; f && f->key; f++)
        if (strcmp(f->key, key) == 0) return f;
    return NULL;
}

/* data.window becomes an option of this source, where the format has one. */
DltStatus dlt_data_inherit(DltReader *r, const DltField *fields, const char *path, DltYaml *options)
{
    const DltOpts *data = &r->spec->sections->data;
    const DltDataOpts *o = data->v;
    if (!field_of(fields, "window") || o->window == 0) return DLT_OK;
    DltMark at = dlt_opts_mark(data, offsetof(DltDataOpts, window));
    char *text = dlt_arena_printf(r->arena, "%" PRId64, o->window);
    const DltYaml *own = dlt_yaml_get(options, "window");
    int64_t n = 0;
    if (!own) {
        dlt_yaml_put(r->arena, options, "window", at, dlt_yaml_scalar(r->arena, text, at));
        return DLT_OK;
    }
    if (own->kind != DLT_YAML_SCALAR || !dlt_parse_int(own->text, &n) || n == o->window)
        return DLT_OK; /* a wrong number is told by the table */
    return dlt_err_at(r->err, DLT_E_CONFIG, own->at,
                      "%s.window: %" PRId64 " differs from data.window: %" PRId64
                      "; write one of them",
                      path, n, o->window);
}

int64_t dlt_data_window(const DltSpec *spec)
{
    const DltSource *s = &spec->data.source[DLT_TRAIN];
    const DltField *f = s->def ? field_of(s->def->fields, "window") : NULL;
    int64_t n = 0;
    if (f && s->opts.v) memcpy(&n, (const char *)s->opts.v + f->offset, sizeof n);
    return n;
}

/* `tokenizer:` of a source, NULL where there is none. */
static const DltYaml *own_tokenizer(const DltSource *s)
{
    const DltField *f = s->def ? field_of(s->def->fields, "tokenizer") : NULL;
    const DltYaml *tree = NULL;
    if (f && s->opts.v) memcpy(&tree, (const char *)s->opts.v + f->offset, sizeof tree);
    return tree;
}

static DltStatus read_kind(DltArena *arena, const DltYaml *tree, const char *path, DltTokenizer *t,
                           DltOpts *o, DltErr *err)
{
    DltPickRule rule = {path, DLT_REG_TOKENIZER, dlt_registry_names(arena, DLT_REG_TOKENIZER, NULL),
                        NULL};
    DltPick pick;
    DLT_TRY(dlt_pick(tree, &rule, &pick, err));
    *t = (DltTokenizer){.def = dlt_tokenizer_find(pick.kind), .path = pick.kind, .eot = -1};
    DLT_TRY(dlt_schema_read(arena, t->def->fields, t->def->opt_size, pick.value,
                            (DltWhere){dlt_arena_printf(arena, "%s.%s", path, pick.kind), pick.at},
                            o, err));
    return t->def->check ? t->def->check(o, err) : DLT_OK;
}

DltStatus dlt_spec_tokenizer(DltArena *arena, const char *text, DltMark at, const char *path,
                             DltTokenizer *t, DltErr *err)
{
    DltYaml *tree = NULL;
    DltOpts o = {0};
    DLT_TRY(dlt_yaml_parse_at(arena, at, text, &tree, err));
    DLT_TRY(read_kind(arena, tree, path, t, &o, err));
    return t->def->open(arena, &o, ".", t, err);
}

static DltStatus check_use(DltReader *r)
{
    const DltOpts *data = &r->spec->sections->data;
    const DltDataOpts *o = data->v;
    bool used = false;
    for (int i = 0; i < DLT_N_SPLIT; i++) {
        const DltSource *s = &r->spec->data.source[i];
        used = used || (s->def && field_of(s->def->fields, "window"));
    }
    if (used || (!o->tokenizer && o->window == 0)) return DLT_OK;
    const char *key = o->tokenizer ? "tokenizer" : "window";
    DltMark at =
        o->tokenizer ? o->tokenizer->at : dlt_opts_mark(data, offsetof(DltDataOpts, window));
    return dlt_err_at(r->err, DLT_E_CONFIG, at,
                      "data.%s: has no effect, for no source is text: or tokens:", key);
}

DltStatus dlt_read_tokenizer(DltReader *r)
{
    const DltDataOpts *o = r->spec->sections->data.v;
    const DltSource *s = r->spec->data.source;
    const DltYaml *tree = own_tokenizer(&s[DLT_TRAIN]);
    DLT_TRY(check_use(r));
    if (tree && o->tokenizer)
        return dlt_err_at(
            r->err, DLT_E_CONFIG, tree->at,
            "data.train.%s.tokenizer: data.tokenizer is written too; write one of them",
            s[DLT_TRAIN].def->name);
    for (int i = DLT_VAL; i < DLT_N_SPLIT; i++) {
        const DltYaml *other = own_tokenizer(&s[i]);
        if (other)
            return dlt_err_at(r->err, DLT_E_CONFIG, other->at,
                              "data.%s.%s.tokenizer: the tokenizer of data.train holds for all "
                              "sources; write it there or as data.tokenizer",
                              dlt_split_name[i], s[i].def->name);
    }
    if (!tree) tree = o->tokenizer;
    if (!tree) return DLT_OK;
    DltTokenizer *t = r->spec->data.tokenizer = DLT_NEW(r->arena, DltTokenizer);
    return read_kind(r->arena, tree, "data.tokenizer", t, &r->spec->data.tokenizer_opts, r->err);
}

DltStatus dlt_open_tokenizer(DltReader *r)
{
    DltDataSpec *d = &r->spec->data;
    const char *stored = r->spec->stored ? r->spec->stored->tokenizer : NULL;
    if (!d->tokenizer) return DLT_OK;
    if (!stored)
        return d->tokenizer->def->open(r->arena, &d->tokenizer_opts, r->spec->folder, d->tokenizer,
                                       r->err);
    const DltTokenizerDef *written = d->tokenizer->def;
    DLT_TRY(dlt_tokenizer_parse(r->arena, r->spec->path, stored, (int64_t)strlen(stored),
                                d->tokenizer, r->err));
    if (d->tokenizer->def == written) return DLT_OK;
    return dlt_err_at(r->err, DLT_E_CONFIG, d->tokenizer_opts.at,
                      "data.tokenizer: %s, but the checkpoint was trained with %s", written->name,
                      d->tokenizer->def->name);
}
