/* dense: y = x W^T + b on the last axis.  x [.., C], y [.., units], weight [units, C], bias
 * [units]. With `tie` the weight is another layer's parameter of that shape (Press & Wolf 2017,
 * "Using the Output Embedding to Improve Language Models"). */
#include "layers/common.h"
#include "ops/matmul.h"

#include <inttypes.h>

typedef struct Dense {
    int64_t units;
    bool bias;
    const char *tie;
    int bias_init;
    DLT_INIT_MEMBERS;
} Dense;

static const DltField fields[] = {
    DLT_INT(Dense, units, .required = true, .main = true, .lo = 1, .hi = 1 << 24,
            .help = "number of outputs", .example = "dense: 64"),
    DLT_BOOL(Dense, bias, .def = "true", .help = "add a bias", .example = "bias: false"),
    DLT_STR(Dense, tie, .help = "use this parameter [units, inputs] as the weight",
            .example = "tie: wte.weight"),
    DLT_INIT_ROWS(Dense, "fan_in_uniform", NULL),
    DLT_BIAS_INIT_ROW(Dense),
    DLT_FIELDS_END,
};

static DltStatus check(const DltOpts *o, DltErr *err)
{
    const Dense *c = o->v;
    if (c->tie && dlt_opts_given(o, offsetof(Dense, init)))
        return dlt_err_at(err, DLT_E_CONFIG, dlt_opts_mark(o, offsetof(Dense, init)),
                          "%s.init has no effect with tie: %s, whose values are its own layer's",
                          o->name, c->tie);
    if (!c->bias && dlt_opts_given(o, offsetof(Dense, bias_init)))
        return dlt_err_at(err, DLT_E_CONFIG, dlt_opts_mark(o, offsetof(Dense, bias_init)),
                          "%s.bias_init has no effect with bias: false", o->name);
    DltWeightInit w = DLT_WEIGHT_INIT(Dense, c);
    return dlt_weight_init_check(o, &w, err);
}

/* Names of all parameters so far, for "did you mean". */
static const char *nearest_param(const DltGraph *g, const char *word)
{
    const char **names = DLT_NEW_ARRAY(g->arena, g->n_tensor + 1, const char *);
    int n = 0;
    for (int i = 0; i < g->n_tensor; i++)
        if (g->tensor[i]->role == DLT_PARAM) names[n++] = g->tensor[i]->name;
    return dlt_nearest(word, names);
}

static DltTensor *tied_weight(DltBuild *b, const DltOpts *o, const DltTensor *x,
                              const DltShape *shape)
{
    const Dense *c = o->v;
    DltTensor *w = dlt_graph_find(b->graph, c->tie);
    if (!w || w->role != DLT_PARAM) {
        const char *near = nearest_param(b->graph, c->tie);
        return dlt_build_error(b, "%s.tie: there is no parameter '%s' before this layer%s%s%s",
                               o->name, c->tie, near ? "; did you mean '" : "", near ? near : "",
                               near ? "'?" : "");
    }
    if (dlt_shape_equal(&w->shape, shape)) return w;
    char wt[DLT_TENSOR_TEXT], xt[DLT_TENSOR_TEXT];
    return dlt_build_error(b,
                           "%s.tie: %s does not fit: %" PRId64
                           " units on the input %s need a weight [%" PRId64 ", %" PRId64 "]",
                           o->name, dlt_tensor_text(w, wt), c->units, dlt_tensor_text(x, xt),
                           shape->dim[0], shape->dim[1]);
}

static DltTensor *build(DltBuild *b, const DltOpts *o, DltTensor *const in[], int n_in)
{
    (void)n_in;
    const Dense *c = o->v;
    DltTensor *x = in[0];
    char text[DLT_TENSOR_TEXT];
    if (!dlt_layer_wants_floats(b, o, x)) return dlt_build_poison(b);
    if (x->shape.rank == 4)
        return dlt_build_error(
            b,
            "%s: acts on the last axis, but its input %s is an image [N, C, H, W]; "
            "add flatten or global_avg_pool before dense",
            o->name, dlt_tensor_text(x, text));
    DltShape shape = dlt_shape2(c->units, dlt_dim(x, -1));
    DltWeightInit init = DLT_WEIGHT_INIT(Dense, c);
    DltTensor *w = c->tie ? tied_weight(b, o, x, &shape)
                          : dlt_param(b, "weight", shape, dlt_weight_init(&init, &shape));
    DltTensor *y = dlt_matmul(b, x, w, false, true);
    if (!c->bias) return y;
    DltTensor *bias =
        dlt_param(b, "bias", dlt_shape1(c->units), dlt_bias_init(c->bias_init, &shape));
    return dlt_bias(b, y, bias, x->shape.rank - 1);
}

const DltLayerDef dlt_layer_dense = {
    .name = "dense",
    .help = "fully connected: y = x W^T + b on the last axis",
    .fields = fields,
    .opt_size = sizeof(Dense),
    .check = check,
    .build = build,
};
