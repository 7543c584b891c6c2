/* A kernel for each node: the first of the backend's list that accepts the node and prepares. All
 * refusals are kept, so that a node nobody takes is explained in one message. */
#include "base/dtype.h"
#include "base/watch.h"
#include "plan/make.h"

enum { REFUSALS = 700 }; /* characters of reasons shown */

typedef struct Selection {
    DltArena *arena;
    DltPlan *plan;
    const char *force;
    char refusals[REFUSALS];
    DltStatus status; /* of the first kernel that accepted but could not prepare */
} Selection;

static void refuse(Selection *s, const char *kernel, const char *why)
{
    size_t used = strlen(s->refusals);
    snprintf(s->refusals + used, sizeof s->refusals - used, "%s%s: %s", used > 0 ? "; " : "",
             kernel, why[0] != '\0' ? why : "refused");
}

/* True when kernel takes the node; step->state and work_bytes are set. */
static bool try_kernel(Selection *s, const DltKernel *kernel, DltStep *step)
{
    DltWhy why = {""};
    const DltNode *n = step->node;
    bool accepts = kernel->accepts != NULL ? kernel->accepts(n, s->plan->dev, &why)
                                           : dlt_kernel_accepts_plain(n, &why);
    if (!accepts) {
        refuse(s, kernel->name, why.text);
        return false;
    }
    DltPrep prep = {.arena = s->arena};
    if (kernel->prepare != NULL) {
        DltErr err;
        dlt_err_init(&err);
        dlt_watch_enter(kernel->name);
        DltStatus status = kernel->prepare(n, s->plan->dev, &prep, &err);
        dlt_watch_leave();
        if (status != DLT_OK) {
            refuse(s, kernel->name, err.n > 0 ? err.report[0].text : "could not prepare");
            if (s->status == DLT_OK) s->status = status;
            return false;
        }
    }
    step->kernel = kernel;
    step->state = prep.state;
    step->work_bytes = prep.work_bytes;
    return true;
}

static DltStatus no_kernel(const Selection *s, const DltNode *n, DltErr *err)
{
    char shape[DLT_SHAPE_TEXT] = "no input", *at = shape;
    const char *dtype = "";
    if (n->in[0] != NULL) {
        dlt_shape_text(&n->in[0]->shape, at);
        dtype = dlt_dtype_name(n->in[0]->dtype);
    }
    return dlt_err_at(err, s->status != DLT_OK ? s->status : DLT_E_CONFIG, n->at,
                      "%s: the %s device has no kernel for %s on %s%s: %s", dlt_node_label(n),
                      s->plan->backend->name, n->op->name, dtype, shape,
                      s->refusals[0] != '\0' ? s->refusals : "its list is empty");
}

static DltStatus choose(Selection *s, DltStep *step, DltErr *err)
{
    const DltKernel *const *list = s->plan->backend->kernels(s->plan->dev, step->node->kind);
    s->refusals[0] = '\0';
    s->status = DLT_OK;
    for (int i = 0; s->force != NULL && list != NULL && list[i] != NULL; i++) {
        if (strstr(list[i]->name, s->force) != NULL && try_kernel(s, list[i], step)) return DLT_OK;
    }
    s->refusals[0] = '\0';
    for (int i = 0; list != NULL && list[i] != NULL; i++) {
        if (try_kernel(s, list[i], step)) return DLT_OK;
    }
    return no_kernel(s, step->node, err);
}

static int add_steps(DltPlan *plan, DltPhase phase, int n)
{
    const DltGraph *g = plan->graph;
    int last_lane = plan->backend->n_lane - 1;
    for (int i = 0; i < g->n_node; i++) {
        const DltNode *node = g->node[i];
        if (node->phase != phase) continue;
        plan->step[n++] =
            (DltStep){.node = node, .lane = node->lane < last_lane ? node->lane : last_lane};
    }
    return n;
}

DltStatus dlt_plan_select(DltArena *arena, DltPlan *plan, const DltPlanOptions *o, DltErr *err)
{
    plan->step = DLT_NEW_ARRAY(arena, plan->graph->n_node, DltStep);
    plan->n_batch_step = add_steps(plan, DLT_PHASE_BATCH, 0);
    plan->n_step = add_steps(plan, DLT_PHASE_UPDATE, plan->n_batch_step);
    Selection s = {.arena = arena, .plan = plan, .force = o != NULL ? o->force_kernel : NULL};
    for (int i = 0; i < plan->n_step; i++) {
        DltStep *step = &plan->step[i];
        if (step->node->op->view) continue;
        DLT_TRY(choose(&s, step, err));
        size_t *work = &plan->work_bytes[step->lane];
        if (step->work_bytes > *work) *work = step->work_bytes;
    }
    return DLT_OK;
}
