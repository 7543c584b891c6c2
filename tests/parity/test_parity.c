/* Every kernel of a backend against the plain CPU kernel of the same op: for each row of tests/cases, each node of its
 * graph (the op and its gradient rule's nodes), each element type and layout that the node may be given, and each
 * kernel of the list that accepts it. Both sides get equal inputs (rounded to the narrow type first). Also checked:
 * operands that no one may write, the memory around outputs, and the in-place forms that the op allows.
 * usage: test_parity [--backend cpu|cuda] [--only TEXT] [--without .KIND.KIND] [--shard I/N[+FROM]]
 * Without --backend: both. --only: tests whose name contains TEXT. --without: no kernels whose names
 * end so. --shard: every N-th, from I on, without the first FROM. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/sys.h"
#include "cpu/plain.h"
#include "ops/matmul.h"
#include "tests/cases/cases.h"
#include <inttypes.h>
#include <libgen.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

enum {
    OPERANDS = DLT_MAX_IN + DLT_MAX_OUT,
    GUARD = 256, /* bytes around each operand that nobody may write */
    REGION = 96 << 20
};

/* What one test compares: a kernel on a node whose tensors have these types and layouts. */
typedef struct Variant {
    const Case *c;
    int node; /* of the row's graph */
    DltDtype low;
    DltLayout layout;
    bool filters; /* rank-4 weights and their gradients have the layout too */
    int kernel;   /* of the backend's list */
} Variant;

typedef struct Driver {
    const DltBackend *backend;
    DltArena *arena;
    DltDevice *dev, *reference; /* under test; plain CPU */
    void *region;               /* of the device under test */
    char *host;                 /* as large */
} Driver;
static Driver driver;

static const DltDtype types[] = {DLT_F32, DLT_BF16, DLT_F16};
static const DltLayout layouts[] = {DLT_PLAIN, DLT_NHWC, DLT_NCHW8C, DLT_NCHW16C, DLT_NHWC};
enum { FILTERS_TOO = 4 }; /* the last: for filters too, which a CPU keeps row-major */
static const char *const layout_names[] = {"", " nhwc", " nchw8c", " nchw16c"};

static DltTensor **slot(DltNode *n, int i)
{
    return i < DLT_MAX_IN ? &n->in[i] : &n->out[i - DLT_MAX_IN];
}

static void **pointer(void **in, void **out, int i)
{
    return i < DLT_MAX_IN ? &in[i] : &out[i - DLT_MAX_IN];
}

/* ---- the node under test ------------------------------------------------------------------- */

/* What the layout applies to: activations of the row's graph, filters where the variant says so. */
static bool has_layout(const Variant *v, const CaseGraph *g, const DltTensor *t)
{
    for (int i = 0; i < DLT_MAX_IN && t->shape.rank == 4; i++) {
        CaseUse use = v->c->in[i].use;
        if (g->in[i] == t || g->din[i] == t)
            return use == ACTIVATION || (v->filters && use == WEIGHT);
    }
    return t->shape.rank == 4;
}

/* Copies the node with copies of its tensors, images in the layout, and sums over rows, which are a weight's gradient,
 * in f32 (on a CPU); false when the layout does not fit or changes nothing. */
static bool lay_out(const Variant *v, const CaseGraph *g, DltNode *n, DltTensor tensors[OPERANDS])
{
    bool any = false, fits = true;
    *n = *g->graph->node[v->node];
    for (int i = 0; i < OPERANDS; i++) {
        DltTensor *t = *slot(n, i);
        if (t == NULL) continue;
        tensors[i] = *t;
        *slot(n, i) = &tensors[i];
        if (v->layout == DLT_PLAIN || !has_layout(v, g, t)) continue;
        int64_t block = v->layout == DLT_NCHW8C ? 8 : v->layout == DLT_NCHW16C ? 16 : 1;
        any = true;
        fits = fits && t->shape.dim[1] % block == 0;
        tensors[i].layout = v->layout;
    }
    bool sums_rows = n->kind == DLT_OP_matmul && ((const DltMatmul *)n->attr)->ta;
    if (sums_rows && driver.backend == &dlt_backend_cpu) tensors[DLT_MAX_IN].dtype = DLT_F32;
    if (n->kind == DLT_OP_reorder) {
        tensors[DLT_MAX_IN].layout = *(const DltLayout *)n->attr;
        return fits && v->layout != *(const DltLayout *)n->attr;
    }
    return v->layout == DLT_PLAIN || (any && fits && n->op->any_layout);
}

