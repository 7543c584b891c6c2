/* The table of data formats, and what follows from a data set's description alone. */
#include "base/rng.h"
#include "base/sys.h"
#include "datasets/reader.h"
#include <math.h>

const DltDatasetDef *const dlt_datasets[] = {
#define DATASET(name) &dlt_dataset_##name,
#include "datasets/datasets.def"
#undef DATASET
    NULL};

const DltDatasetDef *dlt_dataset_find(const char *name)
{
    for (int i = 0; dlt_datasets[i] != NULL; i++) {
        if (strcmp(dlt_datasets[i]->name, name) == 0) return dlt_datasets[i];
    }
    return NULL;
}

int64_t dlt_x_count(const DltDataset *ds)
{
    return dlt_shape_count(&ds->x_shape);
}

int64_t dlt_y_count(const DltDataset *ds)
{
    return dlt_shape_count(&ds->y_shape);
}

/* Raw samples are as files have them: f32 has 4 bytes in every build. */
static int64_t element_bytes(DltDtype dtype)
{
    return dtype == DLT_U8 ? 1 : 4;
}

int64_t dlt_dataset_x_bytes(const DltDataset *ds)
{
    return dlt_x_count(ds) * element_bytes(ds->x_dtype);
}

int64_t dlt_dataset_y_bytes(const DltDataset *ds)
{
    return dlt_y_count(ds) * element_bytes(ds->y_dtype);
}
