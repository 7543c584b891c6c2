/* The workloads of `dltrain bench`: rows of SPEED's tables as configs that are compiled in, with what is
 * changed in them. */
#ifndef DLT_BENCH_WORK_H
#define DLT_BENCH_WORK_H

#include <stdbool.h>
#include <stdint.h>

enum { BENCH_CPU = 1, BENCH_CUDA = 2, BENCH_MAX_SET = 5 };
typedef struct BenchWork {
    const char *name, *what; /* "mlp", chosen by --only; for people */
    const char *config;      /* of dlt_bench_configs */
    unsigned devices;        /* BENCH_* bits */
    const char *precision;
    int64_t batch, window; /* samples an update; updates of a window. window 0: a whole process */
    double per_sample;     /* what is counted of a sample: 1, or its tokens */
    double bar_ms;         /* on an H200, 0: none; of a process: in ms too */
    const char *set[BENCH_MAX_SET]; /* key=value; @ stands for the bench's own folder */
} BenchWork;
extern const BenchWork bench_works[]; /* ends with a NULL name */

typedef struct BenchConfig {
    const char *name, *text;
} BenchConfig;
extern const BenchConfig dlt_bench_configs[]; /* made by the Makefile; ends with a NULL name */

#endif
