/* The time of one node. Launching and waiting cost more than a small kernel runs, so where the
 * backend records, a node is recorded many times over and replayed, less what replaying costs by
 * itself. A node whose result takes an input's memory runs once: again, it would compute with its
 * own result. So does one that takes long, which ten times over could look like a device that hangs. */
#include "base/sys.h"
#include "exec/bound.h"

/* Of a node that takes longer, launching is no part of the time that shows. */
enum { TIMES = 10, LONG_NS = 20000000 };

static bool takes_place(const DltExec *e, const DltNode *n)
{
    const void *out = n->out[0] ? e->pointer[n->out[0]->id] : NULL;
    for (int i = 0; out != NULL && i < DLT_MAX_IN; i++)
        if (n->in[i] && e->pointer[n->in[i]->id] == out) return true;
    return false;
}

static DltStatus record(DltExec *e, int s, int times, void **program, DltErr *err)
{
    DltStatus status = DLT_OK;
    DLT_TRY(e->backend->record_begin(e->dev, err));
    for (int i = 0; i < times && status == DLT_OK; i++)
        status = dlt_exec_launch(e, s, s + 1, err);
    return dlt_exec_end_record(e, status, program, err);
}

static DltStatus replay(DltExec *e, void *program, int64_t *ns, DltErr *err)
{
    int64_t start = dlt_sys_now_ns();
    DLT_TRY(e->backend->replay(e->dev, program, err));
    DLT_TRY(e->backend->sync(e->dev, err));
    *ns = dlt_sys_now_ns() - start;
    return DLT_OK;
}

/* ns of replaying and waiting: what one launch takes longer than a tenth of ten. */
static DltStatus time_replay(DltExec *e, int s, DltErr *err)
{
    void *once = NULL;
    int64_t least = INT64_MAX;
    DLT_TRY(record(e, s, 1, &once, err));
    for (int i = 0; i < TIMES; i++) {
        int64_t one = 0, many = 0;
        DLT_TRY(replay(e, once, &one, err));
        DLT_TRY(replay(e, e->alone[s], &many, err));
        int64_t cost = one - (many - one) / (TIMES - 1);
        if (cost < least) least = cost;
    }
    e->replay_ns = least > 0 ? least : 0;
    return DLT_OK;
}

/* The program that is timed, and how often the node is in it. */
static DltStatus record_alone(DltExec *e, int s, DltErr *err)
{
    int64_t ns = 0;
    e->alone_times[s] = 1;
    DLT_TRY(record(e, s, 1, &e->alone[s], err));
    if (takes_place(e, e->plan->step[s].node)) return DLT_OK;
    DLT_TRY(replay(e, e->alone[s], &ns, err));
    if (ns > LONG_NS) DLT_TRY(replay(e, e->alone[s], &ns, err)); /* the first may have loaded it */
    if (ns > LONG_NS) return DLT_OK;
    e->alone_times[s] = TIMES;
    return record(e, s, TIMES, &e->alone[s], err);
}

DltStatus dlt_exec_time_node(DltExec *e, int s, int64_t *ns, DltErr *err)
{
    const DltStep *step = &e->plan->step[s];
    *ns = 0;
    if (step->kernel == NULL) return DLT_OK;
    if (e->backend->record_begin == NULL) {
        int64_t start = dlt_sys_now_ns();
        DLT_TRY(dlt_exec_launch(e, s, s + 1, err));
        DLT_TRY(e->backend->sync(e->dev, err));
        *ns = dlt_sys_now_ns() - start;
        return DLT_OK;
    }
    if (e->alone == NULL) {
        e->alone = DLT_NEW_ARRAY(e->arena, e->plan->n_step, void *);
        e->alone_times = DLT_NEW_ARRAY(e->arena, e->plan->n_step, int);
    }
    if (e->alone[s] == NULL) DLT_TRY(record_alone(e, s, err));
    int times = e->alone_times[s];
    if (e->replay_ns == 0 && times > 1) DLT_TRY(time_replay(e, s, err));
    int64_t total = 0;
    DLT_TRY(replay(e, e->alone[s], &total, err));
    *ns = total > e->replay_ns ? (total - e->replay_ns) / times : 0;
    return DLT_OK;
}

void dlt_exec_profile(DltExec *e, bool on)
{
    if (on && e->step_ns == NULL) e->step_ns = DLT_NEW_ARRAY(e->arena, e->plan->n_step, int64_t);
    e->profiling = on;
}

const int64_t *dlt_exec_step_ns(const DltExec *e)
{
    return e->profiling ? e->step_ns : NULL;
}