static bool is_accepted(const DltKernel *k, const DltNode *n)
{
    DltWhy why = {""};
    return k->accepts != NULL ? k->accepts(n, driver.dev, &why) : dlt_kernel_accepts_plain(n, &why);
}

/* ---- values -------------------------------------------------------------------------------- */

/* Reference values of every tensor of the row's graph in f32: fills, then plain kernels. */
static void reference_values(const Case *c, const CaseGraph *g, int n_node, CaseValues *v)
{
    case_values_new(g, v);
    for (int i = 0; i < g->graph->n_tensor; i++) {
        const DltTensor *t = g->graph->tensor[i];
        if (t->role == DLT_INPUT && t->view_of == NULL) case_fill(c, g, t, v->at[i]);
    }
    for (int i = 0; i < n_node; i++) {
        void *in[DLT_MAX_IN], *out[DLT_MAX_OUT];
        const DltNode *n = g->graph->node[i];
        if (n->op->view) continue;
        case_operands(v, n, in, out);
        case_run(driver.reference, case_plain_kernel(driver.reference, n), n, in, out);
    }
}

static void convert(const DltTensor *from, const void *src, const DltTensor *to, void *dst)
{
    dlt_convert(dlt_backend_cpu.stream(driver.reference, 0), from, src, to, dst);
}

/* Inputs as both sides see them: rounded to the type under test. */
static void round_inputs(const DltNode *plain, const DltNode *tested, void *const in[])
{
    for (int i = 0; i < DLT_MAX_IN; i++) {
        const DltTensor *t = plain->in[i];
        if (t == NULL || t->dtype == tested->in[i]->dtype) continue;
        DltTensor flat = *tested->in[i];
        flat.layout = DLT_PLAIN;
        void *narrow = dlt_sys_alloc((size_t)dlt_tensor_bytes(&flat));
        convert(t, in[i], &flat, narrow);
        convert(&flat, narrow, t, in[i]);
        dlt_sys_free(narrow);
    }
}

static double bound_of(const Variant *v, DltDtype dtype)
{
    double low = v->c->nmse_low > 0 ? v->c->nmse_low : 1;
    if (dtype == DLT_BF16 || v->low == DLT_BF16) return CASE_NMSE_BF16 * low;
    if (dtype == DLT_F16 || v->low == DLT_F16) return CASE_NMSE_F16 * low;
    return v->c->nmse > 0 ? v->c->nmse : CASE_NMSE_F32;
}

static double nmse(const double *a, const double *b, int64_t n)
{
    double error = 0, power = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!(isfinite(a[i]) && isfinite(b[i])) && memcmp(&a[i], &b[i], sizeof *a) != 0) {
            return INFINITY;
        }
        error += (a[i] - b[i]) * (a[i] - b[i]);
        power += b[i] * b[i];
    }
    return power > 0 ? error / power : error;
}

