/* How long an update of a plan takes that has not run: its nodes' times are those of the same work in a plan
 * that was measured. What that one lacks is scaled from the nearest work of the same kernel by
 * operations and bytes (Williams et al. 2009, "Roofline"). Timers around nodes cost something, so all is scaled to the measured
 * whole step. */
#include "exec/session.h"
#include <math.h>

static bool same_tensor(const DltTensor *a, const DltTensor *b)
{
    if (a == NULL || b == NULL) return a == b;
    return a->dtype == b->dtype && a->layout == b->layout && dlt_shape_equal(&a->shape, &b->shape);
}

static bool same_work(const DltStep *a, const DltStep *b)
{
    if (a->kernel != b->kernel || a->node->kind != b->node->kind) return false;
    for (int i = 0; i < DLT_MAX_IN; i++)
        if (!same_tensor(a->node->in[i], b->node->in[i])) return false;
    for (int i = 0; i < DLT_MAX_OUT; i++)
        if (!same_tensor(a->node->out[i], b->node->out[i])) return false;
    return true;
}

/* Least time in ms by operations and bytes. */
static double least_ms(const DltProfile *p, double flops, double bytes)
{
    return 1e3 * fmax(flops / p->peak_flops, bytes / p->peak_bytes);
}

static double scaled_ms(const DltProfile *p, const DltStep *step)
{
    const DltProfileRow *nearest = NULL;
    double sum = 0, least_sum = 0, distance = INFINITY;
    double least = least_ms(p, step->node->op->flops(step->node), dlt_node_bytes(step->node));
    for (int i = 0; i < p->n; i++) {
        const DltProfileRow *r = &p->row[i];
        double other = least_ms(p, r->flops, r->bytes);
        sum += r->best_ms;
        least_sum += other;
        if (p->plan->step[i].kernel != step->kernel || other <= 0) continue;
        double d = fabs(log((least + 1e-9) / other));
        if (d < distance) distance = d, nearest = r;
    }
    if (nearest != NULL)
        return nearest->best_ms * least / least_ms(p, nearest->flops, nearest->bytes);
    return least_sum > 0 ? least * sum / least_sum : 0;
}

/* *known is set where the measured plan does this very work. */
static double node_ms(const DltProfile *p, const DltStep *step, bool *known)
{
    double sum = 0;
    int n = 0;
    *known = true;
    if (step->kernel == NULL) return 0;
    for (int i = 0; i < p->n; i++) {
        if (!same_work(&p->plan->step[i], step)) continue;
        sum += p->row[i].best_ms;
        n++;
    }
    *known = n > 0;
    return n > 0 ? sum / n : scaled_ms(p, step);
}

double dlt_forecast_ms(const DltProfile *p, const DltPlan *plan, int64_t n_micro, double *known)
{
    double ms = 0, known_ms = 0, measured = 0;
    for (int i = 0; i < plan->n_step; i++) {
        bool same;
        double times = i < plan->n_batch_step ? (double)n_micro : 1.0;
        double node = times * node_ms(p, &plan->step[i], &same);
        ms += node;
        known_ms += same ? node : 0;
    }
    for (int i = 0; i < p->n; i++)
        measured += p->row[i].best_ms;
    *known = ms > 0 ? known_ms / ms : 1;
    return measured > 0 ? ms * p->best_step_ms / measured : 0;
}
