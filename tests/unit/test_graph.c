/* The graph's bookkeeping: names, scopes, views, node lists, the sticky error, initial values, and
 * the dump. */
#include "graph_help.h"

#include "base/rng.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"
#include "ops/norm.h"
#include "ops/shape_ops.h"
#include <math.h>

static void names(void **state)
{
    (void)state;
    Help h;
    help_start(&h);
    enum { N = 1000 };
    DltTensor *t[N];
    DltShape one = dlt_shape1(1);
    for (int i = 0; i < N; i++) {
        char name[16];
        snprintf(name, sizeof name, "t%d", i % 500);
        t[i] = dlt_graph_tensor(h.g, name, &one, DLT_F32, DLT_TEMP);
    }
    for (int i = 0; i < 500; i++) /* the first of two with one name */
        assert_ptr_equal(dlt_graph_find(h.g, t[i]->name), t[i]);
    assert_null(dlt_graph_find(h.g, "t500"));
    dlt_graph_rename(h.g, t[7], "seven");
    assert_ptr_equal(dlt_graph_find(h.g, "seven"), t[7]);
    assert_ptr_equal(dlt_graph_find(h.g, "t7"), t[507]);
    help_end(&h);
}

static void scopes(void **state)
{
    (void)state;
    Help h;
    help_start(&h);
    const char *top = dlt_build_enter(&h.b, "block");
    const char *block = dlt_build_enter(&h.b, "fc");
    DltTensor *w = P(&h, "weight", 2, 3);
    assert_string_equal(w->name, "block.fc.weight");
    DltTensor *y = dlt_matmul(&h.b, X(&h, "x", 4, 3), w, false, true);
    assert_string_equal(y->name, "block.fc.matmul");
    assert_string_equal(y->producer->name, "block.fc");
    dlt_build_leave(&h.b, block);
    assert_string_equal(h.b.scope, "block");
    dlt_build_leave(&h.b, top);
    assert_string_equal(h.b.scope, "");
    DltTensor *outside = dlt_unary(&h.b, y, DLT_FN_RELU, 0);
    assert_string_equal(outside->name, "unary_fwd");
    assert_string_equal(dlt_node_label(y->producer), "block.fc");
    assert_string_equal(dlt_node_label(outside->producer), "unary_fwd"); /* it has no layer */
    help_end(&h);
}

static void lasting_tensors_are_shared_by_name(void **state)
{
    (void)state;
    Help h;
    help_start(&h);
    DltTensor *w = P(&h, "w", 2, 3);
    assert_true(w->trainable && w->saved && w->role == DLT_PARAM);
    w->trainable = false; /* frozen stays frozen */
    assert_ptr_equal(P(&h, "w", 2, 3), w);
    assert_false(w->trainable);
    DltTensor *s = dlt_state(&h.b, "s", dlt_shape1(3), DLT_F32, dlt_init_ones());
    assert_ptr_equal(dlt_state(&h.b, "s", dlt_shape1(3), DLT_F32, dlt_init_ones()), s);
    assert_false(s->trainable);
    assert_int_equal(P(&h, "w", 3, 3)->id, -1);
    assert_int_equal(h.b.status, DLT_E_CONFIG);
    assert_string_equal(h.err.report[0].text,
                        "parameter w of shape [3, 3]: the name is taken by one of shape [2, 3]");
    help_again(&h);
    X(&h, "x", 3);
    assert_int_equal(P(&h, "x", 3)->id, -1); /* an input of that name is no parameter */
    assert_int_equal(h.b.status, DLT_E_CONFIG);
    help_end(&h);
}

static void errors_are_sticky(void **state)
{
    (void)state;
    Help h;
    help_start(&h);
    h.b.at = (DltMark){"net.yaml", 7, 5, 0, NULL};
    DltTensor *x = X(&h, "x", 4, 3);
    DltTensor *bad = dlt_matmul(&h.b, x, P(&h, "w", 2, 5), false, true);
    assert_int_equal(bad->id, -1);
    assert_true(dlt_build_failed(&h.b));
    int n_node = h.g->n_node, n_tensor = h.g->n_tensor;
    /* whatever follows adds nothing and reports nothing */
    DltTensor *y = dlt_linear(&h.b, "fc", dlt_unary(&h.b, bad, DLT_FN_RELU, 0), 10, true);
    y = dlt_reshape(&h.b, dlt_softmax(&h.b, dlt_add(&h.b, y, x)), dlt_shape2(-1, dlt_dim(y, -1)));
    assert_int_equal(dlt_dim(y, 3), 1);
    dlt_build_error(&h.b, "another");
    assert_int_equal(y->id, -1);
    assert_int_equal(h.g->n_node, n_node);
    assert_int_equal(h.g->n_tensor, n_tensor);
    assert_int_equal(h.err.n, 1);
    assert_int_equal(h.err.report[0].status, DLT_E_CONFIG);
    assert_int_equal(h.err.report[0].at.line, 7);
    assert_string_equal(h.err.report[0].text,
                        "matmul: x [4, 3] and w [2, 5]: inner dimensions must agree");
    help_end(&h);
}

