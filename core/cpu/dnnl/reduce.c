/* Sums and means over the outer axes, as of a table of positions over the samples: some columns at a time, whose sums in
 * double stay in the first-level cache while the rows go by. f32 or bf16; ops/elementwise.h */
#include "base/half.h"
#include "cpu/dnnl/fast.h"

#include "ops/elementwise.h"

enum { COLS = 512, LEAST_COLS = 64 };

typedef struct Reduce {
    const void *x; /* [rows][n] */
    void *y;       /* [n] */
    bool low, low_y;
    int64_t rows, n;
    double divisor;
} Reduce;

DLT_CLONES static void add_row(const float *x, int64_t n, double *sum)
{
    for (int64_t i = 0; i < n; i++)
        sum[i] += (double)x[i];
}

/* Columns [begin, end), COLS at most. */
static void columns(const Reduce *k, int64_t begin, int64_t end)
{
    double sum[COLS] = {0};
    float wide[COLS];
    int64_t n = end - begin;
    for (int64_t r = 0; r < k->rows; r++) {
        int64_t at = r * k->n + begin;
        if (k->low) dlt_widen_run((const uint16_t *)k->x + at, wide, n);
        add_row(k->low ? wide : (const float *)k->x + at, n, sum);
    }
    float *y = k->low_y ? wide : (float *)k->y + begin;
    for (int64_t i = 0; i < n; i++)
        y[i] = (float)(sum[i] / k->divisor);
    if (k->low_y) dlt_narrow_run(wide, (uint16_t *)k->y + begin, n);
}

static void task(void *ctx, int64_t begin, int64_t end)
{
    const Reduce *k = ctx;
    for (int64_t i = begin; i < end; i += COLS)
        columns(k, i, i + COLS < end ? i + COLS : end);
}

/* Reduced elements, where only outer axes are reduced; else 0. */
static int64_t outer_rows(const DltNode *n)
{
    const DltShape *x = &n->in[0]->shape;
    uint32_t axes = ((const DltReduce *)n->attr)->axes;
    int64_t rows = 1;
    int i = 0;
    for (; i < x->rank && (axes >> i & 1 || x->dim[i] == 1); i++)
        rows *= x->dim[i];
    for (; i < x->rank; i++)
        if (axes >> i & 1 && x->dim[i] > 1) return 0;
    return rows;
}

static bool is_number(const DltTensor *t)
{
    return t->layout == DLT_PLAIN && (t->dtype == DLT_F32 || t->dtype == DLT_BF16);
}

static bool accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    (void)dev;
    bool wide = dlt_count(n->out[0]) >= LEAST_COLS;
    if (wide && is_number(n->in[0]) && is_number(n->out[0]) && outer_rows(n) > 0) return true;
    snprintf(why_not->text, sizeof why_not->text,
             "for outer axes of f32 or bf16, row-major, %d columns or more", LEAST_COLS);
    return false;
}

static DltStatus launch(const DltCall *c, DltErr *err)
{
    (void)err;
    const DltNode *n = c->node;
    Reduce k = {.x = c->in[0],
                .y = c->out[0],
                .low = n->in[0]->dtype == DLT_BF16,
                .low_y = n->out[0]->dtype == DLT_BF16,
                .rows = outer_rows(n),
                .n = dlt_count(n->out[0])};
    k.divisor = ((const DltReduce *)n->attr)->mean ? (double)k.rows : 1;
    int64_t grain = DLT_FLAT_GRAIN / k.rows / COLS * COLS;
    dlt_pool_for(c->stream, k.n, grain > COLS ? grain : COLS, task, &k);
    return DLT_OK;
}

static const DltKernel kernel = {"reduce.cpu.outer", accepts, NULL, launch};
const DltKernel *const dlt_fast_reduce[] = {&kernel, NULL};
