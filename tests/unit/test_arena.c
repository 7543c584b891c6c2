/* The arena and growing text: alignment, zeroes, limits, hooks in order, and what missing memory does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/sys.h"
#include "base/text.h"

static bool is_zero(const unsigned char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (bytes[i] != 0) return false;
    }
    return true;
}

static void memory_is_aligned_zeroed_and_apart(void **state)
{
    enum { N = 2000 };
    DltArena *arena = *state;
    unsigned char *block[N];
    size_t sum = 0;
    for (size_t i = 0; i < N; i++) {
        size_t n = i % 97 == 0 ? 100000 : (i * 37) % 700;
        block[i] = dlt_arena_new_bytes(arena, n, 1);
        assert_int_equal((uintptr_t)block[i] % 64, 0);
        assert_true(is_zero(block[i], n));
        memset(block[i], (int)(i % 251), n);
        sum += n;
    }
    for (size_t i = 0; i < N; i++) {
        size_t n = i % 97 == 0 ? 100000 : (i * 37) % 700;
        for (size_t j = 0; j < n; j++)
            assert_int_equal(block[i][j], i % 251);
    }
    assert_true(dlt_arena_bytes(arena) >= sum);
}

static void impossible_sizes_are_refused(void **state)
{
    assert_null(dlt_arena_try(*state, SIZE_MAX, 2));
    assert_null(dlt_arena_try(*state, SIZE_MAX, 1));
    assert_null(dlt_arena_try(*state, (size_t)1 << 62, 1));
    assert_non_null(dlt_arena_try(*state, 0, 8));
}

static jmp_buf oom;
static size_t oom_bytes;

static void on_oom(size_t bytes)
{
    oom_bytes = bytes;
    longjmp(oom, 1);
}

static void missing_memory_reaches_the_handler(void **state)
{
    dlt_arena_on_oom(on_oom);
    oom_bytes = 0;
    if (setjmp(oom) == 0) dlt_arena_new_bytes(*state, (size_t)1 << 62, 1);
    assert_true(oom_bytes == (size_t)1 << 62);
    if (setjmp(oom) == 0) dlt_arena_new_bytes(*state, (size_t)1 << 62, 16);
    assert_true(oom_bytes == SIZE_MAX);
    dlt_arena_on_oom(NULL);
}

typedef struct Order {
    int n, seen[4];
} Order;

typedef struct Hooked {
    Order *order;
    int id;
} Hooked;

static void note_order(void *ctx)
{
    Hooked *h = ctx;
    h->order->seen[h->order->n++] = h->id;
}

static void hooks_run_newest_first(void **state)
{
    (void)state;
    DltArena *arena = dlt_arena_new();
    Order order = {0};
    Hooked hooked[3] = {{&order, 0}, {&order, 1}, {&order, 2}};
    for (int i = 0; i < 3; i++)
        dlt_arena_on_free(arena, note_order, &hooked[i]);
    dlt_arena_free(arena);
    assert_int_equal(order.n, 3);
    assert_int_equal(order.seen[0], 2);
    assert_int_equal(order.seen[2], 0);
    dlt_arena_free(NULL);
}

static void strings_are_copied(void **state)
{
    char text[] = "abc";
    char *copy = dlt_arena_str(*state, text), *part = dlt_arena_strn(*state, text, 2);
    text[0] = 'x';
    assert_string_equal(copy, "abc");
    assert_string_equal(part, "ab");
    assert_string_equal(dlt_arena_printf(*state, "%s-%d", copy, 7), "abc-7");
    size_t n = strlen(dlt_arena_printf(*state, "%*d", 100000, 1));
    assert_int_equal(n, 100000);
}

static void text_grows(void **state)
{
    DltText text = dlt_text(*state);
    assert_string_equal(text.bytes, "");
    for (int i = 0; i < 1000; i++) {
        dlt_text_add(&text, "ab");
        dlt_text_addf(&text, "%03d", i);
        dlt_text_addn(&text, "xyz", 1);
    }
    assert_int_equal(text.n, 6000);
    assert_int_equal(strlen(text.bytes), 6000);
    assert_string_equal(text.bytes + 5994, "ab999x");
    dlt_text_addf(&text, "%*d", 100000, 1);
    assert_int_equal(strlen(text.bytes), 106000);
}

static void pages_are_zeroed_and_aligned(void **state)
{
    (void)state;
    size_t n = ((size_t)3 << 20) + 5;
    unsigned char *pages = dlt_sys_pages(n);
    assert_non_null(pages);
    assert_int_equal((uintptr_t)pages % (2 << 20), 0);
    assert_true(is_zero(pages, n));
    memset(pages, 1, n);
    dlt_sys_pages_free(pages, n);
    assert_null(dlt_sys_pages(SIZE_MAX));
    unsigned char *grown = dlt_sys_realloc(NULL, 0, 10);
    memset(grown, 7, 10);
    grown = dlt_sys_realloc(grown, 10, 1000);
    assert_int_equal(grown[9], 7);
    dlt_sys_free(grown);
}

static int new_arena(void **state)
{
    *state = dlt_arena_new();
    return *state == NULL;
}

static int free_arena(void **state)
{
    dlt_arena_free(*state);
    return 0;
}

#define ARENA_TEST(f) cmocka_unit_test_setup_teardown(f, new_arena, free_arena)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ARENA_TEST(memory_is_aligned_zeroed_and_apart),
        ARENA_TEST(impossible_sizes_are_refused),
        ARENA_TEST(missing_memory_reaches_the_handler),
        ARENA_TEST(hooks_run_newest_first),
        ARENA_TEST(strings_are_copied),
        ARENA_TEST(text_grows),
        ARENA_TEST(pages_are_zeroed_and_aligned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
