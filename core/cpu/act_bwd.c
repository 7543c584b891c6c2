/* The gradient of an activation together with what else is made of its operands: the activation again, and
 * the column sums of the gradient. */
#include "cpu/plain.h"

enum { COLUMNS = 64 };

static void backward_task(void *ctx, int64_t begin, int64_t end)
{
    const DltCall *call = ctx;
    const DltActBwd *a = call->node->attr;
    const DltReal *dy = call->in[0], *x = call->in[1];
    DltReal *dx = call->out[0], *y = call->out[1];
    dlt_unary_grad_run(&a->unary, dy + begin, x + begin, dx + begin, end - begin);
    if (y != NULL) dlt_unary_run(&a->unary, x + begin, y + begin, end - begin);
}

static void sums_task(void *ctx, int64_t begin, int64_t end)
{
    const DltCall *call = ctx;
    int64_t width = dlt_width(call->node->in[0]), rows = dlt_rows(call->node->in[0]);
    const DltReal *dx = call->out[0];
    DltReal *db = call->out[2];
    double sum[COLUMNS] = {0};
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = begin; c < end; c++)
            sum[c - begin] += (double)dx[r * width + c];
    for (int64_t c = begin; c < end; c++)
        db[c] = (DltReal)sum[c - begin];
}

/* dx = dy f'(x), y = f(x) (may be missing), db[c] = sum over rows of dx (may be missing).  dy, x, dx, y f32
 * [.., C], db f32[C].  elementwise.h */
static DltStatus launch(const DltCall *call, DltErr *err)
{
    (void)err;
    const DltTensor *x = call->node->in[0];
    dlt_pool_for(call->stream, dlt_count(x), dlt_grain(8), backward_task, (void *)call);
    if (call->out[2] == NULL) return DLT_OK;
    int64_t grain = dlt_grain(dlt_rows(x));
    dlt_pool_for(call->stream, dlt_width(x), grain < COLUMNS ? grain : COLUMNS, sums_task,
                 (void *)call);
    return DLT_OK;
}

static const DltKernel plain = {.name = "act_bwd.cpu.plain", .launch = launch};
const DltKernel *const dlt_cpu_act_bwd[] = {&plain, NULL};
