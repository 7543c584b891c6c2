/* Time of each node over some training steps, with its operations, bytes and rates. */
#include "exec/session.h"

#include "base/sys.h"
#include <math.h>

/* One update of one micro batch, as the trainer does it but for logging. */
static DltStatus one_step(DltFeed *f, DltStepState *state, DltErr *err)
{
    int64_t n_valid = 0;
    state->update++;
    state->batch++;
    DLT_TRY(dlt_feed_batch(f, state, &n_valid, err));
    DLT_TRY(dlt_feed_run(f, err));
    return dlt_exec_run(f->p->exec, DLT_PHASE_UPDATE, err);
}

double dlt_node_bytes(const DltNode *n)
{
    double bytes = 0;
    if (n->op->view) return 0;
    bool fetch = n->kind == DLT_OP_fetch_x || n->kind == DLT_OP_fetch_y;
    if (fetch)
        return (double)dlt_shape_count(&n->out[0]->shape) *
               (double)(dlt_dtype_bytes(n->in[0]->dtype) + dlt_dtype_bytes(n->out[0]->dtype));
    for (int i = 0; i < DLT_MAX_IN; i++)
        if (n->in[i]) bytes += (double)dlt_tensor_bytes(n->in[i]);
    for (int i = 0; i < DLT_MAX_OUT; i++)
        if (n->out[i]) bytes += (double)dlt_tensor_bytes(n->out[i]);
    return bytes;
}

enum { WARM_UP = 5, LEAST_STEPS = 3 };

static double ms_since(int64_t begin)
{
    return (double)(dlt_sys_now_ns() - begin) * 1e-6;
}

/* The least of a few single steps, where a step is over when it has been enqueued. */
static DltStatus time_best(DltFeed *f, DltStepState *state, int64_t n, DltProfile *p, DltErr *err)
{
    p->best_step_ms = p->step_ms;
    for (int64_t i = 0; i < n && f->p->s->backend->record_begin == NULL; i++) {
        int64_t begin = dlt_sys_now_ns();
        DLT_TRY(one_step(f, state, err));
        p->best_step_ms = fmin(p->best_step_ms, ms_since(begin));
    }
    return DLT_OK;
}

/* Steps that need not be fast; the last one tells how many of at most `most` fit into the budget. */
static DltStatus warm_up(DltFeed *f, DltStepState *state, double budget_ms, int64_t most,
                         int64_t *n, DltErr *err)
{
    int64_t begin = 0;
    for (int i = 0; i < WARM_UP; i++) {
        DLT_TRY(dlt_exec_sync(f->p->exec, err));
        begin = dlt_sys_now_ns();
        DLT_TRY(one_step(f, state, err));
    }
    DLT_TRY(dlt_exec_sync(f->p->exec, err));
    /* what records a node to time it runs it ten times (node_time.c) */
    double runs = f->p->s->backend->record_begin != NULL ? 12 : 3;
    double fit = budget_ms / fmax(runs * ms_since(begin), 1e-3);
    *n = fit >= (double)most ? most : fit <= LEAST_STEPS ? LEAST_STEPS : (int64_t)fit;
    return DLT_OK;
}

static DltStatus time_steps(DltFeed *f, DltStepState *state, int64_t n, DltProfile *p, DltErr *err)
{
    DltExec *exec = f->p->exec;
    int64_t begin = dlt_sys_now_ns();
    for (int64_t i = 0; i < n; i++)
        DLT_TRY(one_step(f, state, err));
    DLT_TRY(dlt_exec_sync(exec, err));
    p->step_ms = ms_since(begin) / (double)n;
    DLT_TRY(time_best(f, state, n, p, err));
    dlt_exec_profile(exec, true);
    for (int64_t i = 0; i < n; i++) {
        DLT_TRY(one_step(f, state, err));
        const int64_t *ns = dlt_exec_step_ns(exec);
        for (int k = 0; k < p->n; k++) {
            p->row[k].ms += (double)ns[k] * 1e-6 / (double)n;
            p->row[k].best_ms = fmin(p->row[k].best_ms, (double)ns[k] * 1e-6);
        }
    }
    dlt_exec_profile(exec, false);
    return DLT_OK;
}

