/* embedding: y = weight[x], a row for each id.  x i32 [N, ..] -> y [N, .., dim]; weight [vocab,
 * dim]. The vocabulary comes from the data; a written one may be larger (padding to a round
 * number), never smaller. */
#include "layers/common.h"
#include "ops/shape_ops.h"

#include <inttypes.h>

typedef struct Embedding {
    int64_t dim, vocab;
    DLT_INIT_MEMBERS;
} Embedding;

static const DltField fields[] = {
    DLT_INT(Embedding, dim, .required = true, .main = true, .lo = 1, .hi = 1 << 24,
            .help = "width of a row", .example = "embedding: 768"),
    DLT_INT(Embedding, vocab, .lo = 1, .hi = 1 << 30,
            .help = "number of rows; default: the vocabulary of the data",
            .example = "vocab: 50304"),
    DLT_INIT_ROWS(Embedding, "normal", "0.02"),
    DLT_FIELDS_END,
};

static DltStatus check(const DltOpts *o, DltErr *err)
{
    DltWeightInit w = DLT_WEIGHT_INIT(Embedding, (const Embedding *)o->v);
    return dlt_weight_init_check(o, &w, err);
}

static DltTensor *build(DltBuild *b, const DltOpts *o, DltTensor *const in[], int n_in)
{
    (void)n_in;
    const Embedding *c = o->v;
    if (dlt_build_failed(b)) return dlt_build_poison(b);
    char text[DLT_TENSOR_TEXT];
    if (in[0]->dtype != DLT_I32)
        return dlt_build_error(b, "%s: looks up ids, but its input %s holds %s", o->name,
                               dlt_tensor_text(in[0], text), dlt_dtype_name(in[0]->dtype));
    if (c->vocab == 0 && b->vocab == 0)
        return dlt_build_error(b,
                               "%s: this data has no vocabulary; write vocab: and the number "
                               "of ids",
                               o->name);
    if (c->vocab != 0 && c->vocab < b->vocab)
        return dlt_build_error(b, "%s.vocab: %" PRId64 " is smaller than the data's %" PRId64,
                               o->name, c->vocab, b->vocab);
    DltShape shape = dlt_shape2(c->vocab ? c->vocab : b->vocab, c->dim);
    DltWeightInit init = DLT_WEIGHT_INIT(Embedding, c);
    DltTensor *w = dlt_param(b, "weight", shape, dlt_weight_init(&init, &shape));
    return dlt_embedding(b, in[0], w);
}

const DltLayerDef dlt_layer_embedding = {
    .name = "embedding",
    .help = "a trained row of numbers for each id",
    .fields = fields,
    .opt_size = sizeof(Embedding),
    .check = check,
    .build = build,
};
