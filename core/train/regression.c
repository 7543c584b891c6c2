/* mae, mse, rmse and r2 from the sums of metric_regression (ops/loss_ops.h). r2 = 1 - sum (p - t)^2
 * / sum (t - mean t)^2 over all values together; constant targets give 1 when met exactly, else 0,
 * as scikit-learn's r2_score. */
#include "ops/loss_ops.h"
#include "train/metric.h"

#include <math.h>

enum { SAMPLES, SUM_ABS, SUM_SQUARE, SUM_T, SUM_T2, ELEMENTS, N_ACC };

static int64_t n_acc(int64_t n_out)
{
    (void)n_out;
    return N_ACC;
}

static void build(DltBuild *b, DltTensor *out, DltTensor *y, DltTensor *w, DltTensor *loss,
                  DltTensor *acc)
{
    (void)loss;
    dlt_metric_regression(b, out, y, w, acc);
}

static double mean_of(const double *acc, int sum)
{
    return acc[ELEMENTS] > 0.0 ? acc[sum] / acc[ELEMENTS] : (double)NAN;
}

static double mae(const double *acc, int64_t n_out)
{
    (void)n_out;
    return mean_of(acc, SUM_ABS);
}

static double mse(const double *acc, int64_t n_out)
{
    (void)n_out;
    return mean_of(acc, SUM_SQUARE);
}

static double rmse(const double *acc, int64_t n_out)
{
    return sqrt(mse(acc, n_out));
}

static double r2(const double *acc, int64_t n_out)
{
    (void)n_out;
    if (acc[ELEMENTS] <= 0.0) return (double)NAN;
    double spread = acc[SUM_T2] - acc[SUM_T] * acc[SUM_T] / acc[ELEMENTS];
    if (spread > 0.0) return 1.0 - acc[SUM_SQUARE] / spread;
    return acc[SUM_SQUARE] > 0.0 ? 0.0 : 1.0;
}

const DltMetricDef dlt_metric_def_mae = {
    .name = "mae",
    .help = "mean absolute error",
    .target = DLT_TARGET_VALUE,
    .n_acc = n_acc,
    .build = build,
    .value = mae,
};

const DltMetricDef dlt_metric_def_mse = {
    .name = "mse",
    .help = "mean squared error",
    .target = DLT_TARGET_VALUE,
    .n_acc = n_acc,
    .build = build,
    .value = mse,
};

const DltMetricDef dlt_metric_def_rmse = {
    .name = "rmse",
    .help = "root of the mean squared error",
    .target = DLT_TARGET_VALUE,
    .n_acc = n_acc,
    .build = build,
    .value = rmse,
};

const DltMetricDef dlt_metric_def_r2 = {
    .name = "r2",
    .help = "part of the targets' variance explained; 1 is perfect",
    .target = DLT_TARGET_VALUE,
    .higher_is_better = true,
    .n_acc = n_acc,
    .build = build,
    .value = r2,
};