static void missing_inputs_are_our_fault(void **state)
{
    (void)state;
    Help h;
    help_start(&h);
    DltMatmul a = {0};
    assert_null(dlt_build_node(&h.b, DLT_OP_matmul, &a, (DltTensor *const[]){X(&h, "x", 2, 2)}, 1));
    assert_int_equal(h.b.status, DLT_E_BUG);
    help_end(&h);
}

static void views(void **state)
{
    (void)state;
    Help h;
    help_start(&h);
    DltShape big = dlt_shape1(100), mid = dlt_shape2(5, 6), small = dlt_shape1(6);
    DltTensor *base = dlt_graph_tensor(h.g, "base", &big, DLT_BF16, DLT_STATE);
    DltTensor *a = dlt_graph_view(h.g, "a", &mid, base, 64);
    DltTensor *b = dlt_graph_view(h.g, "b", &small, a, 24);
    assert_ptr_equal(b->view_of, base);
    assert_int_equal(b->view_offset, 88);
    assert_int_equal(b->role, DLT_STATE);
    assert_int_equal(b->dtype, DLT_BF16);
    assert_ptr_equal(dlt_tensor_base(b), base);
    assert_ptr_equal(dlt_tensor_base(base), base);
    assert_int_equal(dlt_tensor_bytes(a), 60);
    /* reshape is a view, of a view too */
    DltTensor *x = dlt_unary(&h.b, X(&h, "x", 6, 4), DLT_FN_RELU, 0);
    DltTensor *y = dlt_reshape(&h.b, dlt_reshape(&h.b, x, dlt_shape1(24)), dlt_shape2(-1, 8));
    assert_ptr_equal(y->view_of, x);
    assert_int_equal(dlt_dim(y, 0), 3);
    assert_int_equal(dlt_dim(y, -1), 8);
    help_check(h.g);
    help_end(&h);
}

static void node_lists(void **state)
{
    (void)state;
    Help h;
    help_start(&h);
    DltTensor *x = X(&h, "x", 3);
    DltTensor *y[5];
    for (int i = 0; i < 5; i++)
        y[i] = dlt_unary(&h.b, i ? y[i - 1] : x, DLT_FN_RELU, 0);
    assert_int_equal(h.g->n_node, 5);
    assert_int_equal(dlt_graph_index(h.g, y[3]->producer), 3);
    int *uses = dlt_graph_uses(h.g);
    assert_int_equal(uses[x->id], 1);
    assert_int_equal(uses[y[4]->id], 0);
    DltUnary relu = {DLT_FN_RELU, 0};
    DltNode *n = dlt_graph_node(h.g, DLT_OP_unary_fwd, &relu);
    n->in[0] = x;
    n->out[0] = dlt_graph_tensor(h.g, "new", &x->shape, DLT_F32, DLT_TEMP);
    dlt_graph_insert(h.g, 2, n);
    assert_ptr_equal(h.g->node[2], n);
    assert_ptr_equal(n->out[0]->producer, n);
    assert_int_equal(dlt_graph_index(h.g, y[3]->producer), 4);
    dlt_graph_remove(h.g, 2);
    assert_int_equal(dlt_graph_index(h.g, n), -1);
    DltNode **list = DLT_NEW_ARRAY(h.arena, 3, DltNode *);
    list[0] = y[1]->producer;
    list[2] = y[0]->producer;
    dlt_graph_set_nodes(h.g, list, 3);
    assert_int_equal(h.g->n_node, 2);
    assert_ptr_equal(h.g->node[1], y[0]->producer);
    dlt_unary(&h.b, x, DLT_FN_ABS, 0); /* the list still grows */
    assert_int_equal(h.g->n_node, 3);
    help_end(&h);
}

