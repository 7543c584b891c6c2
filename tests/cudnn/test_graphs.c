/* Every graph that dltrain asks of cuDNN, on a machine without a GPU: for an H200 and an A100 as a device
 * description, the graph must finalize, the heuristics must offer an engine that the device's options
 * allow, its plan must finalize, and the text that stands for it in the cache of choices must lead back
 * to the same plan. The driver's stub takes the driver's place. Without libcudnn the tests are
 * skipped. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cuda/dnn_graph.h"
#include <dlfcn.h>
#include <string.h>

/* As cuDNN describes the devices itself (H200) or from NVIDIA's tables (A100). */
#define DESCRIPTION(sms, shared, bytes, clock, memory_clock, l2, version, name)                    \
    "{\"maxGridSize\": [2147483647, 65535, 65535], \"maxBlockSize\": [1024, 1024, 64], "           \
    "\"regsPerBlock\": 65536, \"multiProcessorCount\": " sms ", \"warpSize\": 32, "                \
    "\"maxSharedMemoryPerBlock\": 49152, \"maxSharedMemoryPerBlockOptin\": " shared ", "           \
    "\"reservedSharedMemoryPerBlock\": 1024, \"maxRegistersPerSM\": 65536, \"maxCtasPerSM\": 32, " \
    "\"maxThreadsPerBlock\": 1024, \"maxThreadsPerSM\": 2048, \"pciDeviceId\": 0, "                \
    "\"isTccDriver\": 0, \"supportCoopLaunch\": 1, \"totalGlobalMem\": " bytes ", "                \
    "\"smClockRateKHz\": " clock ", \"memClockRateKHz\": " memory_clock ", \"l2CacheSize\": " l2   \
    ", \"cudaDeviceId\": 0, \"deviceVer\": " version ", \"driverVer\": 13000, "                    \
    "\"deviceName\": \"" name "\"}"
static const struct Described {
    const char *name, *json;
} devices[] = {
    {"H200", DESCRIPTION("132", "232448", "150121545728", "1980000", "3201000", "62914560", "900",
                         "NVIDIA H200")},
    {"A100", DESCRIPTION("108", "166912", "85198045184", "1410000", "1593000", "41943040", "800",
                         "NVIDIA A100-SXM4-80GB")},
};

/* Convolutions of LeNet and of the ResNets in configs/: square images and filters. */
#define SQUARE(batch, from, side, to, out, filter, step, lo, hi)                                   \
    {                                                                                              \
        .n = (batch), .c = (from), .h = (side), .w = (side), .k = (to), .p = (out), .q = (out),    \
        .r = (filter), .s = (filter), .groups = 1, .stride = {(step), (step)}, .dilation = {1, 1}, \
        .pad = {                                                                                   \
            (lo),                                                                                  \
            (hi),                                                                                  \
            (lo),                                                                                  \
            (hi)                                                                                   \
        }                                                                                          \
    }
static const DltDnnProblem shapes[] = {
    SQUARE(128, 32, 14, 64, 14, 5, 1, 2, 2),  SQUARE(128, 64, 32, 64, 32, 3, 1, 1, 1),
    SQUARE(128, 64, 32, 128, 16, 3, 2, 0, 1), SQUARE(128, 64, 32, 128, 16, 1, 2, 0, 0),
    SQUARE(1024, 512, 4, 512, 4, 3, 1, 1, 1),
};

static const struct Type {
    const char *name;
    DltDtype dtype;
    bool tf32;
} types[] = {{"tf32", DLT_F32, true},
             {"f32", DLT_F32, false},
             {"bf16", DLT_BF16, true},
             {"f16", DLT_F16, true}};

static const struct Kind {
    const char *name;
    DltDnnKind kind;
    bool bias_relu;
} kinds[] = {{"forward", DLT_DNN_FWD, false},
             {"forward + bias + relu", DLT_DNN_FWD, true},
             {"data gradient", DLT_DNN_DATA, false},
             {"filter gradient", DLT_DNN_FILTER, false}};

enum { N_DEVICE = 2, N_SHAPE = 5, N_TYPE = 4, N_KIND = 4, N_TEST = N_DEVICE * N_TYPE * N_KIND };

typedef struct Row {
    const struct Described *device;
    const struct Type *type;
    const struct Kind *kind;
} Row;
static DltDnn dnn;

static void describe(const char *json)
{
    cudnnBackendDescriptor_t *p = &dnn.properties;
    if (*p) (void)dnn.cudnnBackendDestroyDescriptor(*p);
    *p = NULL;
    assert_int_equal(dnn.cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, p), 0);
    assert_int_equal(dnn.cudnnBackendSetAttribute(*p, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                                  CUDNN_TYPE_CHAR, (int64_t)strlen(json), json),
                     0);
    assert_int_equal(dnn.cudnnBackendFinalize(*p), 0);
}

