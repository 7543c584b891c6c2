/* The CPU device: chunks and threads, memory, kernel lists, the plug-in's switch; and that results
 * do not depend on the number of threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/sys.h"
#include "cpu/device.h"
#include "tests/cases/cases.h"
#include <stdatomic.h>
#include <string.h>

static DltDevice *open_device(DltArena *arena, int n_thread)
{
    return case_cpu_device(arena, n_thread);
}

/* ---- chunks -------------------------------------------------------------------------------- */

enum { ITEMS = 1000 };

typedef struct Visits {
    atomic_int count[ITEMS];
    atomic_int off_grid; /* chunks that do not begin at a multiple of the grain */
    int64_t n, grain;
} Visits;

static void visit(void *ctx, int64_t begin, int64_t end)
{
    Visits *v = ctx;
    bool whole = end - begin == v->grain || end == v->n;
    if (begin % v->grain != 0 || !whole) v->off_grid++;
    for (int64_t i = begin; i < end; i++)
        v->count[i]++;
}

typedef void (*Loop)(DltStream *s, int64_t n, int64_t grain, DltTask task, void *ctx);

static void check_chunks(DltDevice *dev, int64_t n, int64_t grain)
{
    static const Loop loop[] = {dlt_pool_for, dlt_pool_back};
    static Visits v;
    for (int k = 0; k < 2; k++) {
        memset(&v, 0, sizeof v);
        v.n = n;
        v.grain = grain;
        loop[k](dlt_backend_cpu.stream(dev, 0), n, grain, visit, &v);
        for (int64_t i = 0; i < ITEMS; i++)
            assert_int_equal(v.count[i], i < n ? 1 : 0);
        assert_int_equal(v.off_grid, 0);
    }
}

static void note_begin(void *ctx, int64_t begin, int64_t end)
{
    int64_t **at = ctx;
    (void)end;
    *(*at)++ = begin;
}

/* One thread takes the chunks in order, or from the last to the first. */
static void order(void **state)
{
    (void)state;
    DltArena *arena = dlt_arena_new();
    DltDevice *dev = open_device(arena, 1);
    int64_t begins[6], *at = begins;
    dlt_pool_for(dlt_backend_cpu.stream(dev, 0), 5, 2, note_begin, &at);
    dlt_pool_back(dlt_backend_cpu.stream(dev, 0), 5, 2, note_begin, &at);
    assert_memory_equal(begins, ((int64_t[]){0, 2, 4, 4, 2, 0}), sizeof begins);
    dlt_backend_cpu.close(dev);
    dlt_arena_free(arena);
}

/* Every item once, in chunks fixed by (n, grain), for any number of threads; also many small jobs in
 * a row, with workers that have gone to sleep in between. */
static void chunks_cover(void **state)
{
    (void)state;
    for (int n_thread = 1; n_thread <= 5; n_thread++) {
        DltArena *arena = dlt_arena_new();
        DltDevice *dev = open_device(arena, n_thread);
        assert_int_equal(dlt_pool_threads(dlt_backend_cpu.stream(dev, 0)), n_thread);
        for (int64_t n = 0; n <= ITEMS; n = n * 3 + 1) {
            for (int64_t grain = 1; grain <= 2 * ITEMS; grain *= 7)
                check_chunks(dev, n, grain);
        }
        for (int i = 0; i < 300; i++) {
            check_chunks(dev, 40, 3);
            if (i % 100 == 0) nanosleep(&(struct timespec){0, 2000000}, NULL);
        }
        dlt_backend_cpu.close(dev);
        dlt_backend_cpu.close(dev); /* twice is allowed */
        dlt_arena_free(arena);
    }
}

/* ---- thread independence ------------------------------------------------------------------- */

static void copy_inputs(const CaseGraph *g, const CaseValues *from, CaseValues *to)
{
    for (int i = 0; i < g->graph->n_tensor; i++) {
        const DltTensor *t = g->graph->tensor[i];
        if (t->view_of == NULL) memcpy(to->at[i], from->at[i], (size_t)dlt_tensor_bytes(t));
    }
}

