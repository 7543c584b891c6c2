/* Finds and opens dltrain-dnnl.so, the fast kernels. It lies next to the program or in
 * ../lib/dltrain; without it everything works, slower. The library stays open until the process
 * ends: threads and handles of the vendor's library may outlive the device. */
#include "base/file.h"
#include "base/log.h"
#include "base/sys.h"
#include "cpu/device.h"
#include "cpu/plain.h"
#include <dlfcn.h>
#include <fcntl.h>

static const char file_name[] = "dltrain-dnnl.so";

static bool is_file(const char *path)
{
    int fd = dlt_sys_open(path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) return false;
    bool regular = dlt_sys_file_bytes(fd) >= 0;
    return dlt_sys_close(fd) == 0 && regular;
}

static const char *find_file(DltArena *arena, const char *folder)
{
    const char *beside = dlt_path_join(arena, folder, file_name);
    if (is_file(beside)) return beside;
    const char *library =
        dlt_path_join(arena, folder, dlt_arena_printf(arena, "../lib/dltrain/%s", file_name));
    return is_file(library) ? library : NULL;
}

DltStatus dlt_cpu_plugin_find(DltArena *arena, const char *plugin_folder,
                              const DltCpuPlugin **plugin, DltWhy *why_not, DltErr *err)
{
    const char *wish = getenv("DLTRAIN_PLUGIN");
    *plugin = NULL;
    if (wish != NULL && strcmp(wish, "none") != 0) {
        return dlt_err(err, DLT_E_CONFIG,
                       "environment variable DLTRAIN_PLUGIN is '%s'; known: none (or unset it)",
                       wish);
    }
    if (wish != NULL) {
        dlt_cpu_refuse(why_not, "switched off by DLTRAIN_PLUGIN=none");
        return DLT_OK;
    }
    const char *path = plugin_folder != NULL ? find_file(arena, plugin_folder) : NULL;
    if (path == NULL) {
        dlt_cpu_refuse(why_not,
                       "%s is neither beside the program nor in ../lib/dltrain; install "
                       "libdnnl-dev and run make",
                       file_name);
        return DLT_OK;
    }
    /* OpenMP threads of the plug-in spin briefly between kernels (about 10 us) instead of libgomp's default,
     * which starves other processes; read when the library is loaded, the user's own value wins. */
    if (setenv("GOMP_SPINCOUNT", "1000", 0) != 0) dlt_log_debug("GOMP_SPINCOUNT could not be set");
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        dlt_cpu_refuse(why_not, "%s", dlerror());
        return DLT_OK;
    }
    const DltCpuPlugin *found = dlsym(library, "dlt_cpu_plugin");
    if (found == NULL) {
        return dlt_err(err, DLT_E_DEVICE, "%s is no plug-in of dltrain: it has no dlt_cpu_plugin",
                       path);
    }
    if (found->abi != DLT_BACKEND_ABI) {
        return dlt_err(
            err, DLT_E_DEVICE,
            "%s was built for plug-in interface %d, this program has %d; build both from "
            "one source, or remove the file",
            path, found->abi, DLT_BACKEND_ABI);
    }
    *plugin = found;
    return DLT_OK;
}