/* got (as tested) against want (as the plain kernel wrote it): integers exactly, floats by NMSE. */
static void compare(const Variant *v, const DltTensor *tested, const void *got,
                    const DltTensor *plain, const void *want)
{
    int64_t n = dlt_shape_count(&plain->shape);
    DltTensor wide = *plain;
    wide.dtype = DLT_F64;
    double *a = dlt_sys_alloc((size_t)n * sizeof *a), *b = dlt_sys_alloc((size_t)n * sizeof *b);
    convert(tested, got, &wide, a);
    DltTensor flat = *plain;
    flat.layout = DLT_PLAIN;
    convert(&flat, want, &wide, b);
    double error = nmse(a, b, n);
    double bound = dlt_dtype_is_float(plain->dtype) ? bound_of(v, tested->dtype) : 0;
    if (!(error <= bound)) {
        print_error("%s: NMSE %.3g, bound %.3g\n", tested->name, error, bound);
        for (int64_t i = 0, shown = 0; i < n && shown < 5; i++) {
            if (fabs(a[i] - b[i]) <= 1e-6 * fabs(b[i])) continue;
            print_error("  [%lld] %.9g, plain %.9g\n", (long long)i, a[i], b[i]);
            shown++;
        }
    }
    dlt_sys_free(a);
    dlt_sys_free(b);
    assert_true(error <= bound);
}

/* ---- running the kernel under test --------------------------------------------------------- */

/* Where each operand lies in the region; operands that alias share an offset. */
typedef struct Placed {
    size_t at[OPERANDS], bytes[OPERANDS], used;
} Placed;

/* alias: input whose memory out[0] takes, or -1 */
static Placed place(DltNode *n, int alias)
{
    Placed p = {.used = GUARD};
    for (int i = 0; i < OPERANDS; i++) {
        if (*slot(n, i) == NULL) continue;
        p.bytes[i] = (size_t)dlt_tensor_bytes(*slot(n, i));
        if (alias >= 0 && i == DLT_MAX_IN) {
            p.at[i] = p.at[alias];
            continue;
        }
        p.at[i] = p.used;
        p.used += (p.bytes[i] + GUARD - 1) / GUARD * GUARD + GUARD;
    }
    DLT_BUG_ON(p.used > REGION / 2);
    return p;
}

static void must(DltStatus status, const DltErr *err)
{
    if (status != DLT_OK) dlt_err_print(err, stderr);
    assert_int_equal(status, DLT_OK);
}

/* Uploads the host image, runs the kernel, downloads the image. Scratch lies behind the operands. */
static void launch(const DltKernel *k, const DltNode *n, const Placed *p)
{
    DltErr err;
    void *in[DLT_MAX_IN] = {NULL}, *out[DLT_MAX_OUT] = {NULL};
    DltStream *s = driver.backend->stream(driver.dev, 0);
    DltPrep prep = {.arena = dlt_arena_new()};
    dlt_err_init(&err);
    for (int i = 0; i < OPERANDS; i++) {
        if (p->bytes[i] > 0) *pointer(in, out, i) = (char *)driver.region + p->at[i];
    }
    if (k->prepare != NULL) must(k->prepare(n, driver.dev, &prep, &err), &err);
    assert_true(p->used + prep.work_bytes + GUARD <= REGION);
    memset(driver.host + p->used, 0xFF, prep.work_bytes + GUARD);
    size_t bytes = p->used + (prep.work_bytes + GUARD - 1) / GUARD * GUARD + GUARD;
    must(driver.backend->upload(s, driver.region, driver.host, bytes, &err), &err);
    must(driver.backend->sync(driver.dev, &err), &err);
    DltCall call = {n, in, out, (char *)driver.region + p->used, prep.state, s};
    must(k->launch(&call, &err), &err);
    must(driver.backend->sync(driver.dev, &err), &err);
    must(driver.backend->download(s, driver.host, driver.region, bytes, &err), &err);
    must(driver.backend->sync(driver.dev, &err), &err);
    dlt_arena_free(prep.arena);
}

