/* Schedules: against PyTorch's schedulers (tests/golden/torch/schedules.txt), at the edges of
 * CASES.md C46, and as pure functions of the update number (C47). */
#include "tests/golden/torch_file.h"

#include "api/train.h"

#include <math.h>

enum { MAX_PIECES = 4 };

typedef struct Plan {
    DltSchedule s;
    DltSchedulePiece piece[MAX_PIECES];
} Plan;

/* Reads "[{warmup: 5 steps}, {cosine: {...}}]"; spans are in steps. A last piece without span gets
 * `rest` updates. */
static void read_plan(DltArena *arena, const char *text, double lr, int64_t rest, Plan *p)
{
    DltErr err;
    dlt_err_init(&err);
    const DltYaml *list = torch_yaml(arena, text), *value;
    assert_int_equal(list->kind, DLT_YAML_LIST);
    assert_true(list->n <= MAX_PIECES);
    *p = (Plan){.s = {.n_piece = list->n, .base = lr}};
    p->s.piece = p->piece;
    for (int i = 0; i < list->n; i++) {
        const DltScheduleDef *def = dlt_schedule_find(torch_kind(list->item[i], &value));
        assert_non_null(def);
        DltOpts o;
        torch_ok(dlt_schema_read(arena, def->fields, def->opt_size, value,
                                 (DltWhere){def->name, list->item[i]->at}, &o, &err),
                 &err);
        DltSpan span;
        memcpy(&span, (const char *)o.v + def->span_offset, sizeof span);
        int64_t n = span.unit == DLT_U_NONE ? rest : (int64_t)span.n;
        p->piece[i] = (DltSchedulePiece){.def = def, .opts = o.v, .n = n};
    }
}

/* 1e-13 of the peak: PyTorch's recursive forms carry an ulp an update. */
static void like_torch(void **state)
{
    (void)state;
    DltArena *arena = dlt_arena_new();
    TorchFile f = torch_read(arena, "tests/golden/torch/schedules.txt");
    for (int k = 0; k < f.n_case; k++) {
        const TorchCase *c = &f.test[k];
        double lr = torch_get(c, "num", "lr")->v[0];
        const TorchItem *want = torch_get(c, "out", "rate");
        Plan p;
        read_plan(arena, c->config, lr, want->n, &p);
        for (int64_t u = 0; u < want->n; u++) {
            double have = dlt_schedule_rate(&p.s, u);
            if (!(fabs(have - want->v[u]) <= 1e-13 * lr))
                fail_msg("%s: rate of update %d is %.17g, not %.17g", c->name, (int)u, have,
                         want->v[u]);
        }
    }
    dlt_arena_free(arena);
}

static const char *const tails[] = {
    "constant",
    "cosine",
    "cosine: {to: 1e-3}",
    "cosine: {cycles: 3}",
    "linear",
    "linear: {to: 0.01}",
    "step: {every: 3 steps}",
    "exponential: {gamma: 0.9}",
    "inverse_sqrt",
    "one_cycle",
    "one_cycle: {pct_start: 0, anneal: linear}",
    "one_cycle: {pct_start: 1}",
};
enum { N_TAIL = sizeof tails / sizeof tails[0] };
/* Those that never rise after the warm-up. */
static bool falls(int k)
{
    return !strstr(tails[k], "cycle");
}

/* Every schedule x totals x warm-ups: finite, in [0, peak]; the warm-up rises and, where promised,
 * the rest falls. */
