/* cuBLASLt. It thinks in columns: our row-major C = A B is its column-major C^T = B^T A^T, so b is
 * handed over as its first operand and a as its second, and the bias (one value a column of ours)
 * runs along its rows, as its epilogues want. */
#include "cuda/lt.h"
#include "cuda/lib.h"
#include "cuda/tune.h"
#include <cublasLt.h>

#define LT_FUNCTIONS(F)                                                                            \
    F(cublasLtCreate)                                                                              \
    F(cublasLtDestroy)                                                                             \
    F(cublasLtGetVersion)                                                                          \
    F(cublasLtGetStatusString)                                                                     \
    F(cublasLtMatmul)                                                                              \
    F(cublasLtMatmulDescCreate)                                                                    \
    F(cublasLtMatmulDescDestroy)                                                                   \
    F(cublasLtMatmulDescSetAttribute)                                                              \
    F(cublasLtMatrixLayoutCreate)                                                                  \
    F(cublasLtMatrixLayoutDestroy)                                                                 \
    F(cublasLtMatrixLayoutSetAttribute)                                                            \
    F(cublasLtMatmulPreferenceCreate)                                                              \
    F(cublasLtMatmulPreferenceDestroy)                                                             \
    F(cublasLtMatmulPreferenceSetAttribute)                                                        \
    F(cublasLtMatmulAlgoGetHeuristic)                                                              \
    F(cublasLtMatmulAlgoCheck)

enum { MAX_ALGOS = 16 };
static const size_t work_limit = (size_t)32 << 20; /* NVIDIA's advice for Hopper */

struct DltLt {
    void *library;
    cublasLtHandle_t handle;
    size_t version;
    char text[64];
#define F(name) __typeof__(&name) name;
    LT_FUNCTIONS(F)
#undef F
};

struct DltLtPlan {
    const DltLt *lt;
    cublasLtMatmulDesc_t op;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algo;
    size_t work_bytes;
    float beta; /* 1: adds to what is there */
};

/* ---- opening ---- */

bool dlt_lt_open(DltDevice *dev, DltWhy *why_not)
{
    if (dev->lt) return dev->lt->handle || dlt_cuda_refuse(why_not, "cuBLASLt could not be opened");
    DltLt *lt = DLT_NEW(dev->arena, DltLt);
    dev->lt = lt;
    lt->library = dlt_cuda_library("libcublasLt", CUBLAS_VER_MAJOR, why_not);
    if (!lt->library) return false;
#define F(name)                                                                                    \
    if (!dlt_cuda_symbol(lt->library, #name, &lt->name, why_not)) return false;
    LT_FUNCTIONS(F)
#undef F
    cublasStatus_t s = lt->cublasLtCreate(&lt->handle);
    if (s != CUBLAS_STATUS_SUCCESS) {
        lt->handle = NULL;
        return dlt_cuda_refuse(why_not, "cublasLtCreate: %s", lt->cublasLtGetStatusString(s));
    }
    lt->version = lt->cublasLtGetVersion();
    snprintf(lt->text, sizeof lt->text, "cuBLASLt %zu.%zu.%zu", lt->version / 10000,
             lt->version / 100 % 100, lt->version % 100);
    return true;
}

void dlt_lt_close(DltDevice *dev)
{
    if (!dev->lt || !dev->lt->handle) return;
    (void)dev->lt->cublasLtDestroy(dev->lt->handle);
    dev->lt->handle = NULL; /* the library stays mapped: plans are released after the device */
}

const char *dlt_lt_version(const DltDevice *dev)
{
    return dev->lt && dev->lt->handle ? dev->lt->text : "cuBLASLt not opened";
}

/* ---- descriptors ---- */

static cudaDataType_t type_of(DltDtype t)
{
    return t == DLT_BF16 ? CUDA_R_16BF : t == DLT_F16 ? CUDA_R_16F : CUDA_R_32F;
}

static void plan_release(void *ctx)
{
    DltLtPlan *p = ctx;
    if (p->op) (void)p->lt->cublasLtMatmulDescDestroy(p->op);
    if (p->a) (void)p->lt->cublasLtMatrixLayoutDestroy(p->a);
    if (p->b) (void)p->lt->cublasLtMatrixLayoutDestroy(p->b);
    if (p->c) (void)p->lt->cublasLtMatrixLayoutDestroy(p->c);
    p->op = NULL;
    p->a = p->b = p->c = NULL;
}

/* rows x cols, column-major, dense. */
static bool layout(const DltLt *lt, cublasLtMatrixLayout_t *out, DltDtype dtype, int64_t rows,
                   int64_t cols, int64_t batch)
{
    int32_t n = (int32_t)batch;
    int64_t stride = rows * cols;
    cublasStatus_t s =
        lt->cublasLtMatrixLayoutCreate(out, type_of(dtype), (uint64_t)rows, (uint64_t)cols, rows);
    if (s == CUBLAS_STATUS_SUCCESS && batch > 1)
        s = lt->cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &n,
                                                 sizeof n);
    if (s == CUBLAS_STATUS_SUCCESS && batch > 1)
        s = lt->cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                 &stride, sizeof stride);
    return s == CUBLAS_STATUS_SUCCESS;
}

