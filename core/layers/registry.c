/* The table of layers, from layers.def. Nothing else lists them. */
#include "api/layer.h"

#include <string.h>

#define LAYER(name) extern const DltLayerDef dlt_layer_##name;
#include "layers/layers.def"
#undef LAYER

const DltLayerDef *const dlt_layers[] = {
#define LAYER(name) &dlt_layer_##name,
#include "layers/layers.def"
#undef LAYER
    NULL,
};

/* The row of that name, or NULL. */
const DltLayerDef *dlt_layer_find(const char *name)
{
    for (const DltLayerDef *const *row = dlt_layers; *row; row++)
        if (strcmp((*row)->name, name) == 0) return *row;
    return NULL;
}
