/* dltrain check, plan: everything that can be said about a run without running it. plan --what-if runs some
 * steps of one of the plans, to say how long an update of each takes. */
#include "cmd/cmd.h"

static DltStatus read_and_plan(const DltArgs *args, DltSpec **spec, DltModelGraph **model,
                               DltPlan **plan, DltErr *err)
{
    DltRunOptions options = dlt_run_options(args);
    DLT_TRY(dlt_spec_read(args->arena, args->word[0], args->n_override, args->override, spec, err));
    return dlt_run_plan(args->arena, *spec, &options, model, plan, err);
}

static DltStatus run_check(const DltArgs *args, DltErr *err)
{
    DltSpec *spec = NULL;
    DltModelGraph *model = NULL;
    DltPlan *plan = NULL;
    DLT_TRY(read_and_plan(args, &spec, &model, &plan, err));
    printf("%s: ok, %lld parameters, %.1f MiB\n", args->word[0], (long long)model->n_param,
           (double)plan->peak_bytes / (1 << 20));
    return DLT_OK;
}

const DltCommand dlt_command_check = {
    .name = "check",
    .words = "CONFIG [key=value...]",
    .help = "full static check: config, shapes, memory",
    .min_word = 1,
    .max_word = 1,
    .options = (const char *const[]){"device", "threads", NULL},
    .run = run_check,
};

static void print_layers(const DltModelGraph *m)
{
    printf("%-34s %-16s %-20s %12s %12s\n", "layer", "kind", "output", "parameters",
           "MFLOP/sample");
    for (int i = 0; i < m->n_row; i++) {
        const DltLayerRow *r = &m->row[i];
        char shape[DLT_SHAPE_TEXT], name[40];
        int64_t rows = r->out.dim[0] > 0 ? r->out.dim[0] : 1;
        snprintf(name, sizeof name, "%*s%s", 2 * r->depth, "", r->name);
        printf("%-34s %-16s %-20s %12lld %12.3f\n", name, r->kind, dlt_shape_text(&r->out, shape),
               (long long)r->params, r->flops / (double)rows * 1e-6);
    }
    printf("%-34s %-16s %-20s %12lld\n", "total", "", "", (long long)m->n_param);
}

static void print_memory(const DltPlan *p)
{
    static const char *const region[DLT_REGIONS] = {"inputs and data", "parameters", "gradients",
                                                    "states", "activations"};
    size_t work = 0;
    printf("\nmemory\n");
    for (int i = 0; i < DLT_REGIONS; i++)
        printf("  %-20s %14zu bytes\n", region[i], p->region_bytes[i]);
    for (int i = 0; i < DLT_LANES; i++)
        work += p->work_bytes[i];
    printf("  %-20s %14zu bytes\n  %-20s %14zu bytes\n", "kernel scratch", work, "total",
           p->peak_bytes);
    if (p->peak_step >= 0 && p->peak_step < p->n_step) {
        const DltNode *n = p->step[p->peak_step].node;
        printf("  activations peak at %s (%s)\n", n->op->name, n->name ? n->name : "");
    }
    printf("  %.3f GFLOP an update\n", dlt_plan_flops(p) * 1e-9);
}

/* One value of --what-if: the plan with KEY=VALUE behind the other overrides. */
typedef struct Variant {
    const char *word;
    DltSpec *spec;
    DltPlan *plan;
    double ms; /* of an update; 0: not known, for no plan fits */
} Variant;

/* "KEY=A,B,C" -> plans with KEY=A, KEY=B, KEY=C; v has room for one a letter. */
static DltStatus plan_variants(const DltArgs *args, Variant *v, int *n_variant, DltErr *err)
{
    const char *list = strchr(args->what_if, '=');
    if (!list || list == args->what_if || !list[1])
        return dlt_err(err, DLT_E_CONFIG,
                       "--what-if %s: needs a key and values, such as "
                       "train.recompute=none,mlp,blocks",
                       args->what_if);
    *n_variant = 0;
    for (const char *at = list; *at; at += 1 + strcspn(at + 1, ",")) {
        int n = (int)strcspn(at + 1, ",");
        const char **override = DLT_NEW_ARRAY(args->arena, args->n_override + 1, const char *);
        for (int i = 0; i < args->n_override; i++)
            override[i] = args->override[i];
        const char *word = dlt_arena_printf(args->arena, "%.*s=%.*s", (int)(list - args->what_if),
                                            args->what_if, n, at + 1);
        override[args->n_override] = word;
        DltArgs one = *args;
        one.n_override = args->n_override + 1;
        one.override = override;
        DltModelGraph *model = NULL;
        Variant *next = &v[(*n_variant)++];
        next->word = word;
        DLT_TRY(read_and_plan(&one, &next->spec, &model, &next->plan, err));
    }
    return DLT_OK;
}

