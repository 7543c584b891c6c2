/* The executor on a device of host memory whose kernels add floats and whose recorder keeps the
 * calls it is given: values, first values, sharing, recording, poison, errors with the node's name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "base/sys.h"
#include "exec/exec.h"
#include "graph/build.h"
#include "toy_plan.h"

enum { MAX_CALLS = 32 };
struct DltStream {
    DltDevice *dev;
};
struct DltDevice {
    DltStream stream;
    bool recording;
    int n_call, n_launch, n_replay, n_alloc, n_release, n_record;
    size_t alloc_bytes;
    const DltCall *call[MAX_CALLS];
    int fail_launch, fail_record_end; /* 1: the next one fails */
};

static DltStatus toy_alloc(DltDevice *dev, size_t bytes, void **ptr, DltErr *err)
{
    *ptr = dlt_sys_alloc(bytes);
    if (*ptr == NULL) return dlt_err(err, DLT_E_RESOURCE, "out");
    memset(*ptr, 0, bytes);
    dev->n_alloc++;
    dev->alloc_bytes += bytes;
    return DLT_OK;
}
static void toy_release(DltDevice *dev, void *ptr)
{
    dev->n_release++;
    dlt_sys_free(ptr);
}
static DltStream *toy_stream(DltDevice *dev, int lane)
{
    (void)lane;
    return &dev->stream;
}
static DltStatus toy_copy(DltStream *s, void *dst, const void *src, size_t bytes, DltErr *err)
{
    (void)s, (void)err;
    memcpy(dst, src, bytes);
    return DLT_OK;
}
static DltStatus toy_zero(DltStream *s, void *dst, size_t bytes, DltErr *err)
{
    (void)s, (void)err;
    memset(dst, 0, bytes);
    return DLT_OK;
}
static DltStatus toy_sync(DltDevice *dev, DltErr *err)
{
    (void)dev, (void)err;
    return DLT_OK;
}
static DltStatus toy_record_begin(DltDevice *dev, DltErr *err)
{
    (void)err;
    dev->recording = true;
    dev->n_record++;
    return DLT_OK;
}
static DltStatus toy_record_end(DltDevice *dev, void **program, DltErr *err)
{
    dev->recording = false;
    *program = &dev->call;
    if (dev->fail_record_end) return dlt_err(err, DLT_E_DEVICE, "recording failed");
    return DLT_OK;
}

/* out[0] = sum of the inputs + 1; an update adds in[1] to in[0]. */
static void compute(const DltCall *c)
{
    bool update = c->node->op == &toy_update;
    int64_t n = dlt_shape_count(update ? &c->node->in[0]->shape : &c->node->out[0]->shape);
    float *to = update ? c->in[0] : c->out[0];
    for (int64_t i = 0; i < n; i++) {
        float sum = update ? 0.0f : 1.0f;
        for (int k = 0; k < DLT_MAX_IN; k++)
            if (c->in[k] != NULL) sum += ((const float *)c->in[k])[i];
        to[i] = sum;
    }
}
static DltStatus add_launch(const DltCall *c, DltErr *err)
{
    DltDevice *dev = c->stream->dev;
    if (dev->fail_launch) return dlt_err(err, DLT_E_DEVICE, "launch failed");
    dev->n_launch++;
    if (dev->recording) {
        dev->call[dev->n_call++] = c;
    } else {
        compute(c);
    }
    return DLT_OK;
}
static DltStatus toy_replay(DltDevice *dev, void *program, DltErr *err)
{
    (void)err;
    assert_ptr_equal(program, &dev->call);
    for (int i = 0; i < dev->n_call; i++)
        compute(dev->call[i]);
    dev->n_replay++;
    return DLT_OK;
}
static const DltKernel add_kernel = {.name = "add", .accepts = toy_accepts, .launch = add_launch};
static const DltKernel *const add_list[] = {&add_kernel, NULL};
static const DltKernel *const *add_kernels(const DltDevice *dev, int kind)
{
    (void)dev, (void)kind;
    return add_list;
}
static const DltBackend recorder = {.name = "toy",
                                    .align = 64,
                                    .n_lane = 1,
                                    .kernels = add_kernels,
                                    .alloc = toy_alloc,
                                    .release = toy_release,
                                    .stream = toy_stream,
                                    .upload = toy_copy,
                                    .download = toy_copy,
                                    .zero = toy_zero,
                                    .record_begin = toy_record_begin,
                                    .record_end = toy_record_end,
                                    .replay = toy_replay,
                                    .sync = toy_sync};