/* Runs a graph's nodes, each through the first kernel that accepts it. */
static void run_graph(const CaseGraph *g, int n_thread, CaseValues *v)
{
    DltArena *arena = dlt_arena_new();
    DltDevice *dev = open_device(arena, n_thread);
    for (int i = 0; i < g->graph->n_node; i++) {
        void *in[DLT_MAX_IN], *out[DLT_MAX_OUT];
        const DltNode *n = g->graph->node[i];
        const DltKernel *const *k = dlt_backend_cpu.kernels(dev, n->kind);
        if (n->op->view) continue;
        case_operands(v, n, in, out);
        while ((*k)->accepts != NULL && !(*k)->accepts(n, dev, NULL))
            k++;
        case_run(dev, *k, n, in, out);
    }
    dlt_backend_cpu.close(dev);
    dlt_arena_free(arena);
}

/* Every tensor of a large row's graph has the same bits with 1, 2 and 3 threads. */
static void threads_agree(void **state)
{
    const Case *c = *state;
    CaseGraph g;
    CaseValues inputs, want, got;
    case_build(c, DLT_F32, true, &g);
    case_values_new(&g, &inputs);
    case_values_new(&g, &want);
    for (int i = 0; i < g.graph->n_tensor; i++) {
        const DltTensor *t = g.graph->tensor[i];
        if (t->role == DLT_INPUT && t->view_of == NULL) case_fill(c, &g, t, inputs.at[i]);
    }
    copy_inputs(&g, &inputs, &want);
    run_graph(&g, 1, &want);
    for (int n_thread = 2; n_thread <= 3; n_thread++) {
        case_values_new(&g, &got);
        copy_inputs(&g, &inputs, &got);
        run_graph(&g, n_thread, &got);
        for (int i = 0; i < want.n; i++) {
            const DltTensor *t = g.graph->tensor[i];
            if (want.at[i] == NULL) continue;
            if (memcmp(got.at[i], want.at[i], (size_t)dlt_tensor_bytes(t)) != 0) {
                fail_msg("%s differs with %d threads", t->name, n_thread);
            }
        }
        case_values_free(&got);
    }
    case_values_free(&inputs);
    case_values_free(&want);
    dlt_arena_free(g.arena);
}

/* ---- device -------------------------------------------------------------------------------- */

static void memory(void **state)
{
    (void)state;
    enum { BYTES = 3000001 };
    static const char zero[BYTES];
    DltErr err;
    DltArena *arena = dlt_arena_new();
    DltDevice *dev = open_device(arena, 1);
    DltStream *s = dlt_backend_cpu.stream(dev, 0);
    void *a, *b;
    char *host = dlt_backend_cpu.host_alloc(dev, BYTES);
    dlt_err_init(&err);
    assert_int_equal(dlt_backend_cpu.alloc(dev, BYTES, &a, &err), DLT_OK);
    assert_int_equal(dlt_backend_cpu.alloc(dev, 1, &b, &err), DLT_OK);
    assert_int_equal((uintptr_t)a % dlt_backend_cpu.align, 0);
    assert_memory_equal(a, zero, BYTES);
    memset(host, 7, BYTES);
    assert_int_equal(dlt_backend_cpu.upload(s, a, host, BYTES, &err), DLT_OK);
    assert_int_equal(dlt_backend_cpu.zero(s, a, 5, &err), DLT_OK);
    assert_int_equal(dlt_backend_cpu.download(s, host, a, BYTES, &err), DLT_OK);
    assert_int_equal(dlt_backend_cpu.sync(dev, &err), DLT_OK);
    assert_true(host[4] == 0 && host[5] == 7 && host[BYTES - 1] == 7);
    dlt_backend_cpu.release(dev, a);
    dlt_backend_cpu.release(dev, NULL);
    assert_int_equal(dlt_backend_cpu.alloc(dev, SIZE_MAX / 2, &a, &err), DLT_E_RESOURCE);
    assert_int_equal(err.n, 1);
    dlt_backend_cpu.host_release(dev, host);
    dlt_backend_cpu.close(dev); /* frees b */
    dlt_arena_free(arena);
}

