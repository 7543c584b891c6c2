/* The fuzzer's corpus and mutations of it, without the fuzzer: no input may harm. Mutations are drawn
 * from a fixed seed, so that a failure can be run again. */
#include "config_help.h"

#include "../fuzz/config_target.h"
#include "base/file.h"
#include "base/rng.h"
#include <dirent.h>

enum { MAX_INPUTS = 256, MUTATIONS = 40 };

typedef struct Input {
    const char *name;
    char *bytes;
    int64_t n;
} Input;

static int read_folder(Help *h, const char *folder, const char *ending, Input input[], int n)
{
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (struct dirent *entry = readdir(dir); entry != NULL && n < MAX_INPUTS;
         entry = readdir(dir)) {
        size_t len = strlen(entry->d_name), len_ending = strlen(ending);
        if (entry->d_name[0] == '.' || len < len_ending) continue;
        if (strcmp(entry->d_name + len - len_ending, ending) != 0) continue;
        Input *in = &input[n++];
        in->name = dlt_path_join(h->arena, folder, entry->d_name);
        DltStatus status =
            dlt_file_read(h->arena, in->name, (DltFileRule){1 << 20, DLT_E_DATA, DLT_NO_MARK},
                          &in->bytes, &in->n, &h->err);
        assert_int_equal(status, DLT_OK);
    }
    closedir(dir);
    return n;
}

/* A few bytes changed, taken away or doubled; or a piece of another input put in. */
static int64_t mutate(const Input *a, const Input *b, uint64_t seed, char *out)
{
    static const char spice[] = "{}[]:,-?&*!|>'\"%@`# \n\t$0aZ_.\\\xff";
    memcpy(out, a->bytes, (size_t)a->n);
    int64_t n = a->n;
    DltRand4 r = dlt_philox(seed, 9, 0);
    for (uint64_t i = 0; i <= r.v[0] % 4 && n > 0; i++) {
        DltRand4 s = dlt_philox(seed, 10, i);
        int64_t at = s.v[0] % n, len = 1 + s.v[1] % 8;
        if (at + len > n) len = n - at;
        if (s.v[2] % 4 == 0) {
            out[at] = spice[s.v[3] % (sizeof spice - 1)];
        } else if (s.v[2] % 4 == 1) {
            memmove(out + at, out + at + len, (size_t)(n - at - len));
            n -= len;
        } else if (s.v[2] % 4 == 2) {
            memmove(out + at + len, out + at, (size_t)(n - at));
            n += len;
        } else if (b->n > len) {
            memcpy(out + at, b->bytes + s.v[3] % (b->n - len), (size_t)len);
        }
    }
    return n;
}

static void corpus_and_mutations_do_no_harm(void **state)
{
    Help *h = *state;
    Input input[MAX_INPUTS];
    int n = read_folder(h, "tests/fuzz/corpus/config", "", input, 0);
    assert_true(n >= 10);
    n = read_folder(h, "configs", ".yaml", input, n);
    for (int i = 0; i < n; i++) {
        config_target((const uint8_t *)input[i].bytes, (size_t)input[i].n);
        char *out = dlt_arena_new_bytes(h->arena, (size_t)input[i].n + 64, 1);
        for (uint64_t m = 0; m < MUTATIONS; m++) {
            const Input *other = &input[dlt_philox(m, 11, (uint64_t)i).v[0] % (unsigned)n];
            int64_t len = mutate(&input[i], other, (uint64_t)i * MUTATIONS + m, out);
            config_target((const uint8_t *)out, (size_t)len);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {HELP_TEST(corpus_and_mutations_do_no_harm)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
