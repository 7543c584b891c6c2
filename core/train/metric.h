/* What metric rows share. */
#ifndef DLT_TRAIN_METRIC_H
#define DLT_TRAIN_METRIC_H

#include "api/train.h"

/* n_acc of accumulators {sum, weight}. */
int64_t dlt_metric_pair(int64_t n_out);
/* acc[0] / acc[1], NaN when the weight is 0. */
double dlt_metric_ratio(const double *acc, int64_t n_out);
/* The label that counts nothing: the loss's own where the loss is cross_entropy, else -100. */
int32_t dlt_metric_ignore(const DltTensor *loss);

#endif