static void lists(void **state)
{
    (void)state;
    DltArena *arena = dlt_arena_new();
    DltDevice *dev = open_device(arena, 2);
    DltDeviceInfo info;
    dlt_backend_cpu.info(dev, &info);
    assert_true(info.name[0] != '\0' && info.memory_bytes > 0 && info.free_bytes > 0);
    assert_true(info.free_bytes <= info.memory_bytes);
    assert_string_equal(info.library, "plain kernels, 2 threads");
    for (int kind = 0; kind < DLT_N_OP; kind++) {
        const DltKernel *const *list = dlt_backend_cpu.kernels(dev, kind);
        int n = 0;
        while (list[n] != NULL)
            n++;
        if (dlt_ops[kind]->view) {
            assert_int_equal(n, 0);
            continue;
        }
        assert_true(n >= 2);
        assert_string_equal(list[n - 1]->name, "any.cpu.widen");
        assert_non_null(strstr(list[n - 2]->name, dlt_ops[kind]->name));
        assert_non_null(strstr(list[n - 2]->name, ".cpu.plain"));
    }
    dlt_backend_cpu.close(dev);
    dlt_arena_free(arena);
}

/* A folder without the file is no error; an unknown value of the variable is one. */
static void plugin_switch(void **state)
{
    (void)state;
    DltErr err;
    DltArena *arena = dlt_arena_new();
    DltDeviceOptions o = {.n_thread = 1, .plugin_folder = "/nonexistent"};
    DltDevice *dev = NULL;
    dlt_err_init(&err);
    assert_int_equal(dlt_backend_cpu.open(arena, &o, &dev, &err), DLT_OK);
    dlt_backend_cpu.close(dev);
    setenv("DLTRAIN_PLUGIN", "fast", 1);
    assert_int_equal(dlt_backend_cpu.open(arena, &o, &dev, &err), DLT_E_CONFIG);
    assert_string_equal(err.report[0].text,
                        "environment variable DLTRAIN_PLUGIN is 'fast'; known: none (or unset it)");
    unsetenv("DLTRAIN_PLUGIN");
    dlt_backend_cpu.close(NULL);
    dlt_arena_free(arena);
}

/* The k-th thread does not start (fault build only): RESOURCE, and the earlier ones end. */
static void thread_fails(void **state)
{
    (void)state;
    for (int k = 1; k <= 3; k++) {
        DltErr err;
        char fault[32];
        DltArena *arena = dlt_arena_new();
        DltDeviceOptions o = {.n_thread = 4};
        DltDevice *dev = NULL;
        dlt_err_init(&err);
        snprintf(fault, sizeof fault, "thread:%d:EAGAIN:once", k);
        if (!dlt_sys_fault_set(fault)) {
            dlt_arena_free(arena);
            skip();
        }
        assert_int_equal(dlt_backend_cpu.open(arena, &o, &dev, &err), DLT_E_RESOURCE);
        assert_non_null(strstr(err.report[0].text, "of 4; set fewer threads"));
        assert_true(dlt_sys_fault_set(""));
        dlt_arena_free(arena);
    }
}

int main(void)
{
    enum { FIRST = 5, MAX = 128 };
    static char names[MAX][256];
    struct CMUnitTest tests[MAX] = {
        cmocka_unit_test(order), cmocka_unit_test(chunks_cover),  cmocka_unit_test(memory),
        cmocka_unit_test(lists), cmocka_unit_test(plugin_switch), cmocka_unit_test(thread_fails),
    };
    int n = FIRST;
    for (int i = 0; i < case_large.n; i++, n++) {
        DLT_BUG_ON(n == MAX);
        size_t at = (size_t)snprintf(names[n], sizeof names[n], "threads agree on ");
        case_name(&case_large.row[i], names[n] + at, sizeof names[n] - at);
        tests[n] =
            (struct CMUnitTest){names[n], threads_agree, NULL, NULL, (void *)&case_large.row[i]};
    }
    return _cmocka_run_group_tests("cpu device", tests, (size_t)n, NULL, NULL);
}
