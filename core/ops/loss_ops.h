/* Losses are (sum, weight) pairs in f64[2]; their gradient is pre-divided by the nominal weight of one
 * update (DltStepState.sample_weight) and multiplied by loss_scale, and grad_scale corrects it by the
 * true weight. w f32[N] weighs samples; a row r of R = N * positions belongs to sample r / positions.
 *   cross_entropy_fwd: logits [.., V], y i32[..], w [N], class_w f32[V] or NULL, step -> loss f64[2]
 *     row weight q = w * class_w[y] (0 when y == ignore); sum += q ((1 - s) nll(y) + s mean_v nll(v))
 *     with s = smoothing: PyTorch's cross_entropy(reduction='mean') = sum / weight. With class weights
 *     and smoothing the smooth part weighs class v by class_w[v] as PyTorch does:
 *     sum += w ((1 - s) class_w[y] nll(y) + s / V sum_v class_w[v] nll(v)); weight += w class_w[y].
 *   cross_entropy_bwd: logits, y, w, class_w, step -> dlogits
 *   cross_entropy_both: the same inputs -> dlogits, loss in one pass (made by the fuse pass); dlogits may
 *     take the place of the logits
 *   classifier: x [.., C], w [V, C], y, w [N], step -> dx, dw f32 [V, C], loss: cross entropy (no smoothing, no
 *     class weights) of the logits x w^T with its gradients, made by the fuse pass of the layer and its loss.
 *     Logits and their gradient exist for `rows` rows at a time, in a kernel's scratch, in x's type.
 *   output_layer: x [.., C], w [V, C], bias [V] or NULL, y, w [N], step, saved [.., C] or NULL -> dx, dlogits,
 *     logits [.., V] (of x's type), f64[rows, 2], a pair a row: cross entropy (no smoothing, no class weights)
 *     of logits = x w^T + bias, and dx = dlogits w times act_grad'(saved); made by the fuse pass of a small
 *     layer and its loss, where the device has a kernel
 *   loss_sum: pairs f64[rows, 2] -> loss f64[2], in the order of the rows or another fixed one
 *   pointwise_loss_fwd: p [N, ..], t [N, ..] f32 or i32, w [N], step -> loss f64[2]: sum over elements of
 *     w f(p - t), weight = w * elements;  pointwise_loss_bwd -> dp
 *     mse d^2, mae |d|, huber (d^2/2 inside delta, delta (|d| - delta/2) outside), bce on logits */
#ifndef DLT_LOSS_OPS_H
#define DLT_LOSS_OPS_H

#include "ops/elementwise.h"

typedef struct DltCrossEntropy {
    float smoothing;
    int32_t ignore; /* label that weighs nothing; -100 as PyTorch */
} DltCrossEntropy;

typedef struct DltClassifier {
    int32_t ignore;
    int64_t rows; /* most rows whose logits exist at a time */
} DltClassifier;

typedef struct DltOutputLayer {
    int32_t ignore;
    DltUnary act_grad; /* DLT_FN_NONE: none */
} DltOutputLayer;

typedef enum DltPointwise {
    DLT_LOSS_MSE,
    DLT_LOSS_MAE,
    DLT_LOSS_HUBER,
    DLT_LOSS_BCE,
    DLT_N_POINTWISE
} DltPointwise;
typedef struct DltPointwiseLoss {
    DltPointwise kind;
    float delta;
} DltPointwiseLoss;

DltTensor *dlt_cross_entropy(DltBuild *b, DltTensor *logits, DltTensor *y, DltTensor *w,
                             DltTensor *class_w, const DltCrossEntropy *attr);
DltTensor *dlt_pointwise_loss(DltBuild *b, DltTensor *p, DltTensor *t, DltTensor *w,
                              const DltPointwiseLoss *attr);

/* Metrics add to accumulators `acc` (f64, mutated), so nothing is read back inside a step.
 *   metric_add: v f64[n], acc f64[n]
 *   metric_topk: logits, y, w, acc f64[2] {hits, weight}; attr k; a tie counts by lower index first;
 *     rows whose label is `ignore` count nothing
 *   metric_confusion: logits, y, w, acc f64[V * V] ([true][predicted]); labels outside 0..V-1
 *     count nothing
 *   metric_regression: p, t, w, acc f64[6]: weight of the samples, then over
 *     elements weighed by their sample: sum |d|, sum d^2, sum t, sum t^2, weight */
typedef struct DltMetricTopk {
    int32_t k, ignore;
} DltMetricTopk;
void dlt_metric_add(DltBuild *b, DltTensor *v, DltTensor *acc);
void dlt_metric_topk(DltBuild *b, DltTensor *logits, DltTensor *y, DltTensor *w, DltTensor *acc,
                     int k, int ignore);
void dlt_metric_confusion(DltBuild *b, DltTensor *logits, DltTensor *y, DltTensor *w,
                          DltTensor *acc);
void dlt_metric_regression(DltBuild *b, DltTensor *p, DltTensor *t, DltTensor *w, DltTensor *acc);

#endif
