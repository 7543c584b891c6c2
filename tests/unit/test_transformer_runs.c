/* Whole runs of small transformers (and of recomputed convolutions): recomputation changes memory and not one bit of the result; a cut
 * run resumes exactly with dropout inside attention; micro batches are chosen by the plan. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runs.h"

DltStatus dlt_backend_find(const char *name, DltMark at, const DltBackend **backend, DltErr *err)
{
    (void)name, (void)at, (void)err;
    *backend = &dlt_backend_cpu;
    return DLT_OK;
}

/* A text of 2,000 characters over 5 letters, and a small GPT on it. */
#define GPT                                                                                        \
    "dltrain: 1\nname: t\nseed: 3\n"                                                               \
    "data: {tokenizer: chars, window: 13, train: {text: t.txt}, val: 10%% of train}\n"             \
    "model:\n"                                                                                     \
    "  - {embedding: 12, name: wte}\n  - {position: {max: 16}}\n"                                  \
    "  - residual: [layer_norm, {attention: {heads: 3, causal: true, dropout: 0.2, qk_norm: "      \
    "true, rope: true, out_init: scaled}}, {dropout: 0.1}]\n"                                      \
    "  - residual: [layer_norm, {dense: 24}, gelu, {dense: {units: 12, init: scaled}}]\n"          \
    "  - residual: [rms_norm, {attention: {heads: 2, kv_heads: 1, causal: true, window: 5}}]\n"    \
    "  - residual: [rms_norm, {swiglu: 20}]\n"                                                     \
    "  - layer_norm\n  - {dense: {units: \"${data.vocab}\", bias: false, tie: wte.weight}}\n"      \
    "loss: cross_entropy\n"                                                                        \
    "train:\n  for: 9 steps\n  batch: %s\n  optimizer: {%s}\n  clip: {norm: 1}\n  recompute: %s\n" \
    "eval: {every: 3 steps, metrics: [loss, top1, perplexity]}\n"                                  \
    "checkpoint: {every: 3 steps, keep: {last: 2, best: 1 by val.loss min}}\n"

static const char *gpt(DltArena *arena, const char *batch, const char *optimizer,
                       const char *recompute)
{
    FILE *f = fopen("t.txt", "w");
    assert_non_null(f);
    for (int i = 0; i < 2000; i++)
        fputc("abcde"[i * i % 7 * (i % 3 + 1) % 5], f);
    assert_int_equal(fclose(f), 0);
    return dlt_arena_printf(arena, GPT, batch, optimizer, recompute);
}

static void recompute_is_exact(void **state)
{
    (void)state;
    static const char *const mode[] = {"none", "mlp", "blocks"};
    DltArena *arena = dlt_arena_new();
    for (int i = 0; i < 3; i++) {
        const char *text = gpt(arena, "{global: 8, micro: 4}", "adamw: {lr: 0.01}", mode[i]);
        remove_folder(mode[i]);
        done(train(text, (DltRunOptions){.out = mode[i], .poison = true}), DLT_OK);
    }
    same_tensors("none/last.bin", "mlp/last.bin");
    same_tensors("none/last.bin", "blocks/last.bin");
    dlt_arena_free(arena);
}

/* Convolutions are made again, batch norms behind them are not: those change their statistics. */
static void recompute_of_convolutions_is_exact(void **state)
{
    (void)state;
    static const char *const mode[] = {"none", "blocks"};
    static const char conv[] = "{conv: {filters: 4, kernel: 3, pad: same, bias: false}}";
    DltArena *arena = dlt_arena_new();
    for (int i = 0; i < 2; i++) {
        const char *text = dlt_arena_printf(
            arena,
            "dltrain: 1\nname: c\nseed: 3\n"
            "data: {train: {synthetic: {shape: [4, 6, 6], classes: 3, samples: 24}}}\n"
            "model:\n  - residual: [%s, batch_norm, relu, %s, batch_norm, relu]\n"
            "  - residual: [%s, batch_norm, relu, %s, batch_norm]\n"
            "  - relu\n  - flatten\n  - {dense: 3}\nloss: cross_entropy\n"
            "train: {for: 6 steps, batch: 6, optimizer: {sgd: 0.1}, recompute: %s}\n",
            conv, conv, conv, conv, mode[i]);
        remove_folder(mode[i]);
        done(train(text, (DltRunOptions){.out = mode[i], .poison = true}), DLT_OK);
    }
    same_tensors("none/last.bin", "blocks/last.bin");
    dlt_arena_free(arena);
}

/* Bytes of the training program's activations, and the micro batch that was used. */
static size_t activations(const char *text, int64_t *micro)
{
    Run *r = new_run();
    DltModelGraph *m = NULL;
    DltPlan *plan = NULL;
    DltSpec *spec = read_spec(r, text);
    DltRunOptions o = {.n_thread = 1};
    assert_int_equal(dlt_run_plan(r->arena, spec, &o, &m, &plan, &r->err), DLT_OK);
    size_t bytes = plan->region_bytes[DLT_TEMP];
    *micro = dlt_dim(m->x, 0);
    assert_int_equal(*micro, spec->train.micro);
    dlt_arena_free(r->arena);
    return bytes;
}

