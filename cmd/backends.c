/* The backends of this program: the CPU linked in, CUDA from its plug-in when it is wanted. */
#include "api/backend.h"
#include "base/log.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

/* Opens dltrain-cuda.so next to the program, then in ../lib/dltrain. NULL with the reason in `why`.
 */
static const DltBackend *open_cuda(char *why, size_t size)
{
    static const char *const place[] = {"", "../lib/dltrain/", NULL};
    char exe[4096], path[5000];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    exe[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(exe, '/');
    if (slash) slash[1] = '\0';
    for (int i = 0; place[i]; i++) {
        snprintf(path, sizeof path, "%s%sdltrain-cuda.so", exe, place[i]);
        if (access(path, R_OK) != 0) continue;
        void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!lib) {
            snprintf(why, size, "the plug-in %s does not load: %s", path, dlerror());
            return NULL;
        }
        const DltBackend *b = (const DltBackend *)dlsym(lib, "dlt_backend_cuda_plugin");
        if (b && b->abi == DLT_BACKEND_ABI) return b;
        snprintf(why, size, "the plug-in %s is of another version of dltrain", path);
        return NULL;
    }
    snprintf(why, size,
             "the plug-in dltrain-cuda.so is not next to the program; build it with "
             "`make` on a machine with CUDA's nvcc");
    return NULL;
}

/* Why `auto` need not look for a GPU, NULL: it may be there. Told where the choice has a place (once a run: the
 * warm-up before has none). */
static const char *no_card(DltMark at)
{
    const char *shown = getenv("CUDA_VISIBLE_DEVICES");
    if (access("/dev/nvidiactl", F_OK) != 0)
        return "no NVIDIA driver is loaded (/dev/nvidiactl is missing)";
    if (shown == NULL || (shown[0] != '\0' && shown[0] != '-')) return NULL;
    if (at.file != NULL) dlt_log("cpu: CUDA_VISIBLE_DEVICES shows no GPU");
    return "CUDA_VISIBLE_DEVICES shows no GPU";
}

DltStatus dlt_backend_find(const char *name, DltMark at, const DltBackend **backend, DltErr *err)
{
    char why[6000];
    *backend = &dlt_backend_cpu;
    if (strcmp(name, "cpu") == 0) return DLT_OK;
    bool wanted = strncmp(name, "cuda", 4) == 0;
    if (!wanted && strcmp(name, "auto") != 0)
        return dlt_err_at(err, DLT_E_CONFIG, at, "device '%s': known: auto, cpu, cuda, cuda:N",
                          name);
    const char *none = wanted ? NULL : no_card(at);
    const DltBackend *cuda = none == NULL ? open_cuda(why, sizeof why) : NULL;
    if (none != NULL) snprintf(why, sizeof why, "%s", none);
    if (cuda) {
        *backend = cuda;
        return DLT_OK;
    }
    if (wanted) return dlt_err_at(err, DLT_E_DEVICE, at, "device '%s': %s", name, why);
    dlt_log_debug("device auto: cpu, because %s", why);
    return DLT_OK;
}
