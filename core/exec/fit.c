/* Whether a run fits into the device's memory, before anything is allocated; when it does not, what
 * would make it fit, with the bytes that are to be expected. */
#include "exec/session.h"

/* Bytes that an evaluation program needs besides what p[0] lends it. */
static size_t own_bytes(const DltProgram *p, const DltProgram *lender)
{
    const size_t *r = p->plan->region_bytes;
    size_t bytes = r[DLT_INPUT] + r[DLT_GRAD];
    if (r[DLT_TEMP] > lender->plan->region_bytes[DLT_TEMP]) bytes += r[DLT_TEMP];
    for (int l = 0; l < DLT_LANES; l++)
        if (p->plan->work_bytes[l] > lender->plan->work_bytes[l]) bytes += p->plan->work_bytes[l];
    return bytes;
}

/* Bytes with micro batches of m: activations and scratch grow with it, the rest does not. */
static double expected_bytes(const DltProgram *p, int64_t m)
{
    const size_t *r = p->plan->region_bytes;
    size_t grows = r[DLT_TEMP];
    for (int l = 0; l < DLT_LANES; l++)
        grows += p->plan->work_bytes[l];
    double share = (double)m / (double)p->s->spec->train.micro;
    return (double)(p->plan->peak_bytes - grows) + (double)grows * share;
}

static void advise(const DltProgram *p, double free_bytes, DltErr *err)
{
    const double gib = 1 << 30;
    const DltTrainSpec *t = &p->s->spec->train;
    int64_t m = t->micro - 1;
    while (m > 1 && (t->batch % m != 0 || expected_bytes(p, m) > free_bytes))
        m--;
    size_t data = p->plan->region_bytes[DLT_INPUT];
    if (p->options.resident && data > 0)
        dlt_err_note(err, DLT_NO_MARK, "data.cache: host would save up to %zu bytes (%.2f GiB)",
                     data, (double)data / gib);
    if (!p->options.training || m < 1) return;
    bool fits = expected_bytes(p, m) <= free_bytes;
    dlt_err_note(err, DLT_NO_MARK,
                 "%strain.batch: {global: %lld, micro: %lld} needs about %.2f GiB",
                 fits ? "" : "it does not fit with any micro batch: even ", (long long)t->batch,
                 (long long)m, expected_bytes(p, m) / gib);
}

DltStatus dlt_states_fit(const DltSession *s, const DltGraph *g, DltErr *err)
{
    const double gib = 1 << 30;
    double bytes = 0, free_bytes = (double)s->info.free_bytes;
    for (int i = 0; i < g->n_tensor; i++) {
        const DltTensor *t = g->tensor[i];
        bool lasts = t->role == DLT_PARAM || t->role == DLT_GRAD || t->role == DLT_STATE;
        if (lasts && t->view_of == NULL) bytes += (double)dlt_tensor_bytes(t);
    }
    if (bytes <= free_bytes) return DLT_OK;
    dlt_err(err, DLT_E_RESOURCE,
            "the run needs %.0f bytes (%.2f GiB) and more on the %s device, but %.0f (%.2f GiB) "
            "are free",
            bytes, bytes / gib, s->backend->name, free_bytes, free_bytes / gib);
    dlt_err_note(err, DLT_NO_MARK,
                 "so much is needed for parameters, gradients and the optimizer's state alone: no "
                 "batch size makes it fit");
    return DLT_E_RESOURCE;
}

DltStatus dlt_programs_fit(DltProgram *const *p, int n, DltErr *err)
{
    size_t others = 0;
    const DltSession *s = p[0]->s;
    for (int i = 1; i < n; i++)
        others += own_bytes(p[i], p[0]);
    int64_t free_bytes = s->info.free_bytes - (int64_t)others;
    DltStatus status = dlt_plan_fits(p[0]->plan, free_bytes, err);
    if (status != DLT_OK) advise(p[0], (double)free_bytes, err);
    DLT_TRY(status);
    double bytes = (double)(p[0]->plan->peak_bytes + others);
    for (int i = 0; i < s->spec->n_expect; i++) {
        const DltExpect *e = &s->spec->expect[i];
        if (strcmp(e->key, "vram") == 0 && !dlt_expect_holds(e, bytes))
            return dlt_err_at(err, DLT_E_CONFIG, e->at,
                              "expect.vram: %s, but the run needs %.0f bytes", e->text, bytes);
    }
    return DLT_OK;
}
