/* What the user can name in `model:`. A layer is a field table and a build function that adds ops.
 */
#ifndef DLT_LAYER_H
#define DLT_LAYER_H

#include "config/schema.h"
#include "graph/build.h"

typedef struct DltLayerDef {
    const char *name, *help;
    const DltField *fields; /* may be NULL: a bare word */
    size_t opt_size;
    int min_in, max_in; /* number of inputs; 0, 0 means exactly one */
    bool
        keeps_shape; /* its output is shaped like its input: behind a mistake in it the rest is checked */
    DltStatus (*check)(const DltOpts *o, DltErr *err); /* cross-field rules only; may be NULL */
    DltTensor *(*build)(DltBuild *b, const DltOpts *o, DltTensor *const in[], int n_in);
} DltLayerDef;

extern const DltLayerDef *const dlt_layers[]; /* NULL-terminated, from layers/layers.def */
const DltLayerDef *dlt_layer_find(const char *name);

#endif