static DltStatus measure(const DltArgs *args, const Variant *v, DltProfile *p, DltErr *err)
{
    enum { N_STEPS = 50 };
    const double budget_ms = 3000;
    DltRunOptions options = dlt_run_options(args);
    DLT_TRY(dlt_profile(args->arena, v->spec, &options, N_STEPS, budget_ms, p, err));
    fprintf(stderr, "measured: %s on %s\n", v->word, p->device);
    return DLT_OK;
}

/* Times of updates: of the plan that needs least memory as measured, of others by its nodes. One whose work is
 * another is measured too, where it fits. */
static DltStatus forecast(const DltArgs *args, Variant *const *by_bytes, int n, DltErr *err)
{
    const double enough = 0.9; /* of the time, by nodes that were measured */
    DltProfile *p = DLT_NEW_ARRAY(args->arena, n, DltProfile);
    int n_profile = 0;
    for (int i = 0; i < n; i++) {
        Variant *v = by_bytes[i];
        DltDeviceInfo info;
        double best = -1, known = 0;
        v->plan->backend->info(v->plan->dev, &info);
        bool fits = (int64_t)v->plan->peak_bytes <= info.free_bytes;
        for (int k = 0; k <= n_profile && best < enough; k++) {
            if (k == n_profile && !fits) break;
            if (k == n_profile) DLT_TRY(measure(args, v, &p[n_profile++], err));
            double ms = dlt_forecast_ms(&p[k], v->plan, v->spec->train.update.n_micro, &known);
            if (known > best) v->ms = ms;
            best = known > best ? known : best;
        }
    }
    return DLT_OK;
}

static int by_bytes(const void *a, const void *b)
{
    const Variant *const *x = a, *const *y = b;
    size_t n = (*x)->plan->peak_bytes, m = (*y)->plan->peak_bytes;
    return (n > m) - (n < m);
}

/* A line a variant: its plan's bytes and operations, and the time of an update. */
static DltStatus compare_plans(const DltArgs *args, DltErr *err)
{
    int64_t room = (int64_t)strlen(args->what_if);
    Variant *v = DLT_NEW_ARRAY(args->arena, room, Variant);
    Variant **sorted = DLT_NEW_ARRAY(args->arena, room, Variant *);
    int n = 0;
    DLT_TRY(plan_variants(args, v, &n, err));
    for (int i = 0; i < n; i++)
        sorted[i] = &v[i];
    qsort(sorted, (size_t)n, sizeof *sorted, by_bytes);
    DLT_TRY(forecast(args, sorted, n, err));
    printf("%-32s %16s %16s %14s %12s\n", "", "activations", "total", "GFLOP/update", "ms/update");
    for (int i = 0; i < n; i++) {
        const DltPlan *plan = v[i].plan;
        printf("%-32s %16zu %16zu %14.3f ", v[i].word, plan->region_bytes[DLT_TEMP],
               plan->peak_bytes, dlt_plan_flops(plan) * 1e-9);
        if (v[i].ms > 0)
            printf("%12.3f\n", v[i].ms);
        else
            printf("%12s\n", "-");
    }
    return DLT_OK;
}

/* Launches of a micro batch and of an update, by op, the most frequent first. */
static void print_kernels(const DltPlan *p)
{
    int count[DLT_N_OP] = {0}, n = 0;
    for (int i = 0; i < p->n_step; i++) {
        n += p->step[i].kernel != NULL;
        count[p->step[i].node->kind] += p->step[i].kernel != NULL;
    }
    printf("\n%d kernel nodes a step\n", n);
    for (;;) {
        int most = 0;
        for (int k = 0; k < DLT_N_OP; k++)
            if (count[k] > count[most]) most = k;
        if (count[most] == 0) return;
        printf("  %6d %s\n", count[most], dlt_ops[most]->name);
        count[most] = 0;
    }
}

static DltStatus run_plan(const DltArgs *args, DltErr *err)
{
    if (args->what_if) return compare_plans(args, err);
    DltSpec *spec = NULL;
    DltModelGraph *model = NULL;
    DltPlan *plan = NULL;
    DLT_TRY(read_and_plan(args, &spec, &model, &plan, err));
    if (args->dump && strcmp(args->dump, "graph") == 0) {
        dlt_graph_dump(model->graph, stdout);
    } else if (args->dump && strcmp(args->dump, "plan") == 0) {
        dlt_plan_dump(plan, stdout);
    } else if (args->dump) {
        return dlt_err(err, DLT_E_CONFIG, "--dump %s: known dumps: graph, plan", args->dump);
    } else {
        print_layers(model);
        print_memory(plan);
        print_kernels(plan);
    }
    return DLT_OK;
}

const DltCommand dlt_command_plan = {
    .name = "plan",
    .words = "CONFIG [key=value...]",
    .help = "layer table, memory to the byte, operations",
    .min_word = 1,
    .max_word = 1,
    .options = (const char *const[]){"device", "threads", "dump", "what_if", NULL},
    .run = run_plan,
};