/* Every byte of the image that is no output and no mutated input is as it was. */
static void check_untouched(DltNode *n, const Placed *p, const char *before, int alias)
{
    for (int i = 0; i < DLT_MAX_IN; i++) {
        if (p->bytes[i] == 0 || (n->op->mutates >> i & 1) || i == alias) continue;
        if (memcmp(driver.host + p->at[i], before + p->at[i], p->bytes[i]) != 0) {
            fail_msg("input %d was written", i);
        }
    }
    for (int i = 0; i < OPERANDS; i++) {
        if (p->bytes[i] == 0) continue;
        for (size_t g = 0; g < GUARD; g++) {
            bool intact = (unsigned char)driver.host[p->at[i] - GUARD + g] == 0xFF &&
                          (unsigned char)driver.host[p->at[i] + p->bytes[i] + g] == 0xFF;
            if (!intact) fail_msg("memory around operand %d was written", i);
        }
    }
}

/* One run of the kernel, in place of input `alias` when that is >= 0. in, out: plain pointers before
 * (inputs) and after (expected) the plain run. */
static void run_once(const Variant *v, DltNode *tested, const DltNode *plain, void *const before[],
                     void *const expected[], int alias)
{
    const DltKernel *k = driver.backend->kernels(driver.dev, tested->kind)[v->kernel];
    Placed p = place(tested, alias);
    memset(driver.host, 0xFF, p.used);
    for (int i = 0; i < DLT_MAX_IN; i++) {
        if (p.bytes[i] == 0) continue;
        convert(plain->in[i], before[i], tested->in[i], driver.host + p.at[i]);
    }
    char *image = dlt_sys_alloc(p.used);
    memcpy(image, driver.host, p.used);
    launch(k, tested, &p);
    check_untouched(tested, &p, image, alias);
    dlt_sys_free(image);
    for (int i = 0; i < OPERANDS; i++) {
        bool written = i >= DLT_MAX_IN || (plain->op->mutates >> i & 1);
        if (p.bytes[i] == 0 || !written) continue;
        const DltTensor *t = i < DLT_MAX_IN ? plain->in[i] : plain->out[i - DLT_MAX_IN];
        compare(v, *slot(tested, i), driver.host + p.at[i], t, expected[i]);
    }
}

static void check(void **state)
{
    const Variant *v = *state;
    CaseGraph plain_graph, tested_graph;
    CaseValues values;
    DltNode tested;
    DltTensor tensors[OPERANDS];
    void *in[DLT_MAX_IN], *out[DLT_MAX_OUT], *before[DLT_MAX_IN] = {NULL}, *expected[OPERANDS];
    case_build(v->c, DLT_F32, true, &plain_graph);
    case_build(v->c, v->low, true, &tested_graph);
    const DltNode *plain = plain_graph.graph->node[v->node];
    reference_values(v->c, &plain_graph, v->node, &values);
    assert_true(lay_out(v, &tested_graph, &tested, tensors));
    case_operands(&values, plain, in, out);
    round_inputs(plain, &tested, in);
    for (int i = 0; i < DLT_MAX_IN; i++) {
        size_t bytes = in[i] ? (size_t)dlt_tensor_bytes(plain->in[i]) : 0;
        if (in[i]) before[i] = memcpy(dlt_sys_alloc(bytes), in[i], bytes);
    }
    case_run(driver.reference, case_plain_kernel(driver.reference, plain), plain, in, out);
    for (int i = 0; i < OPERANDS; i++)
        expected[i] = *pointer(in, out, i);
    run_once(v, &tested, plain, before, expected, -1);
    for (int i = 0; i < DLT_MAX_IN; i++) {
        bool allowed = plain->op->inplace >> i & 1;
        if (!allowed || before[i] == NULL || tested.out[0] == NULL) continue;
        bool fits = tested.in[i]->dtype == tested.out[0]->dtype &&
                    tested.in[i]->layout == tested.out[0]->layout &&
                    dlt_shape_equal(&tested.in[i]->shape, &tested.out[0]->shape);
        if (fits) run_once(v, &tested, plain, before, expected, i);
    }
    for (int i = 0; i < DLT_MAX_IN; i++)
        dlt_sys_free(before[i]);
    case_values_free(&values);
    dlt_arena_free(plain_graph.arena);
    dlt_arena_free(tested_graph.arena);
}