typedef struct World {
    DltArena *arena;
    DltDevice dev;
    DltBackend backend;
    DltErr err;
    DltGraph *g;
    DltTensor *x, *w, *y, *z, *sum, *unused;
    DltPlan *plan;
} World;

/* z = (x + w + 1) + 1; sum += z. w starts at 5. */
static World *world(void)
{
    DltArena *arena = dlt_arena_new();
    World *c = DLT_NEW(arena, World);
    *c = (World){.arena = arena, .backend = recorder, .g = dlt_graph_new(arena)};
    c->dev.stream.dev = &c->dev;
    dlt_err_init(&c->err);
    DltBuild b;
    dlt_build_init(&b, c->g, &c->err);
    c->x = dlt_input(&b, "x", dlt_shape1(8), DLT_F32);
    c->unused = dlt_input(&b, "unused", dlt_shape1(8), DLT_F32);
    c->w = dlt_param(&b, "w", dlt_shape1(8), (DltInit){.kind = DLT_INIT_CONSTANT, .a = 5});
    c->sum = dlt_state(&b, "sum", dlt_shape1(8), DLT_F32, dlt_init_zeros());
    c->y = toy_tensor(c->g, 8, DLT_TEMP);
    c->z = toy_tensor(c->g, 8, DLT_TEMP);
    toy_node(c->g, &toy_binary, (DltTensor *[]){c->x, c->w}, 2, &c->y, 1);
    toy_node(c->g, &toy_mix, &c->y, 1, &c->z, 1);
    toy_node(c->g, &toy_update, (DltTensor *[]){c->sum, c->z}, 2, NULL, 0)->phase =
        DLT_PHASE_UPDATE;
    assert_int_equal(dlt_plan_make(arena, c->g, &c->backend, &c->dev, NULL, &c->plan, &c->err),
                     DLT_OK);
    return c;
}

static DltExec *bind(World *c, const DltExecOptions *o)
{
    DltExec *e = NULL;
    assert_int_equal(dlt_exec_new(c->arena, c->plan, o, &e, &c->err), DLT_OK);
    return e;
}

static void run_once(World *c, DltExec *e, float value)
{
    float x[8];
    for (int i = 0; i < 8; i++)
        x[i] = value + (float)i;
    assert_int_equal(dlt_exec_feed(e, c->x, x, &c->err), DLT_OK);
    assert_int_equal(dlt_exec_feed(e, c->unused, x, &c->err), DLT_OK);
    assert_int_equal(dlt_exec_run(e, DLT_PHASE_BATCH, &c->err), DLT_OK);
    assert_int_equal(dlt_exec_run(e, DLT_PHASE_UPDATE, &c->err), DLT_OK);
}

static void check_sum(World *c, DltExec *e, float first, float step)
{
    float sum[8];
    assert_int_equal(dlt_exec_read(e, c->sum, sum, &c->err), DLT_OK);
    for (int i = 0; i < 8; i++)
        assert_float_equal(sum[i], first + step * (float)i, 0);
}

