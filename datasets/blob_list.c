/* The files behind a name with wildcards, in order of name. */
#include "base/file.h"
#include "base/sys.h"
#include "datasets/blob.h"

typedef struct PathList {
    DltArena *arena;
    int n;
    const char **path; /* room doubles at powers of two */
} PathList;

static void add_path(void *ctx, const char *path)
{
    PathList *l = ctx;
    if ((l->n & (l->n - 1)) == 0) {
        const char **more = DLT_NEW_ARRAY(l->arena, l->n > 0 ? 2 * l->n : 1, const char *);
        for (int i = 0; i < l->n; i++)
            more[i] = l->path[i];
        l->path = more;
    }
    l->path[l->n++] = dlt_arena_str(l->arena, path);
}

DltStatus dlt_blob_list(DltArena *arena, const char *folder, const char *name, DltMark at,
                        DltBlob ***blob, int *n, DltErr *err)
{
    PathList list = {.arena = arena};
    const char *pattern = dlt_path_join(arena, folder, name);
    if (strpbrk(name, "*?[") == NULL)
        add_path(&list, pattern);
    else if (dlt_sys_glob(pattern, add_path, &list) < 0)
        return dlt_err_at(err, DLT_E_DATA, at,
                          "cannot list the folder of %s: no such folder, or not "
                          "readable",
                          dlt_path_absolute(arena, pattern));
    if (list.n == 0)
        return dlt_err_at(err, DLT_E_DATA, at, "no file matches %s",
                          dlt_path_absolute(arena, pattern));
    *n = list.n;
    *blob = DLT_NEW_ARRAY(arena, list.n, DltBlob *);
    for (int i = 0; i < list.n; i++)
        DLT_TRY(dlt_blob_open(arena, ".", list.path[i], at, &(*blob)[i], err));
    return DLT_OK;
}
