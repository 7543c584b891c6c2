/* The checkpoint fuzzer's corpus and changes of it, without the fuzzer: no input may harm. Changes are
 * drawn from a fixed seed, so that a failure can be run again. */
#include "data_help.h"

#include "../fuzz/checkpoint_target.h"
#include "base/rng.h"
#include <dirent.h>

enum { CHANGES = 300 };

/* Up to four bytes replaced, mostly in the header; then perhaps a cut. */
static int64_t change(uint8_t *bytes, int64_t n, uint64_t seed)
{
    static const uint8_t spice[] = {0, '0', '9', '"', '{', '}', '[', ']', ',', ':', '-', 255};
    DltRand4 r = dlt_philox(seed, 1, 0);
    for (uint64_t i = 0; i <= r.v[0] % 4; i++) {
        DltRand4 s = dlt_philox(seed, 2, i);
        bytes[s.v[0] % n] = s.v[1] % 4 ? spice[s.v[2] % sizeof spice] : (uint8_t)(s.v[2] & 255);
    }
    return r.v[1] % 4 == 0 ? 1 + r.v[2] % n : n;
}

static void corpus_and_changes_do_no_harm(void **state)
{
    Help *h = *state;
    int n_input = 0;
    DIR *dir = opendir("tests/fuzz/corpus/checkpoint");
    assert_non_null(dir);
    for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        int64_t n;
        if (entry->d_name[0] == '.') continue;
        char *path = dlt_path_join(h->arena, "tests/fuzz/corpus/checkpoint", entry->d_name);
        uint8_t *bytes = help_file(h, path, &n);
        uint64_t seed = dlt_hash(entry->d_name, strlen(entry->d_name), 0); /* in any order */
        uint8_t *copy = DLT_NEW_ARRAY(h->arena, n, uint8_t);
        checkpoint_target(bytes, (size_t)n);
        for (uint64_t i = 0; i < CHANGES; i++) {
            memcpy(copy, bytes, (size_t)n);
            checkpoint_target(copy, (size_t)change(copy, n, seed + i));
        }
        n_input++;
    }
    closedir(dir);
    assert_true(n_input >= 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {help_test(corpus_and_changes_do_no_harm)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
