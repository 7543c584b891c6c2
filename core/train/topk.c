/* top1 and top5: part of the samples whose class is among the 1 or 5 largest outputs. A tie counts
 * the lower class first. */
#include "ops/loss_ops.h"
#include "train/metric.h"

#include <inttypes.h>

static void build_top1(DltBuild *b, DltTensor *out, DltTensor *y, DltTensor *w, DltTensor *loss,
                       DltTensor *acc)
{
    dlt_metric_topk(b, out, y, w, acc, 1, dlt_metric_ignore(loss));
}

static void build_top5(DltBuild *b, DltTensor *out, DltTensor *y, DltTensor *w, DltTensor *loss,
                       DltTensor *acc)
{
    if (!dlt_build_failed(b) && dlt_dim(out, -1) < 5) {
        dlt_build_error(b, "metric top5 needs at least 5 classes, not %" PRId64, dlt_dim(out, -1));
        return;
    }
    dlt_metric_topk(b, out, y, w, acc, 5, dlt_metric_ignore(loss));
}

const DltMetricDef dlt_metric_def_top1 = {
    .name = "top1",
    .help = "part of the samples whose class has the largest output (accuracy)",
    .target = DLT_TARGET_CLASS,
    .higher_is_better = true,
    .n_acc = dlt_metric_pair,
    .build = build_top1,
    .value = dlt_metric_ratio,
};

const DltMetricDef dlt_metric_def_top5 = {
    .name = "top5",
    .help = "part of the samples whose class is among the five largest outputs",
    .target = DLT_TARGET_CLASS,
    .higher_is_better = true,
    .n_acc = dlt_metric_pair,
    .build = build_top5,
    .value = dlt_metric_ratio,
};