static void eager_on_cpu(void **state)
{
    (void)state;
    World *c = world();
    c->backend.record_begin = NULL;
    DltExec *e = bind(c, &(DltExecOptions){.seed = 1});
    assert_int_equal(c->dev.alloc_bytes, dlt_exec_bytes(e));
    assert_null(dlt_exec_pointer(e, c->unused));
    for (int i = 0; i < 3; i++)
        run_once(c, e, 10);
    check_sum(c, e, 3 * (10 + 5 + 2), 3);
    assert_int_equal(c->dev.n_launch, 9);
    assert_int_equal(dlt_exec_zero(e, c->sum, &c->err), DLT_OK);
    check_sum(c, e, 0, 0);
    dlt_exec_free(e);
    dlt_exec_free(e);
    assert_int_equal(c->dev.n_release, c->dev.n_alloc);
    dlt_arena_free(c->arena);
}

/* First run eager, second recorded and replayed at once, then replays: same sums. One phase only,
 * since this recorder keeps one program. */
static void recorded(void **state)
{
    (void)state;
    World *c = world();
    DltExec *e = bind(c, &(DltExecOptions){.seed = 1});
    float x[8] = {0}, z[8];
    for (int run = 0; run < 5; run++) {
        for (int i = 0; i < 8; i++)
            x[i] = (float)(run * 10 + i);
        assert_int_equal(dlt_exec_feed(e, c->x, x, &c->err), DLT_OK);
        assert_int_equal(dlt_exec_run(e, DLT_PHASE_BATCH, &c->err), DLT_OK);
        memcpy(z, dlt_exec_pointer(e, c->z), sizeof z);
        for (int i = 0; i < 8; i++)
            assert_float_equal(z[i], x[i] + 7, 0);
    }
    assert_int_equal(c->dev.n_record, 1);
    assert_int_equal(c->dev.n_replay, 4);
    assert_int_equal(c->dev.n_launch, 4);
    dlt_exec_profile(e, true); /* times need single nodes, each a program of its own */
    int n_launch = c->dev.n_launch, n_replay = c->dev.n_replay;
    assert_int_equal(dlt_exec_run(e, DLT_PHASE_BATCH, &c->err), DLT_OK);
    assert_true(c->dev.n_launch > n_launch && c->dev.n_replay > n_replay);
    n_launch = c->dev.n_launch;
    assert_int_equal(dlt_exec_run(e, DLT_PHASE_BATCH, &c->err), DLT_OK);
    assert_int_equal(c->dev.n_launch, n_launch); /* recorded once */
    assert_non_null(dlt_exec_step_ns(e));
    dlt_exec_profile(e, false);
    assert_null(dlt_exec_step_ns(e));
    dlt_arena_free(c->arena);
}

static void failures_name_the_node(void **state)
{
    (void)state;
    World *c = world();
    DltExec *e = bind(c, &(DltExecOptions){.seed = 1});
    assert_int_equal(dlt_exec_run(e, DLT_PHASE_BATCH, &c->err), DLT_OK);
    c->dev.fail_launch = 1; /* while recording: the recording is ended all the same */
    assert_int_equal(dlt_exec_run(e, DLT_PHASE_BATCH, &c->err), DLT_E_DEVICE);
    assert_false(c->dev.recording);
    assert_int_equal(c->err.n, 2);
    assert_string_equal(c->err.report[0].text, "launch failed");
    assert_string_equal(c->err.report[1].text, "in node binary of n");
    c->dev.fail_launch = 0;
    c->dev.fail_record_end = 1;
    assert_int_equal(dlt_exec_run(e, DLT_PHASE_BATCH, &c->err), DLT_E_DEVICE);
    c->dev.fail_record_end = 0;
    c->dev.n_call = 0;
    assert_int_equal(dlt_exec_run(e, DLT_PHASE_BATCH, &c->err), DLT_OK);
    c->z->layout = DLT_NCHW8C;
    float z[8];
    assert_int_equal(dlt_exec_read(e, c->z, z, &c->err), DLT_E_BUG);
    dlt_arena_free(c->arena);
}

