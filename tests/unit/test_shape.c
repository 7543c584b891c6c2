/* Shapes and element types: products with their overflow checks, texts, the table of types. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/dtype.h"
#include "base/shape.h"

static void makers_agree(void **state)
{
    (void)state;
    DltShape a = dlt_shape(4, (int64_t)2, (int64_t)3, (int64_t)4, (int64_t)5),
             b = dlt_shape4(2, 3, 4, 5);
    assert_true(dlt_shape_equal(&a, &b));
    DltShape c = dlt_shape2(2, 3), d = dlt_shape2(2, 4), e = dlt_shape1(2), none = dlt_shape(0);
    assert_false(dlt_shape_equal(&c, &d));
    assert_false(dlt_shape_equal(&c, &e));
    assert_int_equal(dlt_shape_count(&a), 120);
    assert_int_equal(dlt_shape_count(&none), 1);
    assert_int_equal(dlt_shape_span(&a, 1, 3), 12);
    assert_int_equal(dlt_shape_span(&a, 2, 2), 1);
    assert_int_equal(dlt_shape_dim(&a, 0), 2);
    assert_int_equal(dlt_shape_dim(&a, -1), 5);
}

static void bytes_are_checked(void **state)
{
    (void)state;
    int64_t bytes = -1;
    DltShape s = dlt_shape2((int64_t)1 << 31, (int64_t)1 << 29);
    assert_true(dlt_shape_bytes(&s, 4, &bytes));
    assert_true(bytes == (int64_t)1 << 62);
    assert_false(dlt_shape_bytes(&s, 8, &bytes));
    DltShape negative = dlt_shape2(3, -1), empty = dlt_shape2(0, INT64_MAX);
    assert_false(dlt_shape_bytes(&negative, 4, &bytes));
    assert_true(dlt_shape_bytes(&empty, 1, &bytes));
    assert_int_equal(bytes, 0);
}

static void texts_fit(void **state)
{
    (void)state;
    char buf[DLT_SHAPE_TEXT];
    DltShape s = dlt_shape2(3, 257), none = dlt_shape(0);
    assert_string_equal(dlt_shape_text(&s, buf), "[3, 257]");
    assert_string_equal(dlt_shape_text(&none, buf), "[]");
    DltShape widest =
        dlt_shape(6, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX);
    dlt_shape_text(&widest, buf);
    assert_int_equal(strlen(buf), 6 * 19 + 5 * 2 + 2);
    assert_int_equal(buf[strlen(buf) - 1], ']');
}

static void types_are_all_there(void **state)
{
    (void)state;
    static const size_t bytes[DLT_N_DTYPE] = {4, 2, 2, 1, 1, 8, 4, 8, 1};
    for (int i = 0; i < DLT_N_DTYPE; i++) {
        assert_int_equal(dlt_dtype_bytes((DltDtype)i), bytes[i]);
        assert_true(strlen(dlt_dtype_name((DltDtype)i)) >= 2);
        assert_int_equal(dlt_dtype_is_float((DltDtype)i), i < DLT_I32);
    }
    assert_string_equal(dlt_dtype_name(DLT_BF16), "bf16");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(makers_agree),
        cmocka_unit_test(bytes_are_checked),
        cmocka_unit_test(texts_fit),
        cmocka_unit_test(types_are_all_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
