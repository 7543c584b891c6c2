/* Gradient rules and backward kernels against central differences, in double: for each row of
 * tests/cases whose op has a gradient, L = the sum of fixed random numbers times the outputs (for a
 * loss: its sum times loss_scale / sample_weight) is differentiated both ways with respect to every
 * differentiable input. Plain kernels only: they are the specification. Rows larger than MOST_INPUT are no tests here:
 * they are there for how fast kernels cut up work, by formulas that the small ones check. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/sys.h"
#include "ops/step.h"
#include "tests/cases/cases.h"
#include <math.h>
#include <string.h>

enum { MAX_TESTS = 1024, MIN_ELEMENTS = 20, MAX_ELEMENTS = 150, MOST_INPUT = 1 << 17 };
static const double budget = 2e7;     /* of operations for one input */
static const double step = 1e-5;      /* error of a central difference: step^2 f'''/6 = 1e-11 */
static const double tolerance = 1e-7; /* relative; f32 attributes such as 1/count add 3e-8 */

typedef struct Checked {
    const Case *c;
    DltDevice *dev;
    CaseGraph g;
    CaseValues v;
    double loss_factor; /* 0: not a loss */
    double *weight, *above, *below;
} Checked;

static void run_node(Checked *t, const DltNode *n)
{
    void *in[DLT_MAX_IN], *out[DLT_MAX_OUT];
    if (n->op->view) return;
    case_operands(&t->v, n, in, out);
    case_run(t->dev, case_plain_kernel(t->dev, n), n, in, out);
}

/* Runs the node and copies its weighted outputs out, one after the other; a loss is one output. */
static int64_t outputs(Checked *t, double *copy)
{
    void *in[DLT_MAX_IN], *out[DLT_MAX_OUT];
    int64_t at = 0;
    run_node(t, t->g.node);
    case_operands(&t->v, t->g.node, in, out);
    if (t->loss_factor != 0) {
        copy[0] = *(const double *)out[0];
        return 1;
    }
    for (int k = 0; k < DLT_MAX_OUT; k++) {
        if (t->g.dout[k] == NULL) continue;
        int64_t n = dlt_shape_count(&t->g.dout[k]->shape);
        memcpy(copy + at, out[k], (size_t)n * sizeof *copy);
        at += n;
    }
    return at;
}

/* dL/dx by a central difference, output by output, so that L's own size costs no digits. */
static double numeric(Checked *t, double *x)
{
    double kept = *x, sum = 0;
    *x = kept + step;
    outputs(t, t->above);
    *x = kept - step;
    int64_t n = outputs(t, t->below);
    *x = kept;
    for (int64_t i = 0; i < n; i++)
        sum += t->weight[i] * (t->above[i] - t->below[i]);
    return sum / (2 * step);
}

/* The weights of L in the order of `outputs`, and room for two sets of them. */
static void prepare_outputs(Checked *t)
{
    int64_t n = 1, at = 0;
    for (int k = 0; k < DLT_MAX_OUT; k++) {
        if (t->g.dout[k] != NULL) n += dlt_shape_count(&t->g.dout[k]->shape);
    }
    t->weight = DLT_NEW_ARRAY(t->g.arena, n, double);
    t->above = DLT_NEW_ARRAY(t->g.arena, n, double);
    t->below = DLT_NEW_ARRAY(t->g.arena, n, double);
    t->weight[0] = t->loss_factor;
    for (int k = 0; k < DLT_MAX_OUT; k++) {
        if (t->g.dout[k] == NULL) continue;
        int64_t count = dlt_shape_count(&t->g.dout[k]->shape);
        memcpy(t->weight + at, t->v.at[t->g.dout[k]->id], (size_t)count * sizeof(double));
        at += count;
    }
}

/* The values of tensor d wherever they lie (a gradient may be a view, or dout itself). */
static const double *values_of(const Checked *t, const DltTensor *d)
{
    const double *base = t->v.at[d->view_of != NULL ? d->view_of->id : d->id];
    return base + d->view_offset;
}