/* The plan of the first configuration, and once more from its text. */
static void check_plan(DltDnnGraph *g, const DltDnnConfig *c)
{
    int64_t work = -1, again = -2;
    cudnnBackendDescriptor_t plan = dlt_dnn_plan_of(&dnn, c->config, &work);
    if (!plan) fail_msg("the plan of %s does not finalize", c->tag);
    cudnnBackendDescriptor_t config = dlt_dnn_config_of(g, c->tag);
    if (!config) fail_msg("%s does not lead back to a configuration", c->tag);
    cudnnBackendDescriptor_t second = dlt_dnn_plan_of(&dnn, config, &again);
    if (!second) fail_msg("the plan of %s, read back, does not finalize", c->tag);
    assert_true(work == again);
    (void)dnn.cudnnBackendDestroyDescriptor(plan);
    (void)dnn.cudnnBackendDestroyDescriptor(second);
}

static void graph_finalizes(void **state)
{
    enum { MAX = 4 };
    const Row *row = *state;
    DltDevice dev = {.option = {.tf32 = row->type->tf32, .deterministic = true}};
    describe(row->device->json);
    for (int i = 0; i < N_SHAPE; i++) {
        DltDnnProblem p = shapes[i];
        DltDnnGraph g;
        DltDnnConfig c[MAX];
        DltWhy why = {""};
        p.kind = row->kind->kind;
        p.bias_relu = row->kind->bias_relu;
        p.dtype = row->type->dtype;
        if (!dlt_dnn_graph(&dnn, &p, &g, &why)) fail_msg("shape %d: %s", i, why.text);
        int n = dlt_dnn_configs(&g, &dev, p.dtype, c, MAX);
        if (n == 0) fail_msg("shape %d: no engine is offered that is allowed", i);
        check_plan(&g, &c[0]);
        for (int k = 0; k < n; k++)
            (void)dnn.cudnnBackendDestroyDescriptor(c[k].config);
        dlt_dnn_graph_free(&g);
    }
}

/* A tag of another library version is no configuration, and no crash. */
static void wrong_tags(void **state)
{
    static const char *const bad[] = {"",       "none", "eng", "eng99999 1=1", "eng0 9999=1",
                                      "eng1 2", "x=1"};
    const DltDnnProblem *p = &shapes[1];
    (void)state;
    describe(devices[0].json);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        DltDnnGraph g;
        DltWhy why = {""};
        DltDnnProblem f = *p;
        f.dtype = DLT_BF16;
        assert_true(dlt_dnn_graph(&dnn, &f, &g, &why));
        cudnnBackendDescriptor_t config = dlt_dnn_config_of(&g, bad[i]);
        int64_t work = 0;
        if (config && dlt_dnn_plan_of(&dnn, config, &work)) fail_msg("'%s' makes a plan", bad[i]);
        dlt_dnn_graph_free(&g);
    }
}

static void skipped(void **state)
{
    (void)state;
    skip();
}

/* cuDNN wants a libcuda.so.1 to be there: the driver's, or the toolkit's stub. */
static bool open_library(DltWhy *why)
{
    static const char *const driver[] = {"libcuda.so.1", "/usr/local/cuda/lib64/stubs/libcuda.so"};
    void *found = NULL;
    for (int i = 0; i < 2 && !found; i++)
        found = dlopen(driver[i], RTLD_NOW | RTLD_GLOBAL);
    if (!found) return dlt_cuda_refuse(why, "neither the driver nor its stub is there");
    return dlt_dnn_load(&dnn, why);
}

int main(void)
{
    static char names[N_TEST][96];
    struct CMUnitTest test[N_TEST + 1] = {cmocka_unit_test(wrong_tags)};
    Row row[N_TEST];
    DltWhy why = {""};
    bool there = open_library(&why);
    print_message("%s\n", there ? dnn.text : why.text);
    if (!there) test[0].test_func = skipped;
    for (int i = 0; i < N_TEST; i++) {
        row[i] =
            (Row){&devices[i / (N_TYPE * N_KIND)], &types[i / N_KIND % N_TYPE], &kinds[i % N_KIND]};
        snprintf(names[i], sizeof names[0], "%s, %s on %s", row[i].kind->name, row[i].type->name,
                 row[i].device->name);
        test[i + 1] =
            (struct CMUnitTest){names[i], there ? graph_finalizes : skipped, NULL, NULL, &row[i]};
    }
    return _cmocka_run_group_tests("cudnn graphs", test, N_TEST + 1, NULL, NULL);
}
