/* The CPU backend: threads, memory and, for each op, the list of kernels: the plug-in's first, then
 * the plain ones, then the one that serves every dtype and layout through a plain one. There is one
 * lane, nothing is recorded, and work is done when launch returns. */
#include "base/log.h"
#include "base/sys.h"
#include "cpu/device.h"

#define OP(name) [DLT_OP_##name] = dlt_cpu_##name,
const DltKernel *const *const dlt_cpu_plain[DLT_N_OP] = {
#include "ops/ops.def"
};
#undef OP

static const DltKernel *const no_kernels[] = {NULL};

static int append(const DltKernel **list, int n, const DltKernel *const *from)
{
    for (; *from != NULL; from++)
        list[n++] = *from;
    return n;
}

static const DltKernel *const *merge(DltArena *arena, const DltKernel *const *fast,
                                     const DltKernel *const *plain)
{
    enum { ROOM = 32 };
    const DltKernel **list = DLT_NEW_ARRAY(arena, ROOM, const DltKernel *);
    int n = append(list, append(list, 0, fast), plain);
    if (plain[0] != NULL) list[n++] = &dlt_cpu_widen; /* a view has no kernel at all */
    DLT_BUG_ON(n >= ROOM);
    return list;
}

/* Opens the plug-in where there is one; says in one line why there is none. */
static DltStatus open_plugin(DltDevice *dev, const DltDeviceOptions *o, int n_thread,
                             const DltCpuPlugin **plugin, DltErr *err)
{
    DltWhy why = {""};
    DLT_TRY(dlt_cpu_plugin_find(dev->arena, o->plugin_folder, plugin, &why, err));
    if (*plugin != NULL && !(*plugin)->open(dev->arena, n_thread, &dev->team, &dev->info, &why)) {
        *plugin = NULL;
    }
    if (*plugin == NULL) dlt_log("cpu: plain kernels, several times slower: %s", why.text);
    return DLT_OK;
}

static void device_close(DltDevice *dev)
{
    if (dev == NULL) return;
    dlt_team_free(dev->own_team);
    dev->own_team = NULL;
    for (DltRegion *r = dev->regions; r != NULL; r = r->next) {
        dlt_sys_pages_free(r->ptr, r->bytes);
        r->ptr = NULL;
    }
}

static DltStatus device_open(DltArena *arena, const DltDeviceOptions *o, DltDevice **out,
                             DltErr *err)
{
    int n_thread = o->n_thread > 0 ? o->n_thread : dlt_sys_n_cpu();
    const DltCpuPlugin *plugin;
    DltDevice *dev = DLT_NEW(arena, DltDevice);
    dev->arena = arena;
    dev->strict = !o->tf32;
    dlt_cpu_machine(&dev->info);
    DLT_TRY(open_plugin(dev, o, n_thread, &plugin, err));
    if (plugin == NULL) {
        snprintf(dev->info.library, sizeof dev->info.library, "plain kernels, %d threads",
                 n_thread);
    }
    if (dev->team == NULL) {
        DLT_TRY(dlt_team_new(arena, n_thread, &dev->own_team, err));
        dev->team = dev->own_team;
    }
    dev->stream = (DltStream){dev, dev->team};
    for (int kind = 0; kind < DLT_N_OP; kind++) {
        const DltKernel *const *fast = plugin != NULL ? plugin->kernels(kind) : NULL;
        dev->kernels[kind] = merge(arena, fast != NULL ? fast : no_kernels, dlt_cpu_plain[kind]);
    }
    *out = dev;
    return DLT_OK;
}

int dlt_cpu_threads(const DltDevice *dev)
{
    return dev->team->n_thread;
}

bool dlt_cpu_is_strict(const DltDevice *dev)
{
    return dev->strict;
}

static void device_info(DltDevice *dev, DltDeviceInfo *info)
{
    *info = dev->info;
}

static const DltKernel *const *device_kernels(const DltDevice *dev, int kind)
{
    return dev->kernels[kind];
}

static DltStatus device_alloc(DltDevice *dev, size_t bytes, void **ptr, DltErr *err)
{
    size_t over = bytes % DLT_HUGE_PAGE, whole = bytes + (over > 0 ? DLT_HUGE_PAGE - over : 0);
    *ptr = whole >= bytes ? dlt_sys_pages(whole) : NULL;
    if (*ptr == NULL) {
        return dlt_err(err, DLT_E_RESOURCE, "cpu: the system refused %zu MiB of memory",
                       (bytes >> 20) + 1);
    }
    DltRegion *r = DLT_NEW(dev->arena, DltRegion);
    *r = (DltRegion){*ptr, whole, dev->regions};
    dev->regions = r;
    return DLT_OK;
}

static void device_release(DltDevice *dev, void *ptr)
{
    for (DltRegion *r = dev->regions; r != NULL && ptr != NULL; r = r->next) {
        if (r->ptr != ptr) continue;
        dlt_sys_pages_free(r->ptr, r->bytes);
        r->ptr = NULL;
        return;
    }
}

static void *device_host_alloc(DltDevice *dev, size_t bytes)
{
    (void)dev;
    return dlt_sys_alloc(bytes);
}

static void device_host_release(DltDevice *dev, void *ptr)
{
    (void)dev;
    dlt_sys_free(ptr);
}

static DltStream *device_stream(DltDevice *dev, int lane)
{
    DLT_BUG_ON(lane != 0);
    return &dev->stream;
}

static DltStatus copy_bytes(DltStream *s, void *dst, const void *src, size_t bytes, DltErr *err)
{
    (void)s;
    (void)err;
    memcpy(dst, src, bytes);
    return DLT_OK;
}

static DltStatus zero_bytes(DltStream *s, void *dst, size_t bytes, DltErr *err)
{
    (void)s;
    (void)err;
    memset(dst, 0, bytes);
    return DLT_OK;
}

static DltStatus device_sync(DltDevice *dev, DltErr *err)
{
    (void)dev;
    (void)err;
    return DLT_OK;
}

const DltBackend dlt_backend_cpu = {
    .abi = DLT_BACKEND_ABI,
    .name = "cpu",
    .align = 64,
    .n_lane = 1,
    .open = device_open,
    .close = device_close,
    .info = device_info,
    .kernels = device_kernels,
    .alloc = device_alloc,
    .release = device_release,
    .host_alloc = device_host_alloc,
    .host_release = device_host_release,
    .stream = device_stream,
    .upload = copy_bytes,
    .download = copy_bytes,
    .zero = zero_bytes,
    .sync = device_sync,
};
