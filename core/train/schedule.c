/* The learning rate as a pure function of the update number: pieces one after the other, each
 * starting where the one before ended. Nothing is remembered, so a resumed run sees the same rates
 * to the bit. */
#include "train/pieces.h"

#include <math.h>

static double between(double v, double a, double b)
{
    return fmin(fmax(v, fmin(a, b)), fmax(a, b));
}

double dlt_mix(double a, double b, double t)
{
    return between(a * (1.0 - t) + b * t, a, b);
}

double dlt_mix_cosine(double a, double b, double t)
{
    return dlt_mix(b, a, 0.5 * (1.0 + cos(t * 3.14159265358979323846)));
}

double dlt_schedule_rate(const DltSchedule *s, int64_t u)
{
    double rate = s->base;
    int64_t before = 0;
    for (int k = 0; k < s->n_piece; k++) {
        const DltSchedulePiece *p = &s->piece[k];
        if (p->n < 1) continue; /* warmup: 0 steps */
        double start = p->def->starts_at_zero ? 0.0 : rate;
        int64_t i = u - before < p->n ? u - before : p->n;
        rate = p->def->rate(p->opts, s->base, start, before, i, p->n);
        if (i < p->n) return rate;
        before += p->n;
    }
    return rate;
}
