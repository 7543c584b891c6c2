/* The tables of optimizers, schedules, losses and metrics, from their .def files. Nothing else
 * lists them. */
#include "api/train.h"

#include <string.h>

#define OPTIM(name) extern const DltOptimDef dlt_optim_##name;
#include "train/optim.def"
#undef OPTIM
#define SCHEDULE(name) extern const DltScheduleDef dlt_schedule_##name;
#include "train/schedules.def"
#undef SCHEDULE
#define LOSS(name) extern const DltLossDef dlt_loss_##name;
#include "train/losses.def"
#undef LOSS
#define METRIC(name) extern const DltMetricDef dlt_metric_def_##name;
#include "train/metrics.def"
#undef METRIC

const DltOptimDef *const dlt_optims[] = {
#define OPTIM(name) &dlt_optim_##name,
#include "train/optim.def"
#undef OPTIM
    NULL,
};
const DltScheduleDef *const dlt_schedules[] = {
#define SCHEDULE(name) &dlt_schedule_##name,
#include "train/schedules.def"
#undef SCHEDULE
    NULL,
};
const DltLossDef *const dlt_losses[] = {
#define LOSS(name) &dlt_loss_##name,
#include "train/losses.def"
#undef LOSS
    NULL,
};
const DltMetricDef *const dlt_metrics[] = {
#define METRIC(name) &dlt_metric_def_##name,
#include "train/metrics.def"
#undef METRIC
    NULL,
};

/* The row of that name, or NULL. */
const DltOptimDef *dlt_optim_find(const char *name)
{
    for (const DltOptimDef *const *row = dlt_optims; *row; row++)
        if (strcmp((*row)->name, name) == 0) return *row;
    return NULL;
}

/* The row of that name, or NULL. */
const DltScheduleDef *dlt_schedule_find(const char *name)
{
    for (const DltScheduleDef *const *row = dlt_schedules; *row; row++)
        if (strcmp((*row)->name, name) == 0) return *row;
    return NULL;
}

/* The row of that name, or NULL. */
const DltLossDef *dlt_loss_find(const char *name)
{
    for (const DltLossDef *const *row = dlt_losses; *row; row++)
        if (strcmp((*row)->name, name) == 0) return *row;
    return NULL;
}

/* The row of that name, or NULL. */
const DltMetricDef *dlt_metric_find(const char *name)
{
    for (const DltMetricDef *const *row = dlt_metrics; *row; row++)
        if (strcmp((*row)->name, name) == 0) return *row;
    return NULL;
}
