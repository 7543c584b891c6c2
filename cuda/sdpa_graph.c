/* cuDNN's attention graphs. The library recognises a composite of products, pointwise operations and
 * reductions and runs it as one kernel; the composite must be spelled exactly so (the recipe is that of
 * NVIDIA's cudnn-frontend). Scores are virtual: they exist only inside the kernel. */
#include "cuda/sdpa_graph.h"

typedef cudnnBackendDescriptor_t Desc;

/* A graph under construction: tensors are numbered from 1 in the order they are made. */
typedef struct Maker {
    DltDnnGraph *g;
    const DltSdpaProblem *p;
    cudnnDataType_t type; /* of the operands */
    int64_t next;
    Desc op[DLT_SDPA_OPS];
    int n_op;
} Maker;

typedef enum Kind { REAL, VIRTUAL, VALUE } Kind;

static Desc tensor(Maker *m, cudnnDataType_t type, const int64_t dim[4], const int64_t stride[4],
                   Kind kind)
{
    int64_t align = 16, id = kind == VIRTUAL ? DLT_SDPA_VIRTUAL + m->next++ : m->next;
    const bool yes = true;
    Desc d = dlt_dnn_make(m->g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    dlt_dnn_set(m->g, d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    dlt_dnn_set(m->g, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dim);
    dlt_dnn_set(m->g, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, stride);
    dlt_dnn_set(m->g, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    dlt_dnn_set(m->g, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align);
    if (kind == VIRTUAL)
        dlt_dnn_set(m->g, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &yes);
    if (kind == VALUE)
        dlt_dnn_set(m->g, d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &yes);
    dlt_dnn_finalize(m->g, d);
    return d;
}

/* A tensor of the variant pack under its own number. */
static Desc named(Maker *m, DltSdpaId id, cudnnDataType_t type, const int64_t dim[4],
                  const int64_t stride[4])
{
    int64_t next = m->next;
    m->next = id;
    Desc d = tensor(m, type, dim, stride, id >= DLT_SDPA_SCALE ? VALUE : REAL);
    m->next = next;
    return d;
}
static Desc scalar(Maker *m, DltSdpaId id)
{
    const int64_t one[4] = {1, 1, 1, 1};
    return named(m, id, CUDNN_DATA_FLOAT, one, one);
}

/* Heads of width d in rows of `heads` of them, [b, h, t, d]; turned: presented as [b, h, d, t]. */
typedef enum View { STRAIGHT, TURNED } View;
static void head_form(const Maker *m, int64_t heads, View view, int64_t dim[4], int64_t stride[4])
{
    const DltSdpaProblem *p = m->p;
    int64_t row = heads * p->d;
    int64_t straight[2][4] = {{p->b, p->h, p->t, p->d}, {p->t * row, p->d, row, 1}};
    int a = view == TURNED ? 3 : 2;
    for (int i = 0; i < 2; i++) {
        int64_t *to = i == 0 ? dim : stride;
        to[0] = straight[i][0];
        to[1] = straight[i][1];
        to[2] = straight[i][a];
        to[3] = straight[i][5 - a];
    }
}
static Desc head(Maker *m, DltSdpaId id, int64_t heads, View view)
{
    int64_t dim[4], stride[4];
    head_form(m, heads, view, dim, stride);
    return named(m, id, m->type, dim, stride);
}

/* [b, h, t, n] packed */
static void packed(const Maker *m, int64_t n, int64_t dim[4], int64_t stride[4])
{
    const DltSdpaProblem *p = m->p;
    const int64_t d[4] = {p->b, p->h, p->t, n}, s[4] = {p->h * p->t * n, p->t * n, n, 1};
    memcpy(dim, d, sizeof d);
    memcpy(stride, s, sizeof s);
}
static Desc inner(Maker *m, cudnnDataType_t type, int64_t n)
{
    int64_t dim[4], stride[4];
    packed(m, n, dim, stride);
    return tensor(m, type, dim, stride, VIRTUAL);
}
static Desc score(Maker *m, cudnnDataType_t type)
{
    return inner(m, type, m->p->t);
}
static Desc row(Maker *m)
{
    return inner(m, CUDNN_DATA_FLOAT, 1);
}
static Desc outer(Maker *m, DltSdpaId id, int64_t n)
{
    int64_t dim[4], stride[4];
    packed(m, n, dim, stride);
    return named(m, id, CUDNN_DATA_FLOAT, dim, stride);
}
/* The scores' memory turned: [b, h, t, t] with rows as columns. */
static Desc turned_score(Maker *m)
{
    int64_t dim[4], stride[4];
    packed(m, m->p->t, dim, stride);
    stride[2] = 1;
    stride[3] = m->p->t;
    return tensor(m, m->type, dim, stride, VIRTUAL);
}

/* ---- operations ---- */

static void part(Maker *m, Desc d, cudnnBackendAttributeName_t name, Desc value)
{
    dlt_dnn_set(m->g, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}
static Desc operation(Maker *m, cudnnBackendDescriptorType_t type)
{
    DLT_BUG_ON(m->n_op == DLT_SDPA_OPS);
    return m->op[m->n_op++] = dlt_dnn_make(m->g, type);
}

typedef struct Pointwise {
    cudnnPointwiseMode_t mode;
    cudnnDataType_t math;
    int64_t axis; /* GEN_INDEX */
    Desc x, b, t, y;
} Pointwise;
static Desc pointwise(Maker *m, const Pointwise *w)
{
    const float one = 1;
    Desc d = dlt_dnn_make(m->g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    dlt_dnn_set(m->g, d, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &w->mode);
    dlt_dnn_set(m->g, d, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &w->math);
    if (w->mode == CUDNN_POINTWISE_GEN_INDEX)
        dlt_dnn_set(m->g, d, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &w->axis);
    dlt_dnn_finalize(m->g, d);
    Desc o = operation(m, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    part(m, o, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, d);
    part(m, o, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, w->x);
    if (w->b) part(m, o, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, w->b);
    if (w->t) part(m, o, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, w->t);
    part(m, o, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, w->y);
    dlt_dnn_set(m->g, o, CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1, CUDNN_TYPE_FLOAT, 1, &one);
    dlt_dnn_set(m->g, o, CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2, CUDNN_TYPE_FLOAT, 1, &one);
    dlt_dnn_finalize(m->g, o);
    return w->y;
}
/* y = mode(x, b) in f32 */
static Desc apply(Maker *m, cudnnPointwiseMode_t mode, Desc x, Desc b, Desc y)
{
    return pointwise(m, &(Pointwise){mode, CUDNN_DATA_FLOAT, 0, x, b, NULL, y});
}
static Desc reduce(Maker *m, cudnnReduceTensorOp_t mode, Desc x, Desc y)
{
    const cudnnDataType_t math = CUDNN_DATA_FLOAT;
    Desc d = dlt_dnn_make(m->g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    dlt_dnn_set(m->g, d, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &math);
    dlt_dnn_set(m->g, d, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1,
                &mode);
    dlt_dnn_finalize(m->g, d);
    Desc o = operation(m, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    part(m, o, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    part(m, o, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    part(m, o, CUDNN_ATTR_OPERATION_REDUCTION_DESC, d);
    dlt_dnn_finalize(m->g, o);
    return y;
}
static Desc product(Maker *m, Desc a, Desc b, Desc c)
{
    const cudnnDataType_t math = CUDNN_DATA_FLOAT;
    Desc d = dlt_dnn_make(m->g, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    dlt_dnn_set(m->g, d, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &math);
    dlt_dnn_finalize(m->g, d);
    Desc o = operation(m, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    part(m, o, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    part(m, o, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    part(m, o, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    part(m, o, CUDNN_ATTR_OPERATION_MATMUL_DESC, d);
    dlt_dnn_finalize(m->g, o);
    return c;
}
static Desc turn(Maker *m, Desc x, Desc y)
{
    Desc o = operation(m, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    part(m, o, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    part(m, o, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    dlt_dnn_finalize(m->g, o);
    return y;
}

/* Scores of keys behind the query become -inf. */
static Desc mask(Maker *m, Desc x)
{
    if (!m->p->causal) return x;
    Desc index[2];
    for (int i = 0; i < 2; i++)
        index[i] = pointwise(m, &(Pointwise){CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, 2 + i, x,
                                             NULL, NULL, score(m, CUDNN_DATA_INT32)});
    Desc keep = pointwise(m, &(Pointwise){CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN, 0, index[0],
                                          index[1], NULL, score(m, CUDNN_DATA_BOOLEAN)});
    return pointwise(m,
                     &(Pointwise){CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, 0, x,
                                  scalar(m, DLT_SDPA_MINUS_INF), keep, score(m, CUDNN_DATA_FLOAT)});
}

/* o = softmax(mask(scale q k^T)) v, stats = max + log sum. */
static void forward(Maker *m)
{
    const cudnnDataType_t f = CUDNN_DATA_FLOAT;
    int64_t heads = 3 * m->p->h;
    Desc q = head(m, DLT_SDPA_Q, heads, STRAIGHT), k = head(m, DLT_SDPA_K, heads, TURNED);
    Desc v = head(m, DLT_SDPA_V, heads, STRAIGHT), o = head(m, DLT_SDPA_O, m->p->h, STRAIGHT);
    Desc x = product(m, q, k, score(m, f));
    x = apply(m, CUDNN_POINTWISE_MUL, x, scalar(m, DLT_SDPA_SCALE), score(m, f));
    x = mask(m, x);
    Desc top = reduce(m, CUDNN_REDUCE_TENSOR_MAX, x, row(m));
    x = apply(m, CUDNN_POINTWISE_SUB, x, top, score(m, f));
    x = apply(m, CUDNN_POINTWISE_EXP, x, NULL, score(m, f));
    Desc sum = reduce(m, CUDNN_REDUCE_TENSOR_ADD, x, row(m));
    Desc log_sum = apply(m, CUDNN_POINTWISE_LOG, sum, NULL, row(m));
    apply(m, CUDNN_POINTWISE_ADD, top, log_sum, outer(m, DLT_SDPA_STATS, 1));
    Desc prob = apply(m, CUDNN_POINTWISE_DIV, x, sum, score(m, m->type));
    product(m, prob, v, o);
}

/* dq = scale ds k. Either at once, from all of ds in scratch, or added up in f32 in whatever order blocks
 * finish. */
static void query_gradient(Maker *m, Desc ds, Desc k)
{
    int64_t dim[4], stride[4];
    head_form(m, 3 * m->p->h, STRAIGHT, dim, stride);
    Desc straight = turn(m, k, tensor(m, m->type, dim, stride, VIRTUAL));
    Desc dq = head(m, DLT_SDPA_DQ, 3 * m->p->h, STRAIGHT);
    if (m->p->deterministic) {
        product(m, ds, straight, dq);
        return;
    }
    Desc sum = product(m, ds, straight, outer(m, DLT_SDPA_DQ_SUM, m->p->d));
    apply(m, CUDNN_POINTWISE_IDENTITY, sum, NULL, dq);
}

/* With p = exp(mask(scale q k^T - stats)), delta = sum(do o): dv = p^T do, ds = scale p (do v^T -
 * delta), dk = ds^T q, dq = ds k.  Dao et al. 2022, appendix B. */
static void backward(Maker *m)
{
    const cudnnDataType_t f = CUDNN_DATA_FLOAT;
    const DltSdpaProblem *p = m->p;
    int64_t heads = 3 * p->h;
    const int64_t dim[4] = {p->b, p->h, p->t, p->d};
    const int64_t stride[4] = {p->h * p->t * p->d, p->t * p->d, p->h * p->d, 1};
    Desc q = head(m, DLT_SDPA_Q, heads, STRAIGHT), k = head(m, DLT_SDPA_K, heads, TURNED);
    Desc v = head(m, DLT_SDPA_V, heads, TURNED), o = head(m, DLT_SDPA_O, p->h, STRAIGHT);
    Desc d_o = head(m, DLT_SDPA_DO, p->h, STRAIGHT), scale = scalar(m, DLT_SDPA_SCALE);
    Desc x = apply(m, CUDNN_POINTWISE_MUL, d_o, o, tensor(m, f, dim, stride, VIRTUAL));
    x = reduce(m, CUDNN_REDUCE_TENSOR_ADD, x, row(m));
    Desc delta =
        apply(m, CUDNN_POINTWISE_MUL, x, scalar(m, DLT_SDPA_ONE), outer(m, DLT_SDPA_DELTA, 1));
    x = product(m, q, k, score(m, f));
    x = apply(m, CUDNN_POINTWISE_MUL, x, scale, score(m, f));
    x = apply(m, CUDNN_POINTWISE_SUB, x, outer(m, DLT_SDPA_STATS, 1), score(m, f));
    x = mask(m, x);
    Desc prob = apply(m, CUDNN_POINTWISE_EXP, x, NULL, score(m, f));
    product(m, turn(m, prob, turned_score(m)), d_o, head(m, DLT_SDPA_DV, heads, STRAIGHT));
    x = product(m, d_o, v, score(m, f));
    x = apply(m, CUDNN_POINTWISE_SUB, x, delta, score(m, f));
    x = apply(m, CUDNN_POINTWISE_MUL, x, prob, score(m, f));
    Desc ds = apply(m, CUDNN_POINTWISE_MUL, x, scale, score(m, f));
    product(m, turn(m, ds, turned_score(m)), q, head(m, DLT_SDPA_DK, heads, STRAIGHT));
    query_gradient(m, ds, k);
}

bool dlt_sdpa_graph(const DltDnn *dnn, const DltSdpaProblem *p, DltDnnGraph *g, DltWhy *why_not)
{
    *g = (DltDnnGraph){.dnn = dnn, .composite = true};
    Maker m = {
        .g = g, .p = p, .type = p->dtype == DLT_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF};
    if (p->backward)
        backward(&m);
    else
        forward(&m);
    return dlt_dnn_close_graph(g, m.op, m.n_op, why_not);
}