static DltStatus open_program(DltArena *arena, DltSpec *spec, const DltRunOptions *o,
                              DltProgram **p, DltErr *err)
{
    DltSession *s = NULL;
    DLT_TRY(dlt_session_open(arena, spec, o, NULL, &s, err)); /* settles micro: auto */
    DltModelOptions m = {.training = true,
                         .split = DLT_TRAIN,
                         .batch = spec->train.micro,
                         .resident = spec->data.resident};
    DLT_TRY(dlt_spec_load_data(spec, 1u << DLT_TRAIN, err));
    DLT_TRY(dlt_program_plan(s, &m, p, err));
    DLT_TRY(dlt_programs_fit(p, 1, err));
    DLT_TRY(dlt_program_bind(*p, NULL, NULL, err));
    DLT_TRY(dlt_weights_start(*p, err));
    return dlt_program_upload(*p, err);
}

/* What each node is held up by. */
static DltStatus judge(const DltProgram *program, DltProfile *p, DltErr *err)
{
    const double explained = 0.25;
    static const DltDtype low[] = {[DLT_PRECISION_BF16] = DLT_BF16, [DLT_PRECISION_F16] = DLT_F16};
    int precision = program->s->spec->train.precision;
    bool narrow = precision == DLT_PRECISION_BF16 || precision == DLT_PRECISION_F16;
    DltPeaks peak;
    DLT_TRY(dlt_peaks(program->s, narrow ? low[precision] : DLT_F32, &peak, err));
    p->peak_flops = peak.flops;
    p->peak_bytes = peak.bytes;
    for (int i = 0; i < p->n; i++) {
        DltProfileRow *r = &p->row[i];
        double compute = 1e3 * r->flops / peak.flops, memory = 1e3 * r->bytes / peak.bytes;
        double least = compute > memory ? compute : memory;
        r->of_peak = r->ms > 0 ? least / r->ms : 0;
        r->bound = r->of_peak < explained ? "latency" : compute > memory ? "compute" : "memory";
    }
    return DLT_OK;
}

DltStatus dlt_profile(DltArena *arena, DltSpec *spec, const DltRunOptions *o, int64_t n_steps,
                      double budget_ms, DltProfile *p, DltErr *err)
{
    DltProgram *program = NULL;
    DltFeed feed;
    DLT_TRY(open_program(arena, spec, o, &program, err));
    const DltPlan *plan = program->plan;
    DltStepState state = {.seed = spec->seed,
                          .batch = -1,
                          .n_micro = 1,
                          .lr = (float)dlt_schedule_rate(&spec->train.schedule, 0),
                          .loss_scale = 1.0f,
                          .sample_weight = (double)spec->train.micro};
    DLT_TRY(dlt_feed_open(program, true, 0, &feed, err));
    *p = (DltProfile){.n = plan->n_step, .plan = plan, .device = program->s->info.name};
    p->row = DLT_NEW_ARRAY(arena, p->n, DltProfileRow);
    for (int i = 0; i < p->n; i++) {
        const DltStep *step = &plan->step[i];
        p->row[i] =
            (DltProfileRow){.kernel = step->kernel ? step->kernel->name : step->node->op->name,
                            .layer = step->node->name,
                            .flops = step->node->op->flops(step->node),
                            .bytes = dlt_node_bytes(step->node),
                            .best_ms = INFINITY};
    }
    int64_t n = n_steps;
    DLT_TRY(warm_up(&feed, &state, budget_ms, n_steps, &n, err));
    DLT_TRY(time_steps(&feed, &state, n, p, err));
    for (int i = 0; i < p->n; i++)
        p->sum_ms += p->row[i].ms;
    dlt_exec_free(program->exec); /* another plan may need the memory */
    return judge(program, p, err);
}
