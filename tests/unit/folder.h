/* A folder for tests of files, and one file in it. */
#ifndef DLT_TEST_FOLDER_H
#define DLT_TEST_FOLDER_H

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"

typedef struct Folder {
    DltArena *arena;
    DltErr err;
    char *path, *file; /* the file's name; it need not exist */
} Folder;

static inline void write_plain(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

static inline Folder *folder_new(const char *name, const char *file)
{
    DltArena *arena = dlt_arena_new();
    Folder *f = DLT_NEW(arena, Folder);
    f->arena = arena;
    f->path = dlt_arena_printf(arena, "/tmp/dlt-%s-XXXXXX", name);
    assert_non_null(mkdtemp(f->path));
    f->file = dlt_path_join(arena, f->path, file);
    dlt_err_init(&f->err);
    return f;
}

/* Not 0 when more was left in it than the file. */
static inline int folder_remove(Folder *f)
{
    unlink(f->file);
    int failed = rmdir(f->path);
    dlt_arena_free(f->arena);
    return failed;
}

static inline int n_entries(const char *path)
{
    int n = -2; /* . and .. */
    DIR *folder = opendir(path);
    assert_non_null(folder);
    while (readdir(folder) != NULL)
        n++;
    closedir(folder);
    return n;
}

#endif
