/* A tokenizer of files that tests write. */
#ifndef DLT_TOKENIZER_HELP_H
#define DLT_TOKENIZER_HELP_H

#include "data_help.h"
#include "datasets/vocab.h"

static inline DltStatus help_tokenizer(Help *h, const char *kind, const char *yaml, DltTokenizer *t)
{
    DltYaml *tree = NULL;
    DltOpts *o = DLT_NEW(h->arena, DltOpts);
    *t = (DltTokenizer){.def = dlt_tokenizer_find(kind), .path = kind, .eot = -1};
    help_ok(h, dlt_yaml_parse(h->arena, "t.yaml", yaml, (int64_t)strlen(yaml), &tree, &h->err));
    help_ok(h, dlt_schema_read(h->arena, t->def->fields, t->def->opt_size, tree,
                               (DltWhere){kind, DLT_NO_MARK}, o, &h->err));
    if (t->def->check != NULL) DLT_TRY(t->def->check(o, &h->err));
    return t->def->open(h->arena, o, ".", t, &h->err);
}

#endif
