/* position: y[n, t] = x[n, t] + weight[t].  x, y [N, T, C]. learned: weight [max, C] is trained
 * (Gehring et al. 2017, section 3.1); sinusoidal: sin(t 10000^(-2i/C)) at columns 2i, the cosine
 * behind it (Vaswani et al. 2017, section 3.5). */
#include "layers/common.h"
#include "ops/elementwise.h"
#include "ops/shape_ops.h"

#include <inttypes.h>
#include <math.h>

enum { LEARNED, SINUSOIDAL, ROTARY };

typedef struct Position {
    int kind;
    int64_t max;
    DLT_INIT_MEMBERS;
} Position;

static const DltEnum kinds[] = {
    {"learned", LEARNED}, {"sinusoidal", SINUSOIDAL}, {"rotary", ROTARY}, {NULL, 0}};

static const DltField fields[] = {
    DLT_ENUM(Position, kind, .def = "learned", .main = true, .choices = kinds,
             .help = "learned: a trained row for each position; sinusoidal: fixed waves; rotary "
                     "positions are written rope: true in attention",
             .example = "position: sinusoidal"),
    DLT_INT(Position, max, .lo = 1, .hi = 1 << 24, .unit = "tokens",
            .help = "rows of the trained table; default: the tokens of the input",
            .example = "max: 1024"),
    DLT_INIT_ROWS(Position, "normal", "0.02"),
    DLT_FIELDS_END,
};

static DltStatus check(const DltOpts *o, DltErr *err)
{
    static const struct {
        const char *key;
        size_t at;
    } trained[] = {{"max", offsetof(Position, max)}, {"init", offsetof(Position, init)}};
    const Position *c = o->v;
    if (c->kind == ROTARY)
        return dlt_err_at(err, DLT_E_CONFIG, dlt_opts_mark(o, offsetof(Position, kind)),
                          "%s.kind: rotary positions belong to attention; remove this layer and "
                          "write attention: {rope: true, ...}",
                          o->name);
    for (size_t i = 0; c->kind != LEARNED && i < 2; i++)
        if (dlt_opts_given(o, trained[i].at))
            return dlt_err_at(err, DLT_E_CONFIG, dlt_opts_mark(o, trained[i].at),
                              "%s.%s has no effect with kind: sinusoidal", o->name, trained[i].key);
    DltWeightInit w = DLT_WEIGHT_INIT(Position, c);
    return dlt_weight_init_check(o, &w, err);
}

static DltTensor *waves(DltBuild *b, int64_t t, int64_t c)
{
    double *v = DLT_NEW_ARRAY(b->graph->arena, t * c, double);
    for (int64_t i = 0; i < t; i++)
        for (int64_t k = 0; k < c; k++) {
            double angle = (double)i * pow(10000.0, -(double)(k / 2 * 2) / (double)c);
            v[i * c + k] = k % 2 == 0 ? sin(angle) : cos(angle);
        }
    DltInit init = {.kind = DLT_INIT_VALUES, .values = v, .n_values = t * c};
    return dlt_state(b, "waves", dlt_shape2(t, c), DLT_F32, init);
}

static DltTensor *build(DltBuild *b, const DltOpts *o, DltTensor *const in[], int n_in)
{
    (void)n_in;
    const Position *c = o->v;
    DltTensor *x = in[0];
    if (!dlt_layer_wants_tokens(b, o, x) || dlt_build_failed(b)) return dlt_build_poison(b);
    int64_t n = dlt_dim(x, 1), t = b->context > 0 ? b->context : n, width = dlt_dim(x, 2);
    int64_t rows = c->max > 0 ? c->max : t;
    char text[DLT_TENSOR_TEXT];
    if (rows < t) {
        b->at = dlt_opts_mark(o, offsetof(Position, max));
        return dlt_build_error(b,
                               "%s.max: %" PRId64 " positions are fewer than the %" PRId64
                               " tokens of its input %s",
                               o->name, rows, t, dlt_tensor_text(x, text));
    }
    DltShape shape = dlt_shape2(rows, width);
    DltWeightInit init = DLT_WEIGHT_INIT(Position, c);
    DltTensor *w = c->kind == SINUSOIDAL
                       ? waves(b, t, width)
                       : dlt_param(b, "weight", shape, dlt_weight_init(&init, &shape));
    if (b->place)
        return dlt_add(b, x,
                       dlt_reshape(b, dlt_embedding(b, b->place, w), dlt_shape3(1, 1, width)));
    if (dlt_dim(w, 0) > n) w = dlt_slice(b, w, 0, 0, n);
    return dlt_add(b, x, dlt_reshape(b, w, dlt_shape3(1, n, width)));
}

const DltLayerDef dlt_layer_position = {
    .name = "position",
    .help = "add the position of each token: [N, T, C] -> [N, T, C]",
    .fields = fields,
    .opt_size = sizeof(Position),
    .check = check,
    .keeps_shape = true,
    .build = build,
};
