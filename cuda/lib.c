/* dlopen and dlsym with reasons. */
#include "cuda/lib.h"
#include <dlfcn.h>

void *dlt_cuda_library(const char *name, int major, DltWhy *why_not)
{
    static const char *const folder[] = {"", "/usr/local/cuda/lib64/", "/usr/lib/x86_64-linux-gnu/",
                                         "/usr/local/lib/"};
    char reason[sizeof why_not->text] = "";
    for (size_t i = 0; i < sizeof folder / sizeof *folder; i++) {
        char path[256];
        snprintf(path, sizeof path, "%s%s.so.%d", folder[i], name, major);
        void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (library) return library;
        const char *why = dlerror();
        if (i == 0 && why) snprintf(reason, sizeof reason, "%s", why);
    }
    dlt_cuda_refuse(why_not, "%s", reason[0] ? reason : "not found");
    return NULL;
}

bool dlt_cuda_symbol(void *library, const char *name, void *fn, DltWhy *why_not)
{
    void *symbol = dlsym(library, name);
    if (!symbol) return dlt_cuda_refuse(why_not, "the library has no %s", name);
    memcpy(fn, &symbol, sizeof symbol);
    return true;
}
