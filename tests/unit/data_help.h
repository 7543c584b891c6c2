/* What the data tests share: an arena and a list of reports for each test, opening a set from its
 * options as written in YAML, and bounds on memory. */
#ifndef DATA_HELP_H
#define DATA_HELP_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/sys.h"
#include "datasets/reader.h"
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>
#include <zlib.h>

typedef struct Help {
    DltArena *arena;
    DltErr err;
    DltBad *bad; /* what open may leave out, NULL: nothing */
} Help;

static inline int help_setup(void **state)
{
    DltArena *arena = dlt_arena_new();
    Help *h = DLT_NEW(arena, Help);
    *h = (Help){.arena = arena};
    dlt_err_init(&h->err);
    *state = h;
    return 0;
}

static inline int help_teardown(void **state)
{
    dlt_arena_free(((Help *)*state)->arena);
    return 0;
}

#define help_test(f) cmocka_unit_test_setup_teardown(f, help_setup, help_teardown)

/* Everything must have gone well; prints the reports otherwise. */
static inline void help_ok(Help *h, DltStatus status)
{
    if (status != DLT_OK) dlt_err_print(&h->err, stderr);
    assert_int_equal(status, DLT_OK);
    assert_int_equal(h->err.n, 0);
}

/* One report with this status whose place and text together contain `part`. Reports start anew. */
static inline void help_refused(Help *h, DltStatus got, DltStatus want, const char *part)
{
    if (got != want || h->err.n != 1) dlt_err_print(&h->err, stderr);
    assert_int_equal(got, want);
    assert_int_equal(h->err.n, 1);
    const DltReport *r = &h->err.report[0];
    char text[2 * DLT_ERR_TEXT];
    snprintf(text, sizeof text, "%s: %s", r->at.file != NULL ? r->at.file : "", r->text);
    if (strstr(text, part) == NULL) fail_msg("'%s' is not in '%s'", part, text);
    assert_int_equal(r->status, want);
    dlt_err_init(&h->err);
}

/* Options of a format from YAML text. */
static inline DltOpts *help_opts(Help *h, const char *format, const char *yaml)
{
    const DltDatasetDef *def = dlt_dataset_find(format);
    DltYaml *tree = NULL;
    DltOpts *o = DLT_NEW(h->arena, DltOpts);
    assert_non_null(def);
    help_ok(h, dlt_yaml_parse(h->arena, "test.yaml", yaml, (int64_t)strlen(yaml), &tree, &h->err));
    help_ok(h, dlt_schema_read(h->arena, def->fields, def->opt_size, tree,
                               (DltWhere){format, tree->at}, o, &h->err));
    return o;
}

static inline DltStatus help_open_like(Help *h, const char *format, const char *yaml,
                                       const DltDataset *like, DltDataset *ds)
{
    const DltDatasetDef *def = dlt_dataset_find(format);
    const DltOpts *o = help_opts(h, format, yaml);
    if (def->check != NULL) DLT_TRY(def->check(o, &h->err));
    ds->bad = h->bad;
    DltStatus status = def->open(h->arena, o, ".", like, ds, &h->err);
    if (status == DLT_OK && def->load != NULL) status = def->load(h->arena, ds, &h->err);
    return status;
}

static inline DltStatus help_open(Help *h, const char *format, const char *yaml, DltDataset *ds)
{
    return help_open_like(h, format, yaml, NULL, ds);
}

/* One sample, which must be readable. */
static inline void help_read(Help *h, const DltDataset *ds, int64_t id, void *x, void *y)
{
    help_ok(h, ds->def->read(ds, &id, 1, x, y, &h->err));
}

/* A file in the folder of temporary files. */
static inline const char *help_write(const char *name, const void *bytes, int64_t n)
{
    static char path[4][200];
    static int next;
    char *to = path[next++ % 4];
    snprintf(to, sizeof path[0], "/tmp/dlt_data_%ld_%s", (long)getpid(), name);
    int fd = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, (size_t)n), n);
    close(fd);
    return to;
}

static inline uint8_t *help_file(Help *h, const char *path, int64_t *n)
{
    char *bytes = NULL;
    help_ok(h, dlt_file_read(h->arena, path, (DltFileRule){1 << 28, DLT_E_DATA, DLT_NO_MARK},
                             &bytes, n, &h->err));
    return (uint8_t *)bytes;
}

/* gzip of bytes; mem is the arena's. */
static inline uint8_t *help_gzip(Help *h, const void *bytes, int64_t n, int64_t *n_out)
{
    enum { GZIP = 15 + 16 };
    z_stream z = {0};
    int64_t room = n + n / 100 + 200;
    uint8_t *out = DLT_NEW_ARRAY(h->arena, room, uint8_t);
    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, GZIP, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (Bytef *)(uintptr_t)bytes;
    z.avail_in = (uInt)n;
    z.next_out = out;
    z.avail_out = (uInt)room;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    *n_out = room - z.avail_out;
    deflateEnd(&z);
    return out;
}

/* No more than `bytes` of new memory from here on (T-SIZE); nothing under the address sanitizer, which
 * needs its own. */
static inline void help_bound_memory(int64_t bytes)
{
#ifndef __SANITIZE_ADDRESS__
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%ld", &pages), 1);
    fclose(f);
    struct rlimit limit = {.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};
    if (bytes > 0) limit.rlim_cur = (rlim_t)(pages * sysconf(_SC_PAGESIZE) + bytes);
    assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
#else
    (void)bytes;
#endif
}

/* Values around every power of two, and their neighbours: what a lying header says. */
enum { HELP_N_LIES = 64 * 3 };
static inline uint64_t help_lie(int i)
{
    return ((uint64_t)1 << i / 3) + (uint64_t)(i % 3) - 1;
}

#endif
