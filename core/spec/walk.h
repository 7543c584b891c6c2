/* The model interpreter's own types: one walk over `model:` that adds layers to a graph. Private to
 * model.c (items and layers), blocks.c (blocks and residuals) and names.c (names, rows). */
#ifndef DLT_SPEC_WALK_H
#define DLT_SPEC_WALK_H

#include "config/keyset.h"
#include "spec/read.h"

enum { DLT_MAX_NESTING = 32, DLT_MAX_LAYERS = 10000, DLT_MAX_SEARCH = 10000 };

/* Inside `project`: what its layers must lead from and to. */
typedef struct DltFollow {
    DltShape from, to;
    bool stride_done; /* a layer of the projection has a stride already */
} DltFollow;

/* One list of items while it is walked. */
typedef struct DltList {
    const DltScope *scope; /* names that its scalars see */
    const DltYaml *repeat; /* the innermost {i, n}, or NULL */
    const char *path;      /* "model", "blocks.basic.layers[0].body": for messages */
    DltYaml *out;          /* receives the resolved items, or NULL */
    int position;          /* items walked so far, repeats counted singly */
    const char **name;     /* base names taken in this list, and how often */
    int *count;
    int n_name, cap_name;
} DltList;

typedef struct DltWalk {
    const DltSpec *spec;
    DltModelGraph *m;
    DltBuild *b;
    DltArena *arena;
    DltErr *err;
    DltStatus failed; /* of layers behind which the walk went on */
    int n_report;     /* reports of err that are known to be of different places */
    const DltYaml *blocks;
    const char *const *kinds; /* every name an item may have */
    DltFollow *follow;        /* NULL outside projections */
    int depth, n_layer, cap_row;
    int n_search;      /* items looked at for the role of one block parameter */
    const char **name; /* full names of outputs, in the order in which they were made */
    DltTensor **output;
    int n_output;
    DltKeySet output_set;
} DltWalk;

/* model.c */
DltTensor *dlt_walk_list(DltWalk *w, DltList *l, const DltYaml *items, DltTensor *x);
DltTensor *dlt_walk_poison(DltWalk *w, DltStatus status);
/* The build has failed in something whose output is shaped like x: x, and what follows is checked as if nothing
 * had been wrong. */
DltTensor *dlt_walk_go_on(DltWalk *w, DltTensor *x);
/* Reports CONFIG at `at` and poisons the build. */
DltTensor *dlt_walk_error(DltWalk *w, DltMark at, const char *fmt, ...) DLT_PRINTF(3, 4);

/* blocks.c */
DltStatus dlt_walk_check_blocks(DltWalk *w) DLT_CHECKED;
const DltYaml *dlt_walk_block(const DltWalk *w, const char *name); /* its definition, or NULL */
DltTensor *dlt_walk_use_block(DltWalk *w, DltList *l, const DltPick *pick, DltYaml *out,
                              DltTensor *x);
/* named: its branches are body and project in a scope of their own. */
DltTensor *dlt_walk_residual(DltWalk *w, DltList *l, const DltPick *pick, DltYaml *out,
                             DltTensor *x, bool named);
/* Options of a layer in a projection, with the filters, units and stride that follow the body. */
const DltYaml *dlt_walk_follow(DltWalk *w, const DltLayerDef *def, const DltYaml *value,
                               DltMark at);

/* names.c */
/* name, name_2, name_3 ... : the first that is free in this list. */
const char *dlt_walk_unique(DltWalk *w, DltList *l, const char *name);
/* False when this list has the name already. */
bool dlt_walk_take(DltWalk *w, DltList *l, const char *name);
/* Registers `t` under the present scope; false when the full name is taken. */
bool dlt_walk_remember(DltWalk *w, DltTensor *t);
/* An output by its name as seen from the present scope outwards; "input" and "previous" too. */
DltTensor *dlt_walk_find(DltWalk *w, const char *name, DltTensor *previous);
const char *dlt_walk_nearest(DltWalk *w, const char *name);
int dlt_walk_open_row(DltWalk *w, const char *kind);
/* Fills a row from what was added to the graph since (n_node, n_tensor). */
void dlt_walk_close_row(DltWalk *w, int row, int n_node, int n_tensor, const DltTensor *out);

#endif