/* A second graph over the first one's parameters and states, with an averaged copy of w. */
static void shared(void **state)
{
    (void)state;
    World *train = world(), *eval = world();
    DltShape shape = dlt_shape1(8);
    DltTensor *ema = dlt_graph_tensor(train->g, "ema/w", &shape, DLT_F32, DLT_STATE);
    static const DltInit seven = {.kind = DLT_INIT_CONSTANT, .a = 7};
    ema->saved = true;
    ema->init = &seven;
    assert_int_equal(dlt_plan_make(train->arena, train->g, &train->backend, &train->dev, NULL,
                                   &train->plan, &train->err),
                     DLT_OK);
    DltExec *a = bind(train, &(DltExecOptions){.seed = 1});
    eval->plan->dev = &train->dev;
    int before = train->dev.n_alloc;
    DltExec *b = bind(eval, &(DltExecOptions){.share = a});
    assert_int_equal(train->dev.n_alloc, before + 1); /* its inputs; temp and scratch are lent */
    assert_ptr_equal(dlt_exec_pointer(b, eval->w), dlt_exec_pointer(a, train->w));
    assert_ptr_equal(dlt_exec_pointer(b, eval->sum), dlt_exec_pointer(a, train->sum));
    assert_ptr_not_equal(dlt_exec_pointer(b, eval->x), dlt_exec_pointer(a, train->x));
    DltExec *c = bind(eval, &(DltExecOptions){.share = a, .prefix = "ema/", .share_inputs = true});
    assert_int_equal(dlt_exec_bytes(c), 0);
    assert_ptr_equal(dlt_exec_pointer(c, eval->w), dlt_exec_pointer(a, ema));
    assert_ptr_equal(dlt_exec_pointer(c, eval->sum), dlt_exec_pointer(a, train->sum));
    assert_ptr_equal(dlt_exec_pointer(c, eval->x), dlt_exec_pointer(a, train->x));
    train->backend.record_begin = eval->backend.record_begin = NULL;
    run_once(train, a, 1);
    run_once(eval, b, 1);
    run_once(eval, c, 1);
    check_sum(train, a, (1 + 5 + 2) + (1 + 5 + 2) + (1 + 7 + 2), 3);
    eval->w->dtype = DLT_I32; /* the same name for something else */
    DltExec *d = NULL;
    assert_int_equal(
        dlt_exec_new(eval->arena, eval->plan, &(DltExecOptions){.share = a}, &d, &eval->err),
        DLT_E_BUG);
    dlt_arena_free(eval->arena);
    dlt_arena_free(train->arena);
}

/* Dead bytes are NaN after their last use, so a node that read them would show it. */
static void poison(void **state)
{
    (void)state;
    World *c = world();
    DltExec *e = bind(c, &(DltExecOptions){.seed = 1, .poison = true});
    float y[8], z[8];
    memcpy(z, dlt_exec_pointer(e, c->z), sizeof z);
    assert_true(isnan(z[0]));
    float x[8] = {0};
    assert_int_equal(dlt_exec_feed(e, c->x, x, &c->err), DLT_OK);
    assert_int_equal(dlt_exec_run(e, DLT_PHASE_BATCH, &c->err), DLT_OK);
    memcpy(y, dlt_exec_pointer(e, c->y), sizeof y);
    memcpy(z, dlt_exec_pointer(e, c->z), sizeof z);
    assert_true(isnan(y[0]) && isnan(y[7]));
    assert_float_equal(z[7], 7, 0); /* the update phase reads it */
    assert_int_equal(dlt_exec_run(e, DLT_PHASE_UPDATE, &c->err), DLT_OK);
    memcpy(z, dlt_exec_pointer(e, c->z), sizeof z);
    assert_true(isnan(z[0]) && isnan(z[7]));
    check_sum(c, e, 7, 0);
    dlt_arena_free(c->arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eager_on_cpu),
        cmocka_unit_test(recorded),
        cmocka_unit_test(failures_name_the_node),
        cmocka_unit_test(shared),
        cmocka_unit_test(poison),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
