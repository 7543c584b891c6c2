/* dltrain train, resume: a config or a checkpoint -> a run folder. */
#include "cmd/cmd.h"

#include "base/log.h"
#include "base/sys.h"

#include <unistd.h>

/* 75, 130 and 143 are ends the user asked for: the checkpoint is saved and the results are printed.
 */
static DltStatus train(const DltArgs *args, DltSpec *spec, const DltCheckpoint *from, DltErr *err)
{
    DltRunOptions options = dlt_run_options(args);
    DltSpan wall = {.unit = DLT_U_SECONDS};
    if (args->walltime &&
        (!dlt_parse_span(args->walltime, &wall) || wall.unit != DLT_U_SECONDS || !(wall.n > 0)))
        return dlt_err(err, DLT_E_CONFIG, "--walltime: '%s' is no time; write `50 min` or `3 h`",
                       args->walltime);
    options.walltime_s = wall.n;
    if (args->init) options.init = dlt_checkpoint_path(args, args->init);
    DltRunResult result = {.n = 0};
    DltStatus status = dlt_train(args->arena, spec, from, &options, &result, err);
    bool saved =
        status == DLT_OK || status == DLT_STOPPED || status == DLT_SIGINT || status == DLT_SIGTERM;
    if (saved) DLT_TRY(dlt_print_result(args, &result, NULL, err));
    return status;
}

/* resume: auto. Whoever starts the same command again, a scheduler say, goes on with what is in --out:
 * *from is its newest checkpoint, NULL when there is none yet. */
static DltStatus find_run(const DltArgs *args, DltCheckpoint **from, DltErr *err)
{
    if (!args->out)
        return dlt_err(err, DLT_E_CONFIG,
                       "resume: auto needs --out DIR, where the next start finds the run");
    const char *last = dlt_path_join(args->arena, args->out, "last.bin");
    if (access(last, F_OK) != 0) return DLT_OK;
    return dlt_checkpoint_read(args->arena, last, from, err);
}

static DltStatus run_train(const DltArgs *args, DltErr *err)
{
    DltSpec *spec = NULL;
    DltCheckpoint *from = NULL;
    dlt_sys_signals_install(); /* a signal while the config is read counts too */
    DLT_TRY(
        dlt_spec_read(args->arena, args->word[0], args->n_override, args->override, &spec, err));
    if (spec->resume_auto) DLT_TRY(find_run(args, &from, err));
    return train(args, spec, from, err);
}

const DltCommand dlt_command_train = {
    .name = "train",
    .words = "CONFIG [key=value...]",
    .help = "check, plan, train, evaluate, save into a run folder",
    .min_word = 1,
    .max_word = 1,
    .options = (const char *const[]){"out", "device", "threads", "init", "eager", "stop_at",
                                     "walltime", "json", NULL},
    .run = run_train,
};

static DltStatus run_resume(const DltArgs *args, DltErr *err)
{
    DltCheckpoint *c = NULL;
    DltSpec *spec = NULL;
    dlt_sys_signals_install();
    const char *path = dlt_checkpoint_path(args, args->word[0]);
    DLT_TRY(dlt_checkpoint_read(args->arena, path, &c, err));
    DLT_TRY(dlt_spec_from_checkpoint(args, c, &spec, err));
    DltArgs here = *args;
    if (!here.out)
        here.out = dlt_path_folder(args->arena, path); /* the same run goes on in its folder */
    return train(&here, spec, c, err);
}

const DltCommand dlt_command_resume = {
    .name = "resume",
    .words = "CKPT|RUN [key=value...]",
    .help = "go on with a run, from the one file alone",
    .min_word = 1,
    .max_word = 1,
    .options = (const char *const[]){"out", "device", "threads", "eager", "stop_at", "walltime",
                                     "json", NULL},
    .run = run_resume,
};
