/* dltrain profile: where a training step spends its time, node by node. */
#include "cmd/cmd.h"

#include <jansson.h>
#include <math.h>

enum { N_STEPS = 20 };

static DltStatus print_json(const DltProfile *p, DltErr *err)
{
    json_t *o = json_object(), *rows = json_array();
    int failed = !o || !rows;
    for (int i = 0; i < p->n; i++) {
        const DltProfileRow *r = &p->row[i];
        failed |= json_array_append_new(
            rows, json_pack("{s:s,s:s,s:f,s:f,s:f,s:f,s:s}", "kernel", r->kernel, "layer",
                            r->layer ? r->layer : "", "ms", r->ms, "flops", r->flops, "bytes",
                            r->bytes, "of_peak", r->of_peak, "bound", r->bound));
    }
    failed |= json_object_set_new(o, "device", json_string(p->device));
    failed |= json_object_set_new(o, "step_ms", json_real(p->step_ms));
    failed |= json_object_set_new(o, "best_step_ms", json_real(p->best_step_ms));
    failed |= json_object_set_new(o, "sum_ms", json_real(p->sum_ms));
    failed |= json_object_set_new(o, "peak_flops_per_s", json_real(p->peak_flops));
    failed |= json_object_set_new(o, "peak_bytes_per_s", json_real(p->peak_bytes));
    failed |= json_object_set_new(o, "nodes", rows);
    failed |= json_dumpf(o, stdout, JSON_INDENT(1) | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(9));
    json_decref(o);
    putchar('\n');
    return failed ? dlt_err(err, DLT_E_RESOURCE, "the JSON result could not be written") : DLT_OK;
}

static void print_table(const DltProfile *p)
{
    printf("%-34s %-26s %9s %6s %9s %8s %7s %s\n", "kernel", "layer", "ms", "share", "GFLOP/s",
           "GB/s", "of peak", "bound by");
    for (int i = 0; i < p->n; i++) {
        const DltProfileRow *r = &p->row[i];
        double s = r->ms * 1e-3;
        if (r->bytes <= 0 || s <= 0) continue;
        printf("%-34s %-26.26s %9.4f %5.1f%% %9.1f %8.1f %6.0f%% %s\n", r->kernel,
               r->layer ? r->layer : "", r->ms, 100 * r->ms / p->sum_ms, r->flops / s * 1e-9,
               r->bytes / s * 1e-9, 100 * r->of_peak, r->bound);
    }
    printf("%-61s %9.4f\nwhole step without timers: %.4f ms on %s\n"
           "peaks measured here: %.0f GFLOP/s (large product), %.0f GB/s (large copy)\n",
           "sum", p->sum_ms, p->step_ms, p->device, p->peak_flops * 1e-9, p->peak_bytes * 1e-9);
}

static DltStatus run(const DltArgs *args, DltErr *err)
{
    DltSpec *spec = NULL;
    DltProfile p = {.n = 0};
    DltRunOptions options = dlt_run_options(args);
    DLT_TRY(
        dlt_spec_read(args->arena, args->word[0], args->n_override, args->override, &spec, err));
    DLT_TRY(dlt_profile(args->arena, spec, &options, args->steps > 0 ? args->steps : N_STEPS,
                        INFINITY, &p, err));
    if (args->json) return print_json(&p, err);
    print_table(&p);
    return DLT_OK;
}

const DltCommand dlt_command_profile = {
    .name = "profile",
    .words = "CONFIG [key=value...]",
    .help = "time, operations, bytes, share of peak and bound of every node of a step",
    .min_word = 1,
    .max_word = 1,
    .options = (const char *const[]){"device", "threads", "steps", "json", NULL},
    .run = run,
};