static void recompute_saves_memory(void **state)
{
    (void)state;
    DltArena *arena = dlt_arena_new();
    int64_t micro;
    size_t none = activations(gpt(arena, "32", "sgd: 0.1", "none"), &micro);
    size_t mlp = activations(gpt(arena, "32", "sgd: 0.1", "mlp"), &micro);
    size_t blocks = activations(gpt(arena, "32", "sgd: 0.1", "blocks"), &micro);
    if (!(mlp < none && blocks < mlp))
        fail_msg("%zu bytes, mlp %zu, blocks %zu", none, mlp, blocks);
    assert_true(activations(gpt(arena, "32", "sgd: 0.1", "auto"), &micro) == none);
    assert_int_equal(micro, 32);
    (void)activations(gpt(arena, "{global: 390 tokens, micro: auto}", "sgd: 0.1", "auto"), &micro);
    assert_int_equal(micro, 30);
    dlt_arena_free(arena);
}

static void resume_is_exact(void **state)
{
    (void)state;
    static const char *const optimizer[] = {
        "adamw: {lr: 0.01}", "lamb: 0.01",
        "muon: 0.02, groups: [{match: \"*norm*\", weight_decay: 0.1}]"};
    DltArena *arena = dlt_arena_new();
    for (int i = 0; i < 3; i++) {
        const char *text = gpt(arena, "{global: 8, micro: auto}", optimizer[i], "blocks");
        remove_folder("whole");
        remove_folder("cut");
        done(train(text, (DltRunOptions){.out = "whole"}), DLT_OK);
        done(train(text, (DltRunOptions){.out = "cut", .stop_at = 5}), DLT_STOPPED);
        done(resume(text, "cut/last.bin", (DltRunOptions){0}), DLT_OK);
        same_tensors("whole/last.bin", "cut/last.bin");
        same_rows("whole", "cut");
    }
    dlt_arena_free(arena);
}

static bool saved(const DltCheckpoint *c, const char *name)
{
    return dlt_checkpoint_find(c, name) != NULL;
}

/* muon takes the matrices of hidden layers; tables, norms, biases and the output layer are adamw's. */
static void muon_takes_matrices(void **state)
{
    (void)state;
    DltArena *arena = dlt_arena_new();
    DltErr err;
    DltCheckpoint *c = NULL;
    dlt_err_init(&err);
    remove_folder("muon");
    done(train(gpt(arena, "8", "muon: 0.02", "none"), (DltRunOptions){.out = "muon"}), DLT_OK);
    assert_int_equal(dlt_checkpoint_read(arena, "muon/last.bin", &c, &err), DLT_OK);
    assert_true(saved(c, "optimizer/momentum_buffer/body.attention.qkv.weight"));
    assert_true(saved(c, "optimizer/momentum_buffer/body_4.swiglu.down.weight"));
    assert_true(saved(c, "optimizer/exp_avg/body.attention.qkv.bias"));
    assert_true(saved(c, "optimizer/exp_avg/wte.weight"));
    assert_true(saved(c, "optimizer/exp_avg/position.weight"));
    assert_false(saved(c, "optimizer/momentum_buffer/wte.weight"));
    assert_false(saved(c, "optimizer/exp_avg/body.attention.qkv.weight"));
    dlt_arena_free(arena);
}

/* Images as tokens: the loss falls. */
static void vit_learns(void **state)
{
    (void)state;
    static const char text[] =
        "dltrain: 1\nname: t\nseed: 3\n"
        "data: {train: {synthetic: {shape: [1, 8, 8], classes: 3, samples: 60}}}\n"
        "model:\n"
        "  - {patch_embed: {patch: 4, dim: 16}}\n  - class_token\n  - position\n"
        "  - residual: [layer_norm, {attention: 2}]\n  - residual: [layer_norm, {geglu: 24}]\n"
        "  - layer_norm\n  - {token_pool: first}\n  - {dense: 3}\n"
        "loss: cross_entropy\n"
        "train: {for: 60 steps, batch: 20, optimizer: {adamw: {lr: 0.01}}}\n"
        "expect: {train.loss: \"< 0.7 by end\"}\n"; /* log(3) = 1.1 at the beginning */
    remove_folder("vit");
    done(train(text, (DltRunOptions){.out = "vit"}), DLT_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recompute_is_exact),
        cmocka_unit_test(recompute_of_convolutions_is_exact),
        cmocka_unit_test(recompute_saves_memory),
        cmocka_unit_test(resume_is_exact),
        cmocka_unit_test(muon_takes_matrices),
        cmocka_unit_test(vit_learns),
    };
    return cmocka_run_group_tests(tests, start, finish);
}