/* ---- the list of tests --------------------------------------------------------------------- */

typedef struct Tests {
    struct CMUnitTest *row;
    size_t n, cap;
    const char *only, *without, *asked;  /* cases with this word, without it; the one backend */
    int64_t n_row, shard, n_shard, from; /* rows from + shard, + n_shard, ...; n_shard 0: all */
    bool seen[DLT_N_OP];                 /* some kernel of the op is tested */
} Tests;

static void add_test(Tests *tests, const Variant *v, const DltNode *n, const char *kernel)
{
    char text[512];
    case_name(v->c, text, sizeof text);
    const char *name = dlt_arena_printf(
        driver.arena, "parity %s of %s %s%s%s%s", kernel, dlt_ops[n->kind]->name, text,
        v->low == DLT_F32 ? "" : dlt_arena_printf(driver.arena, " %s", dlt_dtype_name(v->low)),
        layout_names[v->layout], v->filters ? " with filters" : "");
    tests->seen[n->kind] = true;
    if (tests->only != NULL && strstr(name, tests->only) == NULL) return;
    if (tests->without != NULL && strstr(tests->without, strrchr(kernel, '.')) != NULL) return;
    int64_t row = tests->n_row++ - tests->from;
    if (row < 0 || (tests->n_shard > 0 && row % tests->n_shard != tests->shard)) return;
    if (tests->n == tests->cap) {
        size_t cap = tests->cap * 2 + 256;
        tests->row =
            dlt_sys_realloc(tests->row, tests->cap * sizeof *tests->row, cap * sizeof *tests->row);
        tests->cap = cap;
    }
    Variant *copy = DLT_NEW(driver.arena, Variant);
    *copy = *v;
    tests->row[tests->n++] = (struct CMUnitTest){name, check, NULL, NULL, copy};
}

/* All layouts and kernels of one node of a row's graph in type v.low. */
static void add_node(Tests *tests, Variant v, const CaseGraph *g)
{
    bool filters = v.c->in[1].use == WEIGHT && v.c->in[1].rank == 4;
    int n_layout = filters && driver.backend != &dlt_backend_cpu ? FILTERS_TOO + 1 : FILTERS_TOO;
    for (int l = 0; l < n_layout; l++) {
        DltNode n;
        DltTensor tensors[OPERANDS];
        v.layout = layouts[l];
        v.filters = l == FILTERS_TOO;
        if (!lay_out(&v, g, &n, tensors)) continue;
        const DltKernel *const *list = driver.backend->kernels(driver.dev, n.kind);
        for (v.kernel = 0; list != NULL && list[v.kernel] != NULL; v.kernel++)
            if (is_accepted(list[v.kernel], &n)) add_test(tests, &v, &n, list[v.kernel]->name);
    }
}

static void add_case(Tests *tests, const Case *c)
{
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
        bool narrow_changes = false;
        Variant v = {.c = c, .low = types[t]};
        CaseGraph g;
        for (int i = 0; i < DLT_MAX_IN; i++)
            narrow_changes |= c->in[i].use == ACTIVATION || c->in[i].use == WEIGHT;
        if (v.low != DLT_F32 && !narrow_changes) continue;
        case_build(c, v.low, true, &g);
        for (v.node = 0; v.node < g.graph->n_node; v.node++)
            if (!g.graph->node[v.node]->op->view) add_node(tests, v, &g);
        dlt_arena_free(g.arena);
    }
}

/* Every op of the backend has a row; reshape is a view and has no kernel. */
static void every_op_has_a_row(void **state)
{
    const Tests *tests = *state;
    for (int kind = 0; kind < DLT_N_OP; kind++) {
        if (tests->seen[kind] || dlt_ops[kind]->view) continue;
        print_error("no kernel of %s is tested\n", dlt_ops[kind]->name);
        fail();
    }
}

