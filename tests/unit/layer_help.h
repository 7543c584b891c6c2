/* A graph under construction and single layers in it, for the tests of layers. */
#ifndef DLT_LAYER_HELP_H
#define DLT_LAYER_HELP_H

#include "tests/golden/torch_file.h"

#include "api/layer.h"

typedef struct Fixture {
    DltArena *arena;
    DltErr err;
    DltGraph *graph;
    DltBuild b;
} Fixture;

static void start(Fixture *f)
{
    f->arena = dlt_arena_new();
    dlt_err_init(&f->err);
    f->graph = dlt_graph_new(f->arena);
    dlt_build_init(&f->b, f->graph, &f->err);
    f->b.training = true;
}

/* One layer of the model, as the spec would build it, in scope `name`. */
static DltTensor *layer(Fixture *f, const char *name, const char *yaml, DltTensor *const in[],
                        int n_in)
{
    const DltYaml *tree = torch_yaml(f->arena, yaml), *value;
    const DltLayerDef *def = dlt_layer_find(torch_kind(tree, &value));
    if (!def) fail_msg("no layer for '%s'", yaml);
    DltOpts o;
    f->b.at = tree->at;
    DltStatus status = dlt_schema_read(
        f->arena, def->fields, def->opt_size, value,
        (DltWhere){dlt_arena_printf(f->arena, "model[0].%s", def->name), tree->at}, &o, &f->err);
    if (status == DLT_OK && def->check) status = def->check(&o, &f->err);
    if (status != DLT_OK) {
        f->b.status = status;
        return dlt_build_poison(&f->b);
    }
    const char *old = dlt_build_enter(&f->b, name);
    DltTensor *y = def->build(&f->b, &o, in, n_in);
    dlt_build_leave(&f->b, old);
    return y;
}

#endif
