/* dltrain verify-resume: proves for a config on this machine that a run which is cut and resumed has
 * the same bits as the unbroken one. Trains --steps updates whole, then half of them and the rest. */
#include "cmd/cmd.h"

#include "base/log.h"
#include "base/sys.h"

#include <unistd.h>

static DltStatus train_to(const DltArgs *args, const char *out, int64_t stop_at,
                          const DltCheckpoint *from, DltErr *err)
{
    DltSpec *spec = NULL;
    DltRunResult result = {.n = 0};
    DltRunOptions options = dlt_run_options(args);
    options.out = out;
    options.stop_at = stop_at;
    DLT_TRY(
        dlt_spec_read(args->arena, args->word[0], args->n_override, args->override, &spec, err));
    DltStatus status = dlt_train(args->arena, spec, from, &options, &result, err);
    return status == DLT_STOPPED && dlt_sys_signal_seen() == 0 ? DLT_OK : status;
}

static DltStatus read_last(const DltArgs *args, const char *folder, DltCheckpoint **c, DltErr *err)
{
    return dlt_checkpoint_read(args->arena, dlt_path_join(args->arena, folder, "last.bin"), c, err);
}

static DltStatus compare(const DltArgs *args, const char *whole, const char *cut, int64_t steps,
                         DltErr *err)
{
    DltCheckpoint *a = NULL, *half = NULL, *b = NULL;
    int64_t middle = steps / 2 > 0 ? steps / 2 : 1;
    DLT_TRY(train_to(args, whole, steps, NULL, err));
    DLT_TRY(train_to(args, cut, middle, NULL, err));
    DLT_TRY(read_last(args, cut, &half, err));
    DLT_TRY(train_to(args, cut, steps, half, err));
    DLT_TRY(read_last(args, whole, &a, err));
    DLT_TRY(read_last(args, cut, &b, err));
    DLT_TRY(dlt_checkpoint_same(a, b, err));
    printf("verified: %lld updates at once and cut after %lld are the same to the bit "
           "(%d tensors, %lld bytes)\n",
           (long long)a->meta.step, (long long)half->meta.step, a->n_tensor,
           (long long)a->file_bytes);
    return DLT_OK;
}

static DltStatus run(const DltArgs *args, DltErr *err)
{
    enum { STEPS = 20 };
    const char *base =
        args->out ? args->out : dlt_arena_printf(args->arena, "verify-resume-%ld", (long)getpid());
    const char *whole = dlt_path_join(args->arena, base, "whole"),
               *cut = dlt_path_join(args->arena, base, "cut");
    DltStatus status = compare(args, whole, cut, args->steps > 0 ? args->steps : STEPS, err);
    if (status != DLT_OK) {
        dlt_log("both runs stay in %s", base);
        return status;
    }
    if (args->out) return DLT_OK;
    dlt_run_folder_remove(args->arena, whole);
    dlt_run_folder_remove(args->arena, cut);
    dlt_sys_rmdir(base);
    return DLT_OK;
}

const DltCommand dlt_command_verify_resume = {
    .name = "verify-resume",
    .words = "CONFIG [key=value...]",
    .help = "prove that a cut and resumed run has the bits of the unbroken one",
    .min_word = 1,
    .max_word = 1,
    .options = (const char *const[]){"out", "device", "threads", "steps", "eager", NULL},
    .run = run,
};