/* The device is there and must open; a GPU that nobody asked for, when there is a plug-in for it too. */
static bool is_present(const char *name, const char *asked)
{
    return strcmp(name, "cpu") == 0 || (access("/dev/nvidiactl", F_OK) == 0 &&
                                        (asked != NULL || driver.backend != &dlt_backend_cpu));
}

static bool open_devices(const char *name)
{
    DltErr err;
    char program[4096];
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    program[n > 0 ? n : 0] = '\0';
    dlt_err_init(&err);
    driver = (Driver){.arena = dlt_arena_new(), .host = dlt_sys_pages(REGION)};
    /* tf32 on the CPU: Winograd, inside the same bounds */
    DltDeviceOptions o = {
        .deterministic = true, .tf32 = strcmp(name, "cpu") == 0, .plugin_folder = dirname(program)};
    driver.reference = case_cpu_device(driver.arena, 1);
    bool opened = dlt_backend_find(name, DLT_NO_MARK, &driver.backend, &err) == DLT_OK &&
                  driver.backend->open(driver.arena, &o, &driver.dev, &err) == DLT_OK &&
                  driver.backend->alloc(driver.dev, REGION, &driver.region, &err) == DLT_OK;
    if (!opened) dlt_err_print(&err, stderr);
    return opened && driver.host != NULL;
}

static void close_devices(void)
{
    if (driver.backend != NULL && driver.dev != NULL) driver.backend->close(driver.dev);
    dlt_backend_cpu.close(driver.reference);
    dlt_sys_pages_free(driver.host, REGION);
    dlt_arena_free(driver.arena);
}

static void skipped(void **state)
{
    (void)state;
    skip();
}

static int skip_because(const char *name)
{
    const struct CMUnitTest none[] = {{name, skipped, NULL, NULL, NULL}};
    return _cmocka_run_group_tests(name, none, 1, NULL, NULL);
}

/* All tests of one backend; a device that is not there is skipped, and said so. */
static int test_backend(const char *name, Tests tests)
{
    DltDeviceInfo info;
    int failed;
    if (!open_devices(name)) {
        failed = is_present(name, tests.asked) ? 1 : skip_because("parity: no CUDA device");
        close_devices();
        return failed;
    }
    driver.backend->info(driver.dev, &info);
    print_message("parity of %s: %s, %s\n", name, info.name, info.library);
    if (strncmp(info.library, "plain", 5) == 0) skip_because("parity: no oneDNN plug-in");
    for (int l = 0; case_lists[l] != NULL; l++)
        for (int i = 0; i < case_lists[l]->n; i++)
            add_case(&tests, &case_lists[l]->row[i]);
    const struct CMUnitTest covered[] = {
        {"every op has a row", every_op_has_a_row, NULL, NULL, &tests}};
    failed = _cmocka_run_group_tests("coverage", covered, 1, NULL, NULL);
    failed += _cmocka_run_group_tests(name, tests.row, tests.n, NULL, NULL);
    dlt_sys_free(tests.row);
    close_devices();
    return failed;
}

int main(int argc, char **argv)
{
    Tests tests = {.row = NULL};
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--backend") == 0) tests.asked = argv[i + 1];
        if (strcmp(argv[i], "--only") == 0) tests.only = argv[i + 1];
        if (strcmp(argv[i], "--without") == 0) tests.without = argv[i + 1];
        if (strcmp(argv[i], "--shard") == 0)
            (void)sscanf(argv[i + 1], "%" SCNd64 "/%" SCNd64 "+%" SCNd64, &tests.shard,
                         &tests.n_shard, &tests.from);
    }
    if (tests.asked != NULL) return test_backend(tests.asked, tests) > 0;
    return test_backend("cpu", tests) + test_backend("cuda", tests) > 0;
}