static void check_input(Checked *t, int i)
{
    const DltTensor *x = t->g.in[i];
    int64_t n = dlt_shape_count(&x->shape);
    double affordable = budget / (t->g.node->op->flops(t->g.node) + 1);
    int64_t stride = n / (int64_t)fmax(MIN_ELEMENTS, fmin(affordable, MAX_ELEMENTS)) + 1;
    double *values = t->v.at[x->id];
    const double *analytic = values_of(t, t->g.din[i]);
    assert_true(dlt_shape_equal(&x->shape, &t->g.din[i]->shape));
    for (int64_t k = 0; k < n; k += stride) {
        double expected = numeric(t, &values[k]);
        double bound = tolerance * fmax(1, fabs(expected));
        if (fabs(analytic[k] - expected) <= bound) continue;
        print_error("input %d element %lld: analytic %.12g, numeric %.12g\n", i, (long long)k,
                    analytic[k], expected);
        fail();
    }
}

static void check(void **state)
{
    Checked t = {.c = *state};
    case_build(t.c, DLT_F32, true, &t.g);
    t.dev = case_cpu_device(t.g.arena, 1);
    case_values_new(&t.g, &t.v);
    for (int i = 0; i < t.g.graph->n_tensor; i++) {
        const DltTensor *x = t.g.graph->tensor[i];
        if (x->role == DLT_INPUT && x->view_of == NULL) case_fill(t.c, &t.g, x, t.v.at[i]);
    }
    if (t.g.node->out[0]->dtype == DLT_F64) {
        DltStepState s;
        for (int i = 0; i < DLT_MAX_IN; i++) {
            if (t.c->in[i].fill == STEP) memcpy(&s, t.v.at[t.g.in[i]->id], sizeof s);
        }
        t.loss_factor = (double)s.loss_scale / s.sample_weight;
    }
    prepare_outputs(&t);
    for (int i = 0; i < t.g.graph->n_node; i++)
        run_node(&t, t.g.graph->node[i]);
    int checked = 0;
    for (int i = 0; i < DLT_MAX_IN; i++) {
        if (t.g.in[i] == NULL || t.c->in[i].use >= CONSTANT) continue;
        assert_non_null(t.g.din[i]);
        check_input(&t, i);
        checked++;
    }
    assert_true(checked > 0);
    case_values_free(&t.v);
    dlt_backend_cpu.close(t.dev);
    dlt_arena_free(t.g.arena);
}

/* Whether a row is a test here. */
static bool is_checked(const Case *c)
{
    int64_t n = 1;
    for (int i = 0; i < c->in[0].rank; i++)
        n *= c->in[0].dim[i];
    return dlt_ops[c->kind]->grad != NULL && !c->forward_only && n <= MOST_INPUT;
}

/* Every op with a gradient rule has a row, so that none is forgotten. */
static void every_rule_has_a_row(void **state)
{
    (void)state;
    for (int kind = 0; kind < DLT_N_OP; kind++) {
        bool found = dlt_ops[kind]->grad == NULL;
        for (int l = 0; case_lists[l] != NULL; l++) {
            for (int i = 0; i < case_lists[l]->n; i++) {
                const Case *c = &case_lists[l]->row[i];
                found |= (int)c->kind == kind && is_checked(c);
            }
        }
        if (!found) print_error("no gradient row for %s\n", dlt_ops[kind]->name);
        assert_true(found);
    }
}

int main(void)
{
    static char names[MAX_TESTS][256];
    static struct CMUnitTest tests[MAX_TESTS];
    int n = 0;
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(every_rule_has_a_row);
    for (int l = 0; case_lists[l] != NULL; l++) {
        for (int i = 0; i < case_lists[l]->n; i++) {
            const Case *c = &case_lists[l]->row[i];
            if (!is_checked(c)) continue;
            DLT_BUG_ON(n == MAX_TESTS);
            size_t at = (size_t)snprintf(names[n], sizeof names[n], "grad ");
            case_name(c, names[n] + at, sizeof names[n] - at);
            tests[n] = (struct CMUnitTest){names[n], check, NULL, NULL, (void *)(uintptr_t)c};
            n++;
        }
    }
    return _cmocka_run_group_tests("grad", tests, (size_t)n, NULL, NULL);
}
