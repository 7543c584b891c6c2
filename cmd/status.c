/* dltrain status: what became of runs, from their folders. */
#include "cmd/cmd.h"

#include <jansson.h>

static const char *state_text(const DltArgs *args, const DltRunStatus *s)
{
    if (s->state == DLT_RUN_LIVES)
        return dlt_arena_printf(args->arena, "running (process %s on %s)", s->pid, s->host);
    if (s->state == DLT_RUN_ENDED)
        return dlt_arena_printf(args->arena, "ended with exit %d: %s", s->exit, s->reason);
    return "killed: it left no end record";
}

static int put_step(json_t *o, const char *key, int64_t step)
{
    return json_object_set_new(o, key, step >= 0 ? json_integer((json_int_t)step) : json_null());
}

static int put_text(json_t *o, const char *key, const char *text)
{
    return json_object_set_new(o, key, text ? json_string(text) : json_null());
}

static DltStatus print_json(const char *folder, const DltRunStatus *s, DltErr *err)
{
    static const char *const names[] = {"running", "ended", "killed"};
    json_t *o = json_object();
    int failed = o == NULL;
    failed |= put_text(o, "run", folder);
    failed |= put_text(o, "state", names[s->state]);
    failed |= json_object_set_new(o, "exit",
                                  s->state == DLT_RUN_ENDED ? json_integer(s->exit) : json_null());
    failed |= put_text(o, "reason", s->reason);
    failed |= put_step(o, "step", s->step);
    failed |= put_step(o, "saved_step", s->saved_step);
    failed |= put_text(o, "checkpoint", s->checkpoint);
    failed |= put_text(o, "crash", s->crash);
    failed |= json_dumpf(o, stdout, JSON_COMPACT | JSON_PRESERVE_ORDER);
    json_decref(o);
    putchar('\n');
    return failed ? dlt_err(err, DLT_E_RESOURCE, "the JSON result could not be written") : DLT_OK;
}

static void print_text(const DltArgs *args, const char *folder, const DltRunStatus *s)
{
    printf("%s  %s\n", folder, state_text(args, s));
    if (s->step >= 0) printf("  last row    step %lld\n", (long long)s->step);
    if (s->checkpoint)
        printf("  checkpoint  %s, step %lld\n", s->checkpoint, (long long)s->saved_step);
    if (!s->checkpoint) printf("  checkpoint  none\n");
    if (s->crash) printf("  record      %s\n", s->crash);
    if (s->lineage) printf("  lineage     %s", s->lineage);
}

static DltStatus run(const DltArgs *args, DltErr *err)
{
    for (int i = 0; i < args->n_word; i++) {
        DltRunStatus s;
        DLT_TRY(dlt_run_status(args->arena, args->word[i], &s, err));
        if (args->json)
            DLT_TRY(print_json(args->word[i], &s, err));
        else
            print_text(args, args->word[i], &s);
    }
    return DLT_OK;
}

const DltCommand dlt_command_status = {
    .name = "status",
    .words = "RUN...",
    .help = "what became of runs: running, ended (how and why) or killed",
    .min_word = 1,
    .max_word = -1,
    .options = (const char *const[]){"json", NULL},
    .run = run,
};
