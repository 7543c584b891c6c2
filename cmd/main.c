/* argv -> command row -> exit code. Prints errors; decides nothing else. */
#include "cmd/cmd.h"

#include "base/fatal.h"
#include "base/log.h"
#include "base/watch.h"

#include <unistd.h>

__attribute__((noreturn)) static void out_of_memory(size_t bytes)
{
    char cause[96];
    snprintf(cause, sizeof cause, "out of host memory (%zu more bytes were needed)", bytes);
    fprintf(stderr, "error: %s\n", cause);
    dlt_fatal_run(cause, DLT_E_RESOURCE);
    _exit(DLT_E_RESOURCE);
}

/* On the watch's thread, while the process's own hangs in a call. */
static void device_hangs(const char *what, double seconds)
{
    char cause[512];
    snprintf(
        cause, sizeof cause,
        "the device has not answered for %g s, in %.300s; it is lost, or its driver hangs: look "
        "into the kernel's log (dmesg) for Xid lines",
        seconds, what);
    fprintf(
        stderr,
        "error: %s\n  if it only was slow, raise train.guard.hang; `dltrain resume` goes on from "
        "the newest checkpoint\n",
        cause);
    dlt_fatal_run(cause, DLT_E_DEVICE);
    _exit(DLT_E_DEVICE);
}

/* Folder of the running program, "." when the system does not tell. */
static const char *program_folder(DltArena *arena)
{
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n <= 0) return ".";
    path[n] = '\0';
    return dlt_path_folder(arena, path);
}

static DltStatus unknown_command(const char *word, DltErr *err)
{
    const char *names[32];
    int n = 0;
    for (; n < 31 && dlt_commands[n]; n++)
        names[n] = dlt_commands[n]->name;
    names[n] = NULL;
    const char *near = dlt_nearest(word, names);
    return dlt_err(err, DLT_E_CONFIG, "unknown command '%s'%s%s%s; `dltrain --help` lists them",
                   word, near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

static DltStatus run(DltArena *arena, int argc, char *const argv[], DltErr *err)
{
    const char *word = argc > 1 ? argv[1] : "--help";
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
        dlt_usage(NULL, stdout);
        return DLT_OK;
    }
    const DltCommand *command = dlt_command_find(strcmp(word, "--version") == 0 ? "version" : word);
    if (!command) return unknown_command(word, err);
    DltArgs args = {.arena = arena, .program_folder = program_folder(arena)};
    DLT_TRY(dlt_args_read(command, argc > 2 ? argc - 2 : 0, argv + 2, &args, err));
    if (args.help) {
        dlt_usage(command, stdout);
        return DLT_OK;
    }
    if (args.quiet) dlt_log_level(DLT_LOG_QUIET);
    if (args.verbose) dlt_log_level(DLT_LOG_DEBUG);
    return command->run(&args, err);
}

/* What may help when a checkpoint cannot be used and no report says what would: it is one of several. */
static void tell_way_out(DltStatus status, const DltErr *e)
{
    bool told = false;
    for (int i = 0; i < e->n; i++)
        told = told || e->report[i].note;
    if (status == DLT_E_CHECKPOINT && !told)
        fprintf(stderr,
                "note: the other checkpoints of its run (step-N.bin, best.bin) may be whole; "
                "`dltrain inspect FILE` checks one\n");
}

int main(int argc, char **argv)
{
    static DltErr err;
    dlt_err_init(&err);
    dlt_arena_on_oom(out_of_memory);
    dlt_fatal_signals();
    dlt_watch_on_hang(device_hangs);
    DltArena *arena = dlt_arena_new();
    if (!arena) out_of_memory(0);
    DltStatus status = run(arena, argc, argv, &err);
    dlt_err_print(&err, stderr);
    tell_way_out(status, &err);
    dlt_watch_enter("giving it back");
    dlt_arena_free(arena);
    if (fflush(stdout) != 0 && status == DLT_OK) {
        fprintf(stderr, "error: standard output: the results could not be written\n");
        status = DLT_E_RESOURCE;
    }
    return (int)status;
}
