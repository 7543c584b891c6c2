/* The vectorisable functions of core/cpu/vmath.h against the C library in double, over every
 * exponent of the arguments that matter, and at the ends of the range. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cpu/vmath.h"

typedef struct Function {
    float (*got)(float x);
    double (*want)(double x);
    double bound; /* on the relative error */
} Function;

static float exp_of(float x)
{
    return dlt_exp(x);
}

static float tanh_of(float x)
{
    return dlt_tanh(x);
}

static float exp_down_of(float x)
{
    return dlt_exp_down(x < 0 ? x : -x);
}

static double exp_down(double x)
{
    return fabs(x) <= 87 ? exp(-fabs(x)) : 0;
}

static float normal_cdf_of(float x)
{
    return dlt_normal_cdf(x);
}

static double normal_cdf(double x)
{
    return 0.5 * erfc(-x * 0.70710678118654752440);
}

static const Function functions[] = {
    {exp_of, exp, 1e-7},
    {tanh_of, tanh, 2e-7},
    {exp_down_of, exp_down, 1e-7},
};

/* Every 1009th float (a prime: all mantissas take part) with |x| in [2^-40, 128]. */
static void relative_error(void **state)
{
    const Function *f = *state;
    double worst = 0;
    float where = 0;
    for (uint32_t bits = (127 - 40) << 23; bits < (127 + 7) << 23; bits += 1009) {
        for (uint32_t sign = 0; sign < 2; sign++) {
            uint32_t both = bits | sign << 31;
            float x;
            memcpy(&x, &both, sizeof x);
            double want = f->want((double)x);
            if (want > 3e38 || fabs(want) < 1.2e-38) continue; /* infinity, subnormals: below */
            double error = fabs((double)f->got(x) - want) / fabs(want);
            if (error <= worst) continue;
            worst = error;
            where = x;
        }
    }
    print_message("worst relative error %.3g at %.9g\n", worst, (double)where);
    assert_true(worst < f->bound);
}

static void ends_of_the_range(void **state)
{
    (void)state;
    assert_true(isinf(exp_of(89)) && isinf(exp_of(INFINITY)) && exp_of(-INFINITY) == 0);
    assert_true(exp_of(-104) == 0 && exp_of(-1e30F) == 0 && exp_of(0) == 1);
    assert_true(fabs((double)exp_of(-95) / exp(-95) - 1) < 1e-3); /* subnormal: few bits */
    assert_true(tanh_of(0) == 0 && tanh_of(INFINITY) == 1 && tanh_of(-INFINITY) == -1);
    assert_true(exp_down_of(-INFINITY) == 0 && exp_down_of(-87.5F) == 0 && exp_down_of(0) == 1);
    assert_true(normal_cdf_of(INFINITY) == 1 && normal_cdf_of(-INFINITY) == 0);
    assert_true(isnan(exp_of(NAN)) && isnan(tanh_of(NAN)));
    assert_true(isnan(exp_down_of(NAN)) && isnan(normal_cdf_of(NAN)));
}

/* What GELU is made of: the distribution, and x times it. The fit errs by 1e-8, the rest is rounding. */
static void error_of_the_distribution(void **state)
{
    (void)state;
    double worst = 0, times_x = 0;
    for (int i = -140000; i <= 140000; i++) {
        float x = (float)i * 1e-4F;
        double error = fabs((double)normal_cdf_of(x) - normal_cdf((double)x));
        worst = fmax(worst, error);
        times_x = fmax(times_x, error * fabs((double)x));
    }
    print_message("worst error %.3g, times x %.3g\n", worst, times_x);
    assert_true(worst < 2.5e-7 && times_x < 2.5e-7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {"exp", relative_error, NULL, NULL, (void *)&functions[0]},
        {"tanh", relative_error, NULL, NULL, (void *)&functions[1]},
        {"exp of x <= 0", relative_error, NULL, NULL, (void *)&functions[2]},
        cmocka_unit_test(error_of_the_distribution),
        cmocka_unit_test(ends_of_the_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
