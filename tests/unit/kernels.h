/* What tests of single CPU kernels share: a device, operands in place, one op run on them. Included behind
 * cmocka.h and tests/cases/cases.h. */
#ifndef TESTS_UNIT_KERNELS_H
#define TESTS_UNIT_KERNELS_H

#include <math.h>

typedef struct Fixture {
    DltArena *arena;
    DltDevice *dev;
    DltErr err;
} Fixture;

static int setup(void **state)
{
    Fixture *f = dlt_sys_alloc(sizeof *f);
    f->arena = dlt_arena_new();
    f->dev = case_cpu_device(f->arena, 2);
    dlt_err_init(&f->err);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    Fixture *f = *state;
    dlt_backend_cpu.close(f->dev);
    dlt_arena_free(f->arena);
    dlt_sys_free(f);
    return 0;
}

#define F32(at_, ...)                                                                              \
    {                                                                                              \
        DLT_F32, {CASE_RANK(__VA_ARGS__), {__VA_ARGS__}}, at_                                      \
    }
#define I32(at_, ...)                                                                              \
    {                                                                                              \
        DLT_I32, {CASE_RANK(__VA_ARGS__), {__VA_ARGS__}}, at_                                      \
    }
#define F64(at_, ...)                                                                              \
    {                                                                                              \
        DLT_F64, {CASE_RANK(__VA_ARGS__), {__VA_ARGS__}}, at_                                      \
    }
#define U8(at_, ...)                                                                               \
    {                                                                                              \
        DLT_U8, {CASE_RANK(__VA_ARGS__), {__VA_ARGS__}}, at_                                       \
    }
#define STEP_OF(step) U8(&step, sizeof step)
#define N_OF(array) ((int)(sizeof(array) / sizeof(array)[0]))

static void run(Fixture *f, DltOpKind kind, const void *attr, const CaseOperand *in, int n_in,
                void *out)
{
    void *const outs[DLT_MAX_OUT] = {out};
    assert_int_equal(case_op(f->dev, kind, attr, in, n_in, outs, &f->err), DLT_OK);
}

static void assert_floats(const float *got, const float *want, int n, float tolerance)
{
    for (int i = 0; i < n; i++) {
        if (fabsf(got[i] - want[i]) <= tolerance) continue;
        fail_msg("[%d] is %.9g, expected %.9g", i, (double)got[i], (double)want[i]);
    }
}

#endif
