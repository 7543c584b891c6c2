/* Dropout: the mask is a pure function of (seed, layer, micro batch, element), recomputed in the
 * backward pass. A chunk begins at a multiple of four, because four elements share one draw. */
#include "ops/dropout.h"
#include "cpu/plain.h"
#include "ops/step.h"

static void task(void *ctx, int64_t begin, int64_t end)
{
    const DltCall *call = ctx;
    const DltDropout *attr = call->node->attr;
    const DltStepState *step = call->in[1];
    const DltReal *x = call->in[0];
    DltReal *y = call->out[0];
    uint32_t threshold = dlt_dropout_threshold(attr->p);
    DltReal scale = 1 / (1 - (DltReal)attr->p);
    for (int64_t i = begin; i < end; i += 4) {
        DltRand4 r = dlt_dropout_draw(step->seed, attr->id, step->batch, (uint64_t)i / 4);
        for (int64_t k = 0; k < 4 && i + k < end; k++) {
            y[i + k] = r.v[k] >= threshold ? x[i + k] * scale : 0;
        }
    }
}

/* y = keep(i) ? x / (1 - p) : 0 with i the row-major index.  x, y f32 PLAIN of any shape; step u8.
 * dropout.h; Srivastava et al. 2014 */
static DltStatus launch(const DltCall *call, DltErr *err)
{
    (void)err;
    dlt_pool_for(call->stream, dlt_count(call->node->in[0]), dlt_grain(8), task, (void *)call);
    return DLT_OK;
}

static const DltKernel plain = {.name = "dropout.cpu.plain", .launch = launch};
const DltKernel *const dlt_cpu_dropout[] = {&plain, NULL};
