/* Held-out shares and normalisation: which samples, and which numbers. */
#include "base/text.h"
#include "data_help.h"
#include <math.h>

/* A table of n rows x, label (x modulo 2) whose values come from `value`. */
static const char *table(Help *h, int n, int (*value)(int i))
{
    DltText t = dlt_text(h->arena);
    dlt_text_add(&t, "x,y\n");
    for (int i = 0; i < n; i++)
        dlt_text_addf(&t, "%d,%d\n", value(i), value(i) % 2);
    return help_write("split.csv", t.bytes, (int64_t)t.n);
}

static int same(int i)
{
    return i;
}

static int backwards_twice(int i)
{
    return 1999 - i / 2;
}

/* Which of the values 0..1999 are held out, and that equal rows are on one side. */
static void held_values(Help *h, int n, int (*value)(int i), double fraction, bool held[2000])
{
    enum { UNSEEN, TRAIN, HELD };
    char yaml[300], side[2000] = {0};
    DltDataset ds;
    DltSplit part[2];
    const char *path = table(h, n, value);
    snprintf(yaml, sizeof yaml, "csv: %s\ntarget: y\n", path);
    help_ok(h, help_open(h, "csv", yaml, &ds));
    unlink(path);
    help_ok(h, dlt_split_fraction(h->arena, &ds, fraction, &part[0], &part[1], &h->err));
    assert_int_equal(part[0].n + part[1].n, n);
    for (int s = 0; s < 2; s++) {
        for (int64_t i = 0; i < part[s].n; i++) {
            float x;
            int32_t y;
            if (i > 0) assert_true(part[s].id[i] > part[s].id[i - 1]);
            help_read(h, &ds, part[s].id[i], &x, &y);
            char *seen = &side[(int)x];
            assert_true(*seen == UNSEEN || *seen == (s == 0 ? TRAIN : HELD));
            *seen = s == 0 ? TRAIN : HELD;
        }
    }
    for (int v = 0; v < 2000; v++) {
        assert_int_not_equal(side[v], UNSEEN);
        held[v] = side[v] == HELD;
    }
}

static void splits_are_stable(void **state)
{
    Help *h = *state;
    bool ten[2000], again[2000], twenty[2000];
    int n = 0;
    held_values(h, 2000, same, 0.1, ten);
    held_values(h, 4000, backwards_twice, 0.1, again); /* reordered, every row twice */
    held_values(h, 2000, same, 0.2, twenty);
    assert_memory_equal(ten, again, sizeof ten);
    for (int i = 0; i < 2000; i++) {
        n += ten[i];
        assert_true(!ten[i] || twenty[i]); /* a larger share contains the smaller one */
    }
    assert_true(n > 146 && n < 254); /* 200 +- 4 sigma of a binomial */
    DltDataset ds;
    DltSplit train, held;
    help_ok(h, help_open(h, "synthetic", "shape: 4\nsamples: 2\n", &ds));
    DltStatus status = dlt_split_fraction(h->arena, &ds, 1e-9, &train, &held, &h->err);
    help_refused(h, status, DLT_E_DATA, "both must have some");
}

/* Against two-pass sums in long double over the same samples. */
static void means_are_right(void **state)
{
    static const char *const sets[] = {"shape: [3, 5, 4]\nsamples: 200\ndtype: u8\n",
                                       "shape: [3, 5, 4]\nsamples: 200\n",
                                       "shape: 6\nsamples: 300\n"};
    Help *h = *state;
    for (int k = 0; k < 3; k++) {
        DltDataset ds;
        double *mean, *std;
        uint8_t b[60];
        float f[60];
        int32_t y;
        help_ok(h, help_open(h, "synthetic", sets[k], &ds));
        int64_t some[100];
        for (int i = 0; i < 100; i++)
            some[i] = 2 * i + 1;
        DltSplit s = {&ds, 100, some};
        help_ok(h, dlt_norm_measure(h->arena, &s, &mean, &std, &h->err));
        int count = (int)dlt_norm_count(&ds), inner = k == 2 ? 1 : 20;
        assert_int_equal(count, k == 2 ? 6 : 3);
        for (int c = 0; c < count; c++) {
            long double sum = 0, square = 0;
            for (int pass = 0; pass < 2; pass++) {
                for (int i = 0; i < 100; i++) {
                    help_read(h, &ds, some[i], k == 0 ? (void *)b : (void *)f, &y);
                    for (int e = c * inner; e < (c + 1) * inner; e++) {
                        long double v = k == 0 ? b[e] / 255.0L : (long double)f[e];
                        if (pass == 0)
                            sum += v / (100 * inner);
                        else
                            square += (v - sum) * (v - sum) / (100 * inner);
                    }
                }
            }
            /* x_scale is 1/255 in f32: 6e-8 off */
            assert_true(fabsl((long double)mean[c] - sum) < 1e-7L);
            assert_true(fabsl((long double)std[c] - sqrtl(square)) < 1e-7L);
        }
    }
}

static void constant_columns_divide_by_one(void **state)
{
    Help *h = *state;
    DltDataset ds;
    double *mean, *std;
    help_ok(h, help_open(h, "synthetic", "shape: 3\nclasses: 0\nnoise: 0\nsamples: 9\n", &ds));
    DltSplit all = {&ds, ds.n, NULL};
    help_ok(h, dlt_norm_measure(h->arena, &all, &mean, &std, &h->err));
    assert_true(mean[0] == 0 && std[0] == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        help_test(splits_are_stable),
        help_test(means_are_right),
        help_test(constant_columns_divide_by_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
