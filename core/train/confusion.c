/* Figures of the confusion matrix acc[true][predicted]: confusion (the table; its figure is the
 * accuracy) and the macro means f1, precision and recall. A macro mean goes over the classes that
 * occur as label or prediction; 0/0 counts 0, as scikit-learn's average='macro'. */
#include "ops/loss_ops.h"
#include "train/metric.h"

#include <inttypes.h>
#include <math.h>

/* The table takes 8 n^2 bytes on the device; 128 MiB is the most it may. */
enum { MAX_CLASSES = 4096 };

static int64_t n_acc(int64_t n_out)
{
    return n_out * n_out;
}

static void build(DltBuild *b, DltTensor *out, DltTensor *y, DltTensor *w, DltTensor *loss,
                  DltTensor *acc)
{
    (void)loss;
    if (!dlt_build_failed(b) && dlt_dim(out, -1) > MAX_CLASSES) {
        dlt_build_error(b,
                        "metrics confusion, f1, precision and recall keep a table of classes x "
                        "classes; %" PRId64 " classes are more than %d",
                        dlt_dim(out, -1), MAX_CLASSES);
        return;
    }
    dlt_metric_confusion(b, out, y, w, acc);
}

typedef struct ClassCount {
    double hit, labels, predictions;
} ClassCount;

static ClassCount count_class(const double *acc, int64_t n, int64_t k)
{
    ClassCount c = {.hit = acc[k * n + k]};
    for (int64_t i = 0; i < n; i++) {
        c.labels += acc[k * n + i];
        c.predictions += acc[i * n + k];
    }
    return c;
}

static double ratio(double a, double b)
{
    return b > 0.0 ? a / b : 0.0;
}

static double precision_of(ClassCount c)
{
    return ratio(c.hit, c.predictions);
}

static double recall_of(ClassCount c)
{
    return ratio(c.hit, c.labels);
}

/* Harmonic mean of precision and recall. */
static double f1_of(ClassCount c)
{
    return ratio(2.0 * c.hit, c.labels + c.predictions);
}

static double macro(const double *acc, int64_t n, double (*figure)(ClassCount c))
{
    double sum = 0.0;
    int64_t n_seen = 0;
    for (int64_t k = 0; k < n; k++) {
        ClassCount c = count_class(acc, n, k);
        if (c.labels + c.predictions <= 0.0) continue;
        sum += figure(c);
        n_seen++;
    }
    return n_seen ? sum / (double)n_seen : (double)NAN;
}

static double f1(const double *acc, int64_t n_out)
{
    return macro(acc, n_out, f1_of);
}

static double precision(const double *acc, int64_t n_out)
{
    return macro(acc, n_out, precision_of);
}

static double recall(const double *acc, int64_t n_out)
{
    return macro(acc, n_out, recall_of);
}

static double accuracy(const double *acc, int64_t n_out)
{
    double hit = 0.0, all = 0.0;
    for (int64_t i = 0; i < n_out * n_out; i++)
        all += acc[i];
    for (int64_t k = 0; k < n_out; k++)
        hit += acc[k * n_out + k];
    return all > 0.0 ? hit / all : (double)NAN;
}

/* One line a class: its counts by predicted class, then precision, recall and f1. */
static void text(const double *acc, int64_t n_out, const char *const *class_name, FILE *out)
{
    fprintf(out, "%-16s", "true \\ predicted");
    for (int64_t k = 0; k < n_out; k++)
        fprintf(out, " %8" PRId64, k);
    fprintf(out, " %9s %9s %9s\n", "precision", "recall", "f1");
    for (int64_t k = 0; k < n_out; k++) {
        ClassCount c = count_class(acc, n_out, k);
        fprintf(out, "%4" PRId64 " %-11.11s", k, class_name ? class_name[k] : "");
        for (int64_t i = 0; i < n_out; i++)
            fprintf(out, " %8.0f", acc[k * n_out + i]);
        fprintf(out, " %9.4f %9.4f %9.4f\n", precision_of(c), recall_of(c), f1_of(c));
    }
}

const DltMetricDef dlt_metric_def_confusion = {
    .name = "confusion",
    .help = "table of true against predicted classes; its figure is the accuracy",
    .target = DLT_TARGET_CLASS,
    .higher_is_better = true,
    .n_acc = n_acc,
    .build = build,
    .value = accuracy,
    .text = text,
};

const DltMetricDef dlt_metric_def_f1 = {
    .name = "f1",
    .help = "harmonic mean of precision and recall, mean over classes",
    .target = DLT_TARGET_CLASS,
    .higher_is_better = true,
    .n_acc = n_acc,
    .build = build,
    .value = f1,
};

const DltMetricDef dlt_metric_def_precision = {
    .name = "precision",
    .help = "part of a class's predictions that are right, mean over classes",
    .target = DLT_TARGET_CLASS,
    .higher_is_better = true,
    .n_acc = n_acc,
    .build = build,
    .value = precision,
};

const DltMetricDef dlt_metric_def_recall = {
    .name = "recall",
    .help = "part of a class's samples that are found, mean over classes",
    .target = DLT_TARGET_CLASS,
    .higher_is_better = true,
    .n_acc = n_acc,
    .build = build,
    .value = recall,
};
