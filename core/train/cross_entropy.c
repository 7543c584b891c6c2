/* cross_entropy: softmax and negative log likelihood of the class, on logits; PyTorch's
 * torch.nn.CrossEntropyLoss with the same meaning of label smoothing (Szegedy et al. 2016, section
 * 7), class weights and ignored labels. logits [.., V], labels i32 [..]. */
#include "api/train.h"
#include "ops/loss_ops.h"

#include <inttypes.h>

typedef struct CrossEntropy {
    double label_smoothing;
    DltFloats class_weights;
    int64_t ignore;
} CrossEntropy;

static const DltField fields[] = {
    DLT_FLOAT(CrossEntropy, label_smoothing, .def = "0", .lo = 0, .hi = 1,
              .help = "part of the target spread evenly over all classes",
              .example = "label_smoothing: 0.1"),
    DLT_FLOATS(CrossEntropy, class_weights, .lo = 0, .hi = 1e6,
               .help = "weight of each class, one number a class; default: all 1",
               .example = "class_weights: [1, 2.5, 0.5]"),
    DLT_INT(CrossEntropy, ignore, .def = "-1", .lo = -2147483648.0, .hi = 2147483647.0,
            .help = "label of positions that count nothing; -1 stands behind the end of a text",
            .example = "ignore: 0"),
    DLT_FIELDS_END,
};

static DltTensor *class_weights(DltBuild *b, const DltOpts *o, int64_t n_class)
{
    const CrossEntropy *c = o->v;
    if (c->class_weights.n == 0) return NULL;
    if (c->class_weights.n != n_class) {
        b->at = dlt_opts_mark(o, offsetof(CrossEntropy, class_weights));
        return dlt_build_error(b,
                               "%s.class_weights: %d numbers, but the model has %" PRId64
                               " outputs; give one a class",
                               o->name, c->class_weights.n, n_class);
    }
    DltInit values = {
        .kind = DLT_INIT_VALUES, .values = c->class_weights.v, .n_values = c->class_weights.n};
    const char *old = dlt_build_enter(b, "loss");
    DltTensor *w = dlt_state(b, "class_weights", dlt_shape1(n_class), DLT_F32, values);
    dlt_build_leave(b, old);
    return w;
}

static DltTensor *build(DltBuild *b, const DltOpts *o, DltTensor *out, DltTensor *y, DltTensor *w)
{
    const CrossEntropy *c = o->v;
    if (dlt_build_failed(b)) return dlt_build_poison(b);
    if (out->producer && out->producer->kind == DLT_OP_softmax_fwd)
        return dlt_build_error(b,
                               "%s: takes logits, but the model ends in softmax; remove the "
                               "softmax (predict applies it)",
                               o->name);
    DltTensor *class_w = class_weights(b, o, dlt_dim(out, -1));
    DltCrossEntropy attr = {.smoothing = (float)c->label_smoothing, .ignore = (int32_t)c->ignore};
    return dlt_cross_entropy(b, out, y, w, class_w, &attr);
}

static const char *const metrics[] = {"top1", NULL};

const DltLossDef dlt_loss_cross_entropy = {
    .name = "cross_entropy",
    .help = "softmax and negative log likelihood of the class, on logits",
    .fields = fields,
    .opt_size = sizeof(CrossEntropy),
    .target = DLT_TARGET_CLASS,
    .metrics = metrics,
    .build = build,
    .activation = "softmax",
};