static cublasLtEpilogue_t epilogue_of(const DltLtProblem *p)
{
    if (p->bias) return p->relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS;
    return p->relu ? CUBLASLT_EPILOGUE_RELU : CUBLASLT_EPILOGUE_DEFAULT;
}

static bool operation(DltDevice *dev, const DltLtProblem *p, cublasLtMatmulDesc_t *op)
{
    const DltLt *lt = dev->lt;
    cublasComputeType_t compute =
        p->ab == DLT_F32 && dev->option.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    cublasOperation_t ta = p->tb ? CUBLAS_OP_T : CUBLAS_OP_N,
                      tb = p->ta ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasLtEpilogue_t ep = epilogue_of(p);
    int32_t bias = (int32_t)type_of(p->bias_dtype);
    /* stands for the bias until launch: the heuristics look at its alignment */
    const void *like =
        (const char *)dev->lane[0].ticket + (p->align_bias < 256 ? p->align_bias : 0);
    const struct {
        cublasLtMatmulDescAttributes_t name;
        const void *value;
        size_t bytes;
    } attr[] = {
        {CUBLASLT_MATMUL_DESC_TRANSA, &ta, sizeof ta},
        {CUBLASLT_MATMUL_DESC_TRANSB, &tb, sizeof tb},
        {CUBLASLT_MATMUL_DESC_EPILOGUE, &ep, sizeof ep},
        {CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &bias, sizeof bias},
        {CUBLASLT_MATMUL_DESC_BIAS_POINTER, &like, sizeof like},
    };
    if (lt->cublasLtMatmulDescCreate(op, compute, CUDA_R_32F) != CUBLAS_STATUS_SUCCESS)
        return false;
    size_t n = sizeof attr / sizeof *attr - (p->bias ? 0 : 2);
    for (size_t i = 0; i < n; i++)
        if (lt->cublasLtMatmulDescSetAttribute(*op, attr[i].name, attr[i].value, attr[i].bytes) !=
            CUBLAS_STATUS_SUCCESS)
            return false;
    return true;
}

static bool build(DltDevice *dev, const DltLtProblem *p, DltLtPlan *plan)
{
    const DltLt *lt = dev->lt;
    plan->lt = lt;
    plan->beta = p->add ? 1.0f : 0.0f;
    return operation(dev, p, &plan->op) &&
           layout(lt, &plan->a, p->ab, p->tb ? p->k : p->n, p->tb ? p->n : p->k, p->batch) &&
           layout(lt, &plan->b, p->ab, p->ta ? p->m : p->k, p->ta ? p->k : p->m, p->batch) &&
           layout(lt, &plan->c, p->c, p->n, p->m, p->batch);
}

/* ---- choosing ---- */

/* Fills at most `want` results; returns their number. Sums of split products are kept in f32: the
 * other schemes would round them to the output's type. */
static int heuristics(const DltLt *lt, const DltLtProblem *p, const DltLtPlan *plan, int want,
                      cublasLtMatmulHeuristicResult_t *result)
{
    cublasLtMatmulPreference_t pref = NULL;
    uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const struct {
        cublasLtMatmulPreferenceAttributes_t name;
        const void *value;
        size_t bytes;
    } attr[] = {
        {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &work_limit, sizeof work_limit},
        {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof schemes},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &p->align_b, sizeof(uint32_t)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &p->align_a, sizeof(uint32_t)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &p->align_c, sizeof(uint32_t)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &p->align_c, sizeof(uint32_t)},
    };
    int n = 0;
    if (lt->cublasLtMatmulPreferenceCreate(&pref) != CUBLAS_STATUS_SUCCESS) return 0;
    bool ok = true;
    for (size_t i = 0; ok && i < sizeof attr / sizeof *attr; i++)
        ok = lt->cublasLtMatmulPreferenceSetAttribute(pref, attr[i].name, attr[i].value,
                                                      attr[i].bytes) == CUBLAS_STATUS_SUCCESS;
    if (!ok ||
        lt->cublasLtMatmulAlgoGetHeuristic(lt->handle, plan->op, plan->a, plan->b, plan->c, plan->c,
                                           pref, want, result, &n) != CUBLAS_STATUS_SUCCESS)
        n = 0;
    (void)lt->cublasLtMatmulPreferenceDestroy(pref);
    return n;
}