static void edges(void **state)
{
    (void)state;
    const double lr = 0.1;
    const int64_t totals[] = {0, 1, 2, 10};
    DltArena *arena = dlt_arena_new();
    for (int k = 0; k < N_TAIL; k++)
        for (int a = 0; a < 4; a++)
            for (int b = 0; b < 5; b++) {
                int64_t total = totals[a];
                const int64_t warmups[] = {0, 1, total - 1, total, total + 1};
                int64_t warm = warmups[b] > 0 ? warmups[b] : 0;
                Plan p;
                read_plan(arena,
                          dlt_arena_printf(arena, "[{warmup: %d steps}, {%s%s}]", (int)warm,
                                           tails[k], strchr(tails[k], ':') ? "" : ": {}"),
                          lr, total - warm, &p);
                double before = 0.0;
                for (int64_t u = 0; u < total + 5; u++) {
                    double rate = dlt_schedule_rate(&p.s, u);
                    if (!(isfinite(rate) && rate >= 0.0 && rate <= lr))
                        fail_msg("%s, total %d, warm-up %d: update %d runs at %g", tails[k],
                                 (int)total, (int)warm, (int)u, rate);
                    if (u < warm) assert_true(rate >= before && rate > 0.0);
                    if (u + 1 == warm) assert_true(rate == lr);
                    if (u > warm && falls(k)) assert_true(rate <= before);
                    before = rate;
                }
            }
    dlt_arena_free(arena);
}

/* Bit-equal rates whatever was asked before: there is nothing to resume. */
static void pure(void **state)
{
    (void)state;
    DltArena *arena = dlt_arena_new();
    for (int k = 0; k < N_TAIL; k++) {
        Plan p;
        double rates[110];
        read_plan(arena,
                  dlt_arena_printf(arena, "[{warmup: 10 steps}, {%s%s}]", tails[k],
                                   strchr(tails[k], ':') ? "" : ": {}"),
                  3e-4, 90, &p);
        for (int64_t u = 0; u < 110; u++)
            rates[u] = dlt_schedule_rate(&p.s, u);
        for (int64_t stop = 100; stop >= 0; stop--)
            for (int64_t u = stop; u < 110; u++)
                assert_memory_equal(&rates[u], &(double){dlt_schedule_rate(&p.s, u)},
                                    sizeof(double));
        for (int64_t u = 100; u < 110; u++)
            assert_true(rates[u] == rates[109]); /* the final rate holds */
    }
    dlt_arena_free(arena);
}

/* Values worked out by hand. */
static void by_hand(void **state)
{
    (void)state;
    const struct {
        const char *config;
        int64_t update;
        double rate;
    } rows[] = {
        {"[{warmup: 4 steps}, {constant: {}}]", 0, 0.25},
        {"[{warmup: 4 steps}, {constant: {}}]", 3, 1.0},
        {"[{warmup: 4 steps}, {constant: {}}]", 1000, 1.0},
        {"[{linear: {span: 10 steps, to: 0.5}}, {linear: {span: 10 steps, to: 0.1}}]", 15, 0.3},
        {"[{linear: {span: 10 steps, to: 2}}]", 5, 1.5},
        {"[{cosine: {span: 10 steps, to: 0.5}}, {constant: {}}]", 12, 0.5},
        {"[{cosine: 10 steps}]", 5, 0.5},
        {"[{cosine: {span: 10 steps, cycles: 2}}]", 5, 1.0},
        {"[{cosine: {span: 10 steps, cycles: 2}}]", 10, 0.0},
        {"[{step: {span: 9 steps, every: 3 steps}}]", 2, 1.0},
        {"[{step: {span: 9 steps, every: 3 steps}}]", 3, 0.1},
        {"[{exponential: {span: 9 steps, gamma: 0.25, every: 2 steps}}]", 3, 0.125},
        {"[{warmup: 4 steps}, {inverse_sqrt: {}}]", 16, 0.5},
        {"[{warmup: 2 steps}, {cosine: 2 steps}, {warmup: 2 steps}, {cosine: {}}]", 4, 0.5},
    };
    DltArena *arena = dlt_arena_new();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        Plan p;
        read_plan(arena, rows[i].config, 1.0, 50, &p);
        double rate = dlt_schedule_rate(&p.s, rows[i].update);
        if (!(fabs(rate - rows[i].rate) <= 1e-15))
            fail_msg("%s: update %d runs at %.17g, not %g", rows[i].config, (int)rows[i].update,
                     rate, rows[i].rate);
    }
    DltSchedule none = {.base = 0.3};
    assert_true(dlt_schedule_rate(&none, 12345) == 0.3);
    dlt_arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(like_torch),
        cmocka_unit_test(edges),
        cmocka_unit_test(pure),
        cmocka_unit_test(by_hand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
