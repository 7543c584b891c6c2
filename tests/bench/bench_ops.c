/* Time of every kernel of the CPU's lists on the large rows (and their gradient nodes): best of some
 * runs after one to warm up, as GB/s of all operands and GFLOP/s by the op's own count.
 * usage: bench_ops [--threads N] [--only TEXT]   TEXT: part of "kernel op sizes"
 * The plug-in is looked for beside the program; DLTRAIN_PLUGIN=none leaves it out. */
#include "base/log.h"
#include "base/sys.h"
#include "tests/cases/cases.h"
#include <libgen.h>
#include <string.h>
#include <unistd.h>

static const int64_t least_ns = 100 * 1000 * 1000; /* repeat each kernel for as long */

typedef struct Bench {
    DltDevice *dev;
    const char *only;
    CaseGraph g;
    CaseValues v;
} Bench;

static int64_t bytes_of(const DltNode *n)
{
    int64_t bytes = 0;
    for (int i = 0; i < DLT_MAX_IN + DLT_MAX_OUT; i++) {
        const DltTensor *t = i < DLT_MAX_IN ? n->in[i] : n->out[i - DLT_MAX_IN];
        if (t != NULL) bytes += dlt_tensor_bytes(t);
    }
    return bytes;
}

static void fail(const char *kernel, const DltErr *err)
{
    fprintf(stderr, "%s: ", kernel);
    dlt_err_print(err, stderr);
    exit(1);
}

/* Best time of one launch in ns. */
static int64_t best_time(const Bench *b, const DltKernel *k, const DltNode *n)
{
    DltErr err;
    void *in[DLT_MAX_IN], *out[DLT_MAX_OUT];
    DltPrep p = {.arena = dlt_arena_new()};
    int64_t best = INT64_MAX, begin = dlt_sys_now_ns();
    dlt_err_init(&err);
    case_operands(&b->v, n, in, out);
    if (k->prepare != NULL && k->prepare(n, b->dev, &p, &err) != DLT_OK) fail(k->name, &err);
    void *work = dlt_sys_alloc(p.work_bytes);
    DltCall call = {n, in, out, work, p.state, dlt_backend_cpu.stream(b->dev, 0)};
    do { /* the first run warms up, and counts only where one run takes too long for two */
        int64_t start = dlt_sys_now_ns();
        if (k->launch(&call, &err) != DLT_OK) fail(k->name, &err);
        int64_t ns = dlt_sys_now_ns() - start;
        if (ns < best) best = ns;
    } while (dlt_sys_now_ns() - begin < least_ns);
    dlt_sys_free(work);
    dlt_arena_free(p.arena);
    return best;
}

static void bench_node(const Bench *b, const Case *c, const DltNode *n)
{
    char name[512], label[1024];
    const DltKernel *const *k = dlt_backend_cpu.kernels(b->dev, n->kind);
    case_name(c, name, sizeof name);
    for (; *k != NULL && strcmp((*k)->name, "any.cpu.widen") != 0; k++) {
        DltWhy why;
        bool accepted = (*k)->accepts != NULL ? (*k)->accepts(n, b->dev, &why)
                                              : dlt_kernel_accepts_plain(n, &why);
        snprintf(label, sizeof label, "%-28s %s", (*k)->name, name);
        if (!accepted || (b->only != NULL && strstr(label, b->only) == NULL)) continue;
        double ns = (double)best_time(b, *k, n);
        printf("%9.1f us %7.2f GB/s %8.2f GFLOP/s  %s\n", ns * 1e-3, (double)bytes_of(n) / ns,
               n->op->flops(n) / ns, label);
        fflush(stdout);
    }
}

static void bench_case(Bench *b, const Case *c)
{
    case_build(c, DLT_F32, true, &b->g);
    case_values_new(&b->g, &b->v);
    for (int i = 0; i < b->g.graph->n_tensor; i++) {
        const DltTensor *t = b->g.graph->tensor[i];
        if (t->role == DLT_INPUT && t->view_of == NULL) case_fill(c, &b->g, t, b->v.at[i]);
    }
    for (int i = 0; i < b->g.graph->n_node; i++) {
        const DltNode *n = b->g.graph->node[i];
        void *in[DLT_MAX_IN], *out[DLT_MAX_OUT];
        if (n->op->view) continue;
        case_operands(&b->v, n, in, out);
        case_run(b->dev, case_plain_kernel(b->dev, n), n, in, out);
        bench_node(b, c, n);
    }
    case_values_free(&b->v);
    dlt_arena_free(b->g.arena);
}

int main(int argc, char **argv)
{
    char program[4096];
    DltErr err;
    Bench b = {.only = NULL};
    DltDeviceOptions o = {.n_thread = 0, .tf32 = true};
    DltArena *arena = dlt_arena_new();
    dlt_err_init(&err);
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--threads") == 0) o.n_thread = (int)strtol(argv[i + 1], NULL, 10);
        if (strcmp(argv[i], "--only") == 0) b.only = argv[i + 1];
    }
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    program[n > 0 ? n : 0] = '\0';
    o.plugin_folder = dirname(program);
    if (dlt_backend_cpu.open(arena, &o, &b.dev, &err) != DLT_OK) fail("device", &err);
    DltDeviceInfo info;
    dlt_backend_cpu.info(b.dev, &info);
    printf("%s, %s\n", info.name, info.library);
    for (int i = 0; i < case_large.n; i++)
        bench_case(&b, &case_large.row[i]);
    dlt_backend_cpu.close(b.dev);
    dlt_arena_free(arena);
    return 0;
}