static void key_of(const DltDevice *dev, const DltLtProblem *p, char key[DLT_TUNE_KEY])
{
    snprintf(
        key, DLT_TUNE_KEY,
        "lt %zu %s sm%d n%d | %lldx%lldx%lldx%lld %s%s %s->%s%s ep%d/%s tf32=%d align %u,%u,%u,%u",
        dev->lt->version, dev->name, dev->capability, dev->n_sm, (long long)p->batch,
        (long long)p->m, (long long)p->n, (long long)p->k, p->ta ? "T" : "N", p->tb ? "T" : "N",
        dlt_dtype_name(p->ab), p->add ? "+" : "", dlt_dtype_name(p->c), (int)epilogue_of(p),
        p->bias ? dlt_dtype_name(p->bias_dtype) : "-", (int)dev->option.tf32, p->align_a,
        p->align_b, p->align_c, p->align_bias);
}

bool dlt_lt_can(DltDevice *dev, const DltLtProblem *p, DltWhy *why_not)
{
    if (!dlt_lt_open(dev, why_not)) return false;
    char key[DLT_TUNE_KEY];
    key_of(dev, p, key);
    if (dlt_tune_find(dev, key)) return true;
    DltLtPlan plan = {0};
    cublasLtMatmulHeuristicResult_t r;
    bool can = build(dev, p, &plan) && heuristics(dev->lt, p, &plan, 1, &r) > 0;
    plan.lt = dev->lt;
    plan_release(&plan);
    return can || dlt_cuda_refuse(why_not, "cuBLASLt has no algorithm for this problem");
}

/* A stored choice: the algorithm's eight words in hexadecimal. False when it no longer fits. */
static bool recall(DltDevice *dev, const char *key, DltLtPlan *plan)
{
    const char *text = dlt_tune_find(dev, key);
    cublasLtMatmulHeuristicResult_t r;
    uint64_t word[8];
    if (!text) return false;
    for (int i = 0; i < 8; i++) {
        char *end = NULL;
        word[i] = strtoull(text, &end, 16);
        if (end == text) return false;
        text = end;
    }
    _Static_assert(sizeof word == sizeof plan->algo, "an algorithm is eight words");
    memcpy(&plan->algo, word, sizeof word);
    if (dev->lt->cublasLtMatmulAlgoCheck(dev->lt->handle, plan->op, plan->a, plan->b, plan->c,
                                         plan->c, &plan->algo, &r) != CUBLAS_STATUS_SUCCESS ||
        r.workspaceSize > work_limit)
        return false;
    plan->work_bytes = r.workspaceSize;
    return true;
}

/* What was measured; or what another program found before. */
static void remember(DltDevice *dev, const char *key, DltLtPlan *plan)
{
    uint64_t w[8];
    DltLtPlan own = *plan;
    char text[DLT_TUNE_VALUE];
    memcpy(w, &plan->algo, sizeof w);
    snprintf(text, sizeof text, "%llx %llx %llx %llx %llx %llx %llx %llx", (unsigned long long)w[0],
             (unsigned long long)w[1], (unsigned long long)w[2], (unsigned long long)w[3],
             (unsigned long long)w[4], (unsigned long long)w[5], (unsigned long long)w[6],
             (unsigned long long)w[7]);
    if (dlt_tune_put(dev, key, text) || recall(dev, key, plan)) return;
    *plan = own;
    (void)dlt_tune_put(dev, key, text);
}

static cublasStatus_t enqueue(const DltLtPlan *p, cudaStream_t stream, const void *a, const void *b,
                              void *c, void *work)
{
    const float one = 1;
    return p->lt->cublasLtMatmul(p->lt->handle, p->op, &one, b, p->a, a, p->b, &p->beta, c, p->c, c,
                                 p->c, &p->algo, work, p->work_bytes, stream);
}

/* ---- measuring ---- */

enum { BUF_A, BUF_B, BUF_C, BUF_BIAS, BUF_WORK, N_BUF };
typedef struct Trial {
    DltDevice *dev;
    DltLtPlan *plan;
    DltTuneBuffer buffer[N_BUF];
} Trial;

