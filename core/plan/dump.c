/* A plan as text, one line a step: what `dltrain plan --dump plan` and the golden tests show. */
#include "base/dtype.h"
#include "plan/plan.h"

static const char *const region_name[DLT_REGIONS] = {"input", "param", "grad", "state", "temp"};

static void dump_tensor(const DltPlan *plan, const DltTensor *t, FILE *out)
{
    char shape[DLT_SHAPE_TEXT];
    const DltSlot *s = &plan->slot[t->id];
    fprintf(out, " %%%d %s %s%s %s+%zu", t->id, t->name, dlt_dtype_name(t->dtype),
            dlt_shape_text(&t->shape, shape), region_name[s->region], s->offset);
}

static void dump_step(const DltPlan *plan, int i, FILE *out)
{
    const DltStep *step = &plan->step[i];
    const DltNode *n = step->node;
    fprintf(out, "%5d %s", i, step->kernel != NULL ? step->kernel->name : n->op->name);
    if (step->lane != 0 || step->wait != 0)
        fprintf(out, " lane=%d wait=%x", step->lane, (unsigned)step->wait);
    if (step->work_bytes > 0) fprintf(out, " work=%zu", step->work_bytes);
    fputs(" (", out);
    const char *separator = "";
    for (int k = 0; k < DLT_MAX_IN; k++) {
        if (n->in[k] == NULL) continue;
        fprintf(out, "%s%%%d", separator, n->in[k]->id);
        separator = ", ";
    }
    fputs(") ->", out);
    for (int k = 0; k < DLT_MAX_OUT; k++)
        if (n->out[k] != NULL) dump_tensor(plan, n->out[k], out);
    fputc('\n', out);
}

void dlt_plan_dump(const DltPlan *plan, FILE *out)
{
    fprintf(out, "plan on %s: %d steps, %d of them each micro batch\n", plan->backend->name,
            plan->n_step, plan->n_batch_step);
    for (int i = 0; i < DLT_REGIONS; i++)
        fprintf(out, "region %s %zu bytes\n", region_name[i], plan->region_bytes[i]);
    for (int i = 0; i < DLT_LANES; i++)
        if (plan->work_bytes[i] > 0)
            fprintf(out, "work of lane %d %zu bytes\n", i, plan->work_bytes[i]);
    fprintf(out, "total %zu bytes, temp fullest at step %d\n", plan->peak_bytes, plan->peak_step);
    for (int i = 0; i < plan->n_step; i++) {
        if (i == plan->n_batch_step) fputs("once an update:\n", out);
        dump_step(plan, i, out);
    }
}
