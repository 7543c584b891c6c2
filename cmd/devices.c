/* dltrain devices: what this machine offers. */
#include "cmd/cmd.h"

static DltStatus show(const DltArgs *args, const char *name, DltErr *err)
{
    const DltBackend *backend = NULL;
    DltDevice *dev = NULL;
    DltDeviceInfo info = {.memory_bytes = 0};
    DltDeviceOptions options = {.n_thread = (int)args->threads,
                                .plugin_folder = args->program_folder};
    DLT_TRY(dlt_backend_find(name, (DltMark){"<command line>", 0, 0, 0, NULL}, &backend, err));
    DLT_TRY(backend->open(args->arena, &options, &dev, err));
    backend->info(dev, &info);
    printf("%-6s %s, %.1f GiB (%.1f GiB free)\n       %s; %s%s%s%s\n", backend->name, info.name,
           (double)info.memory_bytes / (1 << 30), (double)info.free_bytes / (1 << 30), info.library,
           "f32", info.has_tf32 ? " tf32" : "", info.has_bf16 ? " bf16" : "",
           info.has_f16 ? " f16" : "");
    backend->close(dev);
    return DLT_OK;
}

static DltStatus run(const DltArgs *args, DltErr *err)
{
    DLT_TRY(show(args, "cpu", err));
    DltErr *why = DLT_NEW(args->arena, DltErr);
    dlt_err_init(why);
    if (show(args, "cuda", why) == DLT_OK) return DLT_OK;
    printf("cuda   not available: %s\n", why->report[0].text);
    return DLT_OK;
}

const DltCommand dlt_command_devices = {
    .name = "devices",
    .words = "",
    .help = "processors, cards, libraries, and what is missing",
    .min_word = 0,
    .max_word = 0,
    .options = (const char *const[]){"threads", NULL},
    .run = run,
};
