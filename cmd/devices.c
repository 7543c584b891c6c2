/* dltrain devices: what this machine offers. */
#include "cmd/cmd.h"

#include <jansson.h>

enum { MAX_CARD = 64 };

static DltStatus look(const DltArgs *args, const char *name, int index, DltDeviceInfo *info,
                      DltErr *err)
{
    const DltBackend *backend = NULL;
    DltDevice *dev = NULL;
    DltDeviceOptions options = {
        .index = index, .n_thread = (int)args->threads, .plugin_folder = args->program_folder};
    DLT_TRY(dlt_backend_find(name, (DltMark){"<command line>", 0, 0, 0, NULL}, &backend, err));
    DLT_TRY(backend->open(args->arena, &options, &dev, err));
    backend->info(dev, info);
    backend->close(dev);
    return DLT_OK;
}

static void show(const char *name, const DltDeviceInfo *info)
{
    printf("%-6s %s, %.1f GiB (%.1f GiB free)\n       %s; %s%s%s%s\n", name, info->name,
           (double)info->memory_bytes / (1 << 30), (double)info->free_bytes / (1 << 30),
           info->library, "f32", info->has_tf32 ? " tf32" : "", info->has_bf16 ? " bf16" : "",
           info->has_f16 ? " f16" : "");
}

static json_t *json_of(const char *device, const DltDeviceInfo *info)
{
    return json_pack("{s:s, s:s, s:I, s:I, s:s, s:b, s:b, s:b, s:b}", "device", device, "name",
                     info->name, "memory_bytes", (json_int_t)info->memory_bytes, "free_bytes",
                     (json_int_t)info->free_bytes, "library", info->library, "tf32",
                     (int)info->has_tf32, "bf16", (int)info->has_bf16, "f16", (int)info->has_f16,
                     "fp8", (int)info->has_fp8);
}

/* Every card of the CUDA plug-in: as text, or into `list`. *n of them; `why` tells what ended the
 * search. */
static int each_card(const DltArgs *args, json_t *list, DltErr *why)
{
    int n = 0;
    for (; n < MAX_CARD; n++) {
        DltDeviceInfo info = {.memory_bytes = 0};
        dlt_err_init(why);
        if (look(args, "cuda", n, &info, why) != DLT_OK) break;
        char device[24];
        snprintf(device, sizeof device, "cuda:%d", n);
        if (list)
            json_array_append_new(list, json_of(device, &info));
        else
            show(device, &info);
    }
    return n;
}

static DltStatus run(const DltArgs *args, DltErr *err)
{
    DltDeviceInfo cpu = {.memory_bytes = 0};
    DltErr *why = DLT_NEW(args->arena, DltErr);
    DLT_TRY(look(args, "cpu", 0, &cpu, err));
    if (!args->json) {
        show("cpu", &cpu);
        if (each_card(args, NULL, why) == 0)
            printf("cuda   not available: %s\n", why->report[0].text);
        return DLT_OK;
    }
    json_t *o = json_object(), *list = json_array();
    int failed = o == NULL || list == NULL || json_array_append_new(list, json_of("cpu", &cpu));
    bool none = each_card(args, list, why) == 0;
    failed |= json_object_set_new(o, "devices", list);
    failed |= json_object_set_new(
        o, "missing", none ? json_pack("{s:s}", "cuda", why->report[0].text) : json_object());
    failed |= json_dumpf(o, stdout, JSON_INDENT(2) | JSON_PRESERVE_ORDER);
    json_decref(o);
    putchar('\n');
    return failed ? dlt_err(err, DLT_E_RESOURCE, "the JSON result could not be written") : DLT_OK;
}

const DltCommand dlt_command_devices = {
    .name = "devices",
    .words = "",
    .help = "processors, cards, libraries, and what is missing",
    .min_word = 0,
    .max_word = 0,
    .options = (const char *const[]){"threads", "json", NULL},
    .run = run,
};
