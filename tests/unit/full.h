/* How the exhaustive suites are asked for: DLT_FULL=1 wants every case instead of a sample, and with
 * DLT_PART=I/N as well, N processes share the cases (this one takes those whose number is I modulo N). A
 * word on the command line runs the tests it matches alone. */
#ifndef TEST_FULL_H
#define TEST_FULL_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static inline bool full(void)
{
    return getenv("DLT_FULL") != NULL;
}

/* Case number `n` is this process's. */
static inline bool in_part(int64_t n)
{
    int i = 0, parts = 1;
    const char *text = getenv("DLT_PART");
    if (text != NULL && (sscanf(text, "%d/%d", &i, &parts) != 2 || parts < 1)) abort();
    return n % parts == i;
}

/* What a part may be asked to have done of `least` cases. */
static inline int64_t share(int64_t least)
{
    int64_t n = 0;
    for (int64_t i = 0; i < least; i++)
        n += in_part(i);
    return n;
}

#define FILTER_TESTS(argc, argv)                                                                   \
    do {                                                                                           \
        if ((argc) > 1) cmocka_set_test_filter((argv)[1]);                                         \
    } while (0)

#endif