static bool trial_run(void *ctx)
{
    const Trial *t = ctx;
    return enqueue(t->plan, t->dev->lane[0].handle, t->buffer[BUF_A].ptr, t->buffer[BUF_B].ptr,
                   t->buffer[BUF_C].ptr, t->buffer[BUF_WORK].ptr) == CUBLAS_STATUS_SUCCESS;
}

static bool set_bias(const DltLtPlan *plan, const void *bias)
{
    return plan->lt->cublasLtMatmulDescSetAttribute(plan->op, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                                    &bias, sizeof bias) == CUBLAS_STATUS_SUCCESS;
}

/* Takes the fastest of the list; the first when nothing can be measured. */
static void measure(DltDevice *dev, const DltLtProblem *p, DltLtPlan *plan,
                    const cublasLtMatmulHeuristicResult_t *list, int n)
{
    size_t ab = dlt_dtype_bytes(p->ab), batch = (size_t)p->batch, work = 1;
    for (int i = 0; i < n; i++)
        if (list[i].workspaceSize > work) work = list[i].workspaceSize;
    Trial t = {dev,
               plan,
               {{batch * (size_t)(p->m * p->k) * ab, p->ab, NULL},
                {batch * (size_t)(p->k * p->n) * ab, p->ab, NULL},
                {batch * (size_t)(p->m * p->n) * dlt_dtype_bytes(p->c), p->c, NULL},
                {p->bias ? (size_t)p->n * dlt_dtype_bytes(p->bias_dtype) : 0, p->bias_dtype, NULL},
                {work, DLT_U8, NULL}}};
    DltErr quiet;
    dlt_err_init(&quiet);
    int best = 0;
    double best_us = 1e30;
    bool ready = dlt_tune_buffers(dev, t.buffer, N_BUF, &quiet) == DLT_OK &&
                 (!p->bias || set_bias(plan, t.buffer[BUF_BIAS].ptr));
    for (int i = 0; ready && i < n; i++) {
        double us = 0;
        if (list[i].state != CUBLAS_STATUS_SUCCESS) continue;
        plan->algo = list[i].algo;
        plan->work_bytes = list[i].workspaceSize;
        if (dlt_tune_time(dev, trial_run, &t, &us) && us < best_us) {
            best = i;
            best_us = us;
        }
    }
    dlt_tune_buffers_free(dev, t.buffer, N_BUF);
    plan->algo = list[best].algo;
    plan->work_bytes = list[best].workspaceSize;
}

DltStatus dlt_lt_prepare(DltDevice *dev, DltArena *arena, const DltLtProblem *p, DltLtPlan **out,
                         size_t *work_bytes, DltErr *err)
{
    DltWhy why;
    if (!dlt_lt_open(dev, &why)) return dlt_err(err, DLT_E_DEVICE, "cuBLASLt: %s", why.text);
    DltLtPlan *plan = DLT_NEW(arena, DltLtPlan);
    dlt_arena_on_free(arena, plan_release, plan);
    if (!build(dev, p, plan))
        return dlt_err(err, DLT_E_DEVICE,
                       "cuBLASLt refuses to describe a %lld x %lld x %lld product", (long long)p->m,
                       (long long)p->n, (long long)p->k);
    char key[DLT_TUNE_KEY];
    key_of(dev, p, key);
    if (!recall(dev, key, plan)) {
        cublasLtMatmulHeuristicResult_t list[MAX_ALGOS];
        int n = heuristics(dev->lt, p, plan, MAX_ALGOS, list);
        if (n == 0)
            return dlt_err(err, DLT_E_DEVICE,
                           "cuBLASLt has no algorithm for a %lld x %lld x %lld product",
                           (long long)p->m, (long long)p->n, (long long)p->k);
        measure(dev, p, plan, list, n);
        remember(dev, key, plan);
    }
    *out = plan;
    *work_bytes = plan->work_bytes;
    return DLT_OK;
}

DltStatus dlt_lt_run(DltLtPlan *plan, const DltCall *call, const void *a, const void *b, void *c,
                     const void *bias, DltErr *err)
{
    bool ok = !bias || set_bias(plan, bias);
    cublasStatus_t s = CUBLAS_STATUS_INVALID_VALUE;
    if (ok) s = enqueue(plan, call->stream->handle, a, b, c, call->work);
    if (s == CUBLAS_STATUS_SUCCESS) return DLT_OK;
    (void)cudaGetLastError();
    return dlt_err_at(err, DLT_E_DEVICE, call->node->at, "%s: cublasLtMatmul: %s",
                      call->node->name ? call->node->name : "matmul",
                      plan->lt->cublasLtGetStatusString(s));
}
