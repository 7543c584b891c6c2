/* The state of the model interpreter, and the names it hands out. Private to model.c and walk_names.c. */
#ifndef DLT_WALK_H
#define DLT_WALK_H

#include "spec/read.h"

typedef struct DltWalkUsed { /* names taken in one list */
    const char *name;
    int n;
} DltWalkUsed;

typedef struct DltWalkList {
    const DltScope *scope;
    DltWalkUsed *used;
    int n_used, cap;
} DltWalkList;

typedef struct DltWalk {
    const DltSpec *spec;
    DltModelGraph *m;
    DltBuild *b;
    DltArena *arena;
    DltErr *err;
    int depth, n_item;
    const char **names; /* of every named output, for `from` */
    DltTensor **outputs;
    int n_name, cap_name, cap_row;
    const DltShape *follow; /* inside `project`: the body's output shape */
    const DltShape *from;   /* ... and the residual's input shape */
    bool stride_given;      /* the first convolution of a projection took the stride */
} DltWalk;

/* The present scope names t from now on. */
void dlt_walk_remember(DltWalk *w, DltTensor *t);
/* An output by name, as seen from the present scope outwards; NULL when there is none. */
DltTensor *dlt_walk_output(DltWalk *w, const char *name);
/* How often `name` was taken in this list, this time included. */
int dlt_walk_take_name(DltWalk *w, DltWalkList *l, const char *name);
/* name, name_2, name_3 ... */
const char *dlt_walk_unique(DltWalk *w, DltWalkList *l, const char *name);

#endif