/* ---- initial values ---- */

static const double *values(Help *h, const DltTensor *t, uint64_t seed)
{
    int64_t n = dlt_shape_count(&t->shape);
    DltReal *real = DLT_NEW_ARRAY(h->arena, n, DltReal);
    double *v = DLT_NEW_ARRAY(h->arena, n, double);
    dlt_init_fill(t, seed, real);
    for (int64_t i = 0; i < n; i++)
        v[i] = (double)real[i];
    return v;
}

typedef struct Moments {
    double mean, std, lo, hi;
} Moments;

static Moments moments(const double *v, int64_t n)
{
    Moments m = {0, 0, v[0], v[0]};
    for (int64_t i = 0; i < n; i++) {
        m.mean += v[i] / (double)n;
        m.lo = fmin(m.lo, v[i]);
        m.hi = fmax(m.hi, v[i]);
    }
    for (int64_t i = 0; i < n; i++)
        m.std += (v[i] - m.mean) * (v[i] - m.mean) / (double)n;
    m.std = sqrt(m.std);
    return m;
}

enum {
    OUT = 200,
    IN = 50,
    K = 3,
    COUNT = OUT * IN * K * K
}; /* filters: fan_in 450, fan_out 1800 */

/* Expected moments by torch.nn.init's formulas; 90,000 draws give mean and std to 0.5 % of std. */
static void check_init(DltInit init, double mean, double std, double lo, double hi)
{
    Help h;
    help_start(&h);
    DltTensor *t = dlt_param(&h.b, "w", dlt_shape4(OUT, IN, K, K), init);
    Moments m = moments(values(&h, t, 11), COUNT);
    assert_true(fabs(m.mean - mean) < 0.015 * std);
    assert_true(fabs(m.std - std) < 0.01 * std);
    assert_true(m.lo >= lo && m.hi <= hi);
    if (isfinite(lo)) assert_true(m.lo < lo + 0.1 * std && m.hi > hi - 0.1 * std);
    help_end(&h);
}

static void initialisers(void **state)
{
    (void)state;
    const DltShape s = dlt_shape4(OUT, IN, K, K);
    double r3 = sqrt(3.0), in = IN * K * K, sum = in + OUT * K * K;
    double he = sqrt(2.0 / in), he5 = sqrt(2.0 / 6.0 / in), xavier = sqrt(2.0 / sum);
    check_init(dlt_init_kaiming_uniform(&s, 0), 0, he, -r3 * he, r3 * he);
    check_init(dlt_init_kaiming_uniform(&s, sqrt(5.0)), 0, he5, -1 / sqrt(in), 1 / sqrt(in));
    check_init(dlt_init_kaiming_normal(&s, 0), 0, he, -INFINITY, INFINITY);
    check_init(dlt_init_xavier_uniform(&s), 0, xavier, -r3 * xavier, r3 * xavier);
    check_init(dlt_init_xavier_normal(&s), 0, xavier, -INFINITY, INFINITY);
    check_init(dlt_init_uniform(1, 3), 2, 1 / r3, 1, 3);
    check_init(dlt_init_normal(5, 2), 5, 2, -INFINITY, INFINITY);
    /* variance of a normal cut at 2 std: 1 - 4 phi(2) / (2 Phi(2) - 1) = 0.7737 (closed form) */
    check_init(dlt_init_trunc_normal(1, 2), 1, 2 * sqrt(0.77374), -3, 5);
}

static void initial_values_depend_on_seed_and_name(void **state)
{
    (void)state;
    Help h;
    help_start(&h);
    DltTensor *a = dlt_param(&h.b, "a", dlt_shape1(64), dlt_init_normal(0, 1));
    DltTensor *b = dlt_param(&h.b, "b", dlt_shape1(64), dlt_init_normal(0, 1));
    size_t bytes = 64 * sizeof(double);
    assert_memory_equal(values(&h, a, 1), values(&h, a, 1), bytes);
    assert_memory_not_equal(values(&h, a, 1), values(&h, a, 2), bytes);
    assert_memory_not_equal(values(&h, a, 1), values(&h, b, 1), bytes);
    uint64_t stream = dlt_rng_stream(DLT_RNG_INIT, dlt_hash("a", 1, 0));
    for (uint64_t i = 0; i < 64; i++)
        assert_true(values(&h, a, 9)[i] == (double)(DltReal)dlt_rng_normal(9, stream, i));
    double one[] = {2.5}, three[] = {1, 2, 3};
    DltInit same = {.kind = DLT_INIT_VALUES, .values = one, .n_values = 1};
    DltInit list = {.kind = DLT_INIT_VALUES, .values = three, .n_values = 3};
    assert_true(values(&h, dlt_param(&h.b, "c", dlt_shape1(3), same), 1)[2] == 2.5);
    assert_true(values(&h, dlt_param(&h.b, "d", dlt_shape1(3), list), 1)[2] == 3);
    DltTensor *ids = dlt_state(&h.b, "ids", dlt_shape1(3), DLT_I32, list);
    int32_t id[3];
    dlt_init_fill(ids, 1, id);
    assert_int_equal(id[2], 3);
    help_end(&h);
}

