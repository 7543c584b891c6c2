/* Layers of several inputs.
 *   add: y = a + b + ..., all of one shape
 *   mul: y = a * b * ..., where a dimension of 1 stretches to the other's (gates such as squeeze-
 *        and-excitation: [N,C,H,W] * [N,C,1,1])
 *   concat: the inputs one behind the other along `axis`, all other dimensions equal */
#include "layers/common.h"
#include "ops/elementwise.h"
#include "ops/shape_ops.h"

#include <inttypes.h>

/* True when each dim of small is big's or 1. */
static bool stretches(const DltTensor *small, const DltTensor *big)
{
    if (small->shape.rank != big->shape.rank) return false;
    for (int i = 0; i < small->shape.rank; i++)
        if (small->shape.dim[i] != 1 && small->shape.dim[i] != big->shape.dim[i]) return false;
    return true;
}

static DltTensor *differ(DltBuild *b, const DltOpts *o, const DltTensor *a, const DltTensor *c,
                         const char *rule)
{
    char at[DLT_TENSOR_TEXT], ct[DLT_TENSOR_TEXT];
    return dlt_build_error(b, "%s: %s and %s have different shapes; %s", o->name,
                           dlt_tensor_text(a, at), dlt_tensor_text(c, ct), rule);
}

static DltTensor *build_add(DltBuild *b, const DltOpts *o, DltTensor *const in[], int n_in)
{
    DltTensor *y = in[0];
    for (int i = 1; i < n_in && !dlt_build_failed(b); i++) {
        if (!dlt_shape_equal(&in[0]->shape, &in[i]->shape))
            return differ(b, o, in[0], in[i],
                          "add needs equal ones (project one with conv or dense)");
        y = dlt_add(b, y, in[i]);
    }
    return y;
}

static DltTensor *build_mul(DltBuild *b, const DltOpts *o, DltTensor *const in[], int n_in)
{
    DltTensor *y = in[0];
    for (int i = 1; i < n_in && !dlt_build_failed(b); i++) {
        if (stretches(in[i], y))
            y = dlt_mul(b, y, in[i]);
        else if (stretches(y, in[i]))
            y = dlt_mul(b, in[i], y);
        else
            return differ(b, o, y, in[i], "mul needs equal ones, or 1 where one is stretched");
    }
    return y;
}

typedef struct Concat {
    int64_t axis;
} Concat;

static const DltField concat_fields[] = {
    DLT_INT(Concat, axis, .lo = 1, .hi = DLT_MAX_RANK - 1,
            .help = "axis to join along, the batch being 0; default: channels (1 for images, else "
                    "the last)",
            .example = "axis: 1"),
    DLT_FIELDS_END,
};

static DltTensor *build_concat(DltBuild *b, const DltOpts *o, DltTensor *const in[], int n_in)
{
    const Concat *c = o->v;
    if (dlt_build_failed(b)) return dlt_build_poison(b);
    int rank = in[0]->shape.rank;
    int axis = dlt_opts_given(o, offsetof(Concat, axis)) ? (int)c->axis : rank == 4 ? 1 : rank - 1;
    char text[DLT_TENSOR_TEXT];
    if (axis >= rank)
        return dlt_build_error(b, "%s.axis: %d is not an axis of %s", o->name, axis,
                               dlt_tensor_text(in[0], text));
    for (int i = 1; i < n_in; i++) {
        DltShape want = in[0]->shape;
        if (in[i]->shape.rank == rank) want.dim[axis] = in[i]->shape.dim[axis];
        if (!dlt_shape_equal(&want, &in[i]->shape))
            return differ(b, o, in[0], in[i], "concat needs all but the joined axis equal");
    }
    return dlt_concat(b, in, n_in, axis);
}

const DltLayerDef dlt_layer_add = {
    .name = "add",
    .help = "sum of its inputs",
    .min_in = 2,
    .max_in = DLT_MAX_IN,
    .build = build_add,
};

const DltLayerDef dlt_layer_mul = {
    .name = "mul",
    .help = "product of its inputs",
    .min_in = 2,
    .max_in = DLT_MAX_IN,
    .build = build_mul,
};

const DltLayerDef dlt_layer_concat = {
    .name = "concat",
    .help = "its inputs joined along one axis",
    .fields = concat_fields,
    .opt_size = sizeof(Concat),
    .min_in = 2,
    .max_in = DLT_MAX_IN,
    .build = build_concat,
};
