/* Choices that only a plan can make: how many samples at a time, and what is computed again. Memory
 * grows with both in one direction, so the candidates are searched by halves. The measure is the
 * device's whole memory and not what happens to be free, so that a resumed run chooses the same. */
#include "base/log.h"
#include "exec/session.h"

enum { MAX_DIVISORS = 1024 };

/* Bytes of the training program with these settings; -1 after an error. */
static DltStatus planned_bytes(DltSession *s, int64_t micro, DltRecompute recompute, double *bytes,
                               DltErr *err)
{
    DltTrainSpec *t = &s->spec->train;
    DltProgram *p = NULL;
    DltModelOptions options = {
        .training = true, .split = DLT_TRAIN, .batch = micro, .resident = s->spec->data.resident};
    t->micro = micro;
    t->update.n_micro = t->batch / micro;
    t->recompute = recompute;
    DLT_TRY(dlt_program_plan(s, &options, &p, err));
    *bytes = (double)p->plan->peak_bytes;
    return DLT_OK;
}

/* Divisors of the batch, ascending. */
static int divisors(int64_t n, int64_t d[MAX_DIVISORS])
{
    int count = 0;
    for (int64_t i = 1; i <= n / i && count < MAX_DIVISORS / 2; i++)
        if (n % i == 0) d[count++] = i;
    for (int i = count - 1; i >= 0; i--)
        if (n / d[i] != d[i] && count < MAX_DIVISORS) d[count++] = n / d[i];
    return count;
}

/* The largest of the divisors that fits, or the smallest. */
static DltStatus choose_micro(DltSession *s, DltRecompute recompute, double limit, bool *fits,
                              DltErr *err)
{
    int64_t d[MAX_DIVISORS];
    int lo = 0, hi = divisors(s->spec->train.batch, d) - 1;
    double bytes = 0;
    DLT_TRY(planned_bytes(s, d[lo], recompute, &bytes, err));
    *fits = bytes <= limit;
    while (*fits && lo < hi) {
        int mid = (lo + hi + 1) / 2;
        DLT_TRY(planned_bytes(s, d[mid], recompute, &bytes, err));
        if (bytes <= limit)
            lo = mid;
        else
            hi = mid - 1;
    }
    return planned_bytes(s, d[lo], recompute, &bytes, err);
}

static DltStatus choose_one(DltSession *s, DltRecompute recompute, double limit, bool *fits,
                            DltErr *err)
{
    const DltTrainSpec *t = &s->spec->train;
    double bytes = 0;
    if (t->micro_auto) return choose_micro(s, recompute, limit, fits, err);
    DLT_TRY(planned_bytes(s, t->micro, recompute, &bytes, err));
    *fits = bytes <= limit;
    return DLT_OK;
}

DltStatus dlt_session_choose(DltSession *s, DltErr *err)
{
    static const char *const name[] = {"none", "mlp", "blocks"};
    DltTrainSpec *t = &s->spec->train;
    bool any = t->recompute == DLT_RECOMPUTE_AUTO, fits = false;
    if (!any && !t->micro_auto) return DLT_OK;
    int first = any ? DLT_RECOMPUTE_NONE : (int)t->recompute;
    int last = any ? DLT_RECOMPUTE_BLOCKS : first;
    double limit = 0.75 * (double)s->info.memory_bytes;
    for (int r = first; r <= last && !fits; r++)
        DLT_TRY(choose_one(s, (DltRecompute)r, limit, &fits, err));
    dlt_log("chosen by memory: %lld samples at a time (micro), recompute: %s", (long long)t->micro,
            name[t->recompute]);
    return DLT_OK;
}