static void dump(void **state)
{
    (void)state;
    Help h;
    help_start(&h);
    DltTensor *x = X(&h, "x", 128, 784);
    DltTensor *y = dlt_linear(&h.b, "fc", x, 10, true);
    h.b.phase = DLT_PHASE_UPDATE;
    dlt_reshape(&h.b, dlt_unary(&h.b, y, DLT_FN_LEAKY_RELU, 0.25), dlt_shape1(1280));
    assert_string_equal(
        help_dump(&h),
        "input %0 u8[56] step\n"
        "input %1 f32[128, 784] x\n"
        "param %2 f32[10, 784] fc.weight\n"
        "param %4 f32[10] fc.bias\n"
        "%3 f32[128, 10] = matmul(%1 x, %2 fc.weight) {tb} @fc\n"
        "%5 f32[128, 10] = bias_fwd(%3 fc.matmul, %4 fc.bias) {axis=1} @fc\n"
        "%6 f32[128, 10] = unary_fwd(%5 fc.bias_fwd) {leaky_relu alpha=0.25} [update]\n"
        "%7 f32[1280] view(%6+0) = reshape(%6 unary_fwd) [update]\n");
    help_end(&h);
}

/* [N, C, H, W] in NHWC memory: element (n, c, h, w) at ((n H + h) W + w) C + c. */
static void nhwc_order(void **state)
{
    (void)state;
    DltTensor t = {.shape = {.rank = 4, .dim = {2, 3, 2, 1}}, .layout = DLT_NHWC};
    uint16_t plain[12], own[12], back[12];
    const uint16_t want[] = {0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11};
    for (int i = 0; i < 12; i++)
        plain[i] = (uint16_t)i;
    t.dtype = DLT_BF16;
    dlt_tensor_reorder(&t, own, plain, false);
    assert_memory_equal(own, want, sizeof want);
    dlt_tensor_reorder(&t, back, own, true);
    assert_memory_equal(back, plain, sizeof plain);
}

/* A sum's or mean's gradient is made from that of its result alone: 0 x, for example, were NaN where x is
 * infinite. */
static void gradient_of_reduce_does_not_read_its_input(void **state)
{
    (void)state;
    Help h;
    help_start(&h);
    for (int mean = 0; mean < 2; mean++) {
        DltTensor *x = X(&h, mean ? "x" : "z", 2, 3, 4), *dx = NULL;
        DltTensor *y = dlt_reduce(&h.b, x, 1U << 1, mean == 1);
        DltTensor *dy = X(&h, mean ? "dx" : "dz", 2, 1, 4);
        int n_before = h.g->n_node;
        y->producer->op->grad(&h.b, y->producer, &dy, &dx);
        help_ok(&h, dlt_err_status(&h.err));
        assert_true(dlt_shape_equal(&dx->shape, &x->shape));
        assert_true(h.g->n_node > n_before);
        for (int i = n_before; i < h.g->n_node; i++)
            for (int k = 0; k < DLT_MAX_IN; k++)
                assert_ptr_not_equal(h.g->node[i]->in[k], x);
    }
    help_end(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names),
        cmocka_unit_test(scopes),
        cmocka_unit_test(lasting_tensors_are_shared_by_name),
        cmocka_unit_test(errors_are_sticky),
        cmocka_unit_test(missing_inputs_are_our_fault),
        cmocka_unit_test(views),
        cmocka_unit_test(node_lists),
        cmocka_unit_test(initialisers),
        cmocka_unit_test(initial_values_depend_on_seed_and_name),
        cmocka_unit_test(dump),
        cmocka_unit_test(nhwc_order),
        cmocka_unit_test(gradient_of_reduce_does_not_read_its_input),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
