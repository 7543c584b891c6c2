/* Text from a trained model, one id after the other: by a graph of one token with its keys and values in a
 * cache, or by whole windows; both in f32, so that they choose the same ids. The context is at most a window of T ids: when it is
 * full, its older half is dropped, so that a cache is filled anew only every T/2 ids. Many ids at once fill it in one pass of a
 * graph of L tokens, whose keys and values are copied into the cache. The choice of
 * id number i is a pure function of its scores, the seed and i. */
#include "base/rng.h"
#include "base/sys.h"
#include "exec/session.h"
#include "ops/decode.h"
#include <math.h>
#include <stdlib.h>

/* Less than 1/FEW of the tokens that a fill graph has are cheaper one by one. */
enum { FEW = 8 };

typedef struct Choice {
    double p;
    int32_t id;
} Choice;

struct DltGenerator {
    const DltGenerate *g;
    DltProgram *p;
    DltProgram *fill; /* of n_fill tokens; NULL: a cache is filled one by one */
    int64_t window, vocab, n_cached, n_fill;
    int32_t *ticket, *x; /* one window */
    void *out;           /* scores of one window */
    char *pairs;         /* a cache on its way from one graph to the other */
    Choice *choice;      /* [vocab] */
    int32_t *id;         /* prompt and text */
};

/* ---- choosing ------------------------------------------------------------------------------- */

static int by_probability(const void *a, const void *b)
{
    const Choice *x = a, *y = b;
    if (x->p != y->p) return x->p < y->p ? 1 : -1;
    return (x->id > y->id) - (x->id < y->id);
}

/* Keeps the likeliest choices that --top-k and --top-p allow; their number. */
static int64_t keep_likeliest(const DltGenerator *r, double sum)
{
    int64_t n = r->vocab, k = r->g->top_k;
    if (k == 0 && r->g->top_p >= 1) return n;
    qsort(r->choice, (size_t)n, sizeof *r->choice, by_probability);
    if (k > 0 && k < n) n = k;
    double kept = 0, wanted = r->g->top_p * sum;
    for (int64_t i = 0; i < n; i++) {
        kept += r->choice[i].p;
        if (kept >= wanted) return i + 1;
    }
    return n;
}

static DltStatus choose(DltGenerator *r, const DltReal *score, int64_t number, int32_t *id,
                        DltErr *err)
{
    int64_t best = 0;
    for (int64_t i = 0; i < r->vocab; i++) {
        if (!isfinite(score[i]))
            return dlt_err(err, DLT_E_NUMERIC, "the model's score of id %lld is not finite",
                           (long long)i);
        if (score[i] > score[best]) best = i;
    }
    *id = (int32_t)best;
    if (r->g->temperature == 0) return DLT_OK;
    double sum = 0;
    for (int64_t i = 0; i < r->vocab; i++) {
        double p = exp(((double)score[i] - (double)score[best]) / r->g->temperature);
        r->choice[i] = (Choice){p, (int32_t)i};
        sum += p;
    }
    int64_t n = keep_likeliest(r, sum);
    sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += r->choice[i].p;
    double at =
        sum * dlt_rng_uniform(r->g->seed, dlt_rng_stream(DLT_RNG_SAMPLE, 0), (uint64_t)number);
    int64_t i = 0;
    while (i < n - 1 && at >= r->choice[i].p)
        at -= r->choice[i++].p;
    *id = r->choice[i].id;
    return DLT_OK;
}

/* ---- scores --------------------------------------------------------------------------------- */

/* One run on x, as many ids as the graph takes. */
static DltStatus run_graph(const DltGenerator *r, const DltProgram *p, int32_t place, DltErr *err)
{
    DltStepState state = {.update = 1, .n_micro = 1, .loss_scale = 1, .sample_weight = 1};
    DLT_TRY(dlt_exec_write(p->exec, p->m->step, &state, err));
    DLT_TRY(dlt_exec_write(p->exec, p->m->ticket, r->ticket, err));
    DLT_TRY(dlt_exec_write(p->exec, p->m->data_x, r->x, err));
    if (p->m->place != NULL) DLT_TRY(dlt_exec_write(p->exec, p->m->place, &place, err));
    return dlt_exec_run(p->exec, DLT_PHASE_BATCH, err);
}

/* Scores of the id behind the n ids of the context, from the whole window; what stands behind them is
 * padding that no earlier place sees. */
static DltStatus scores_of_window(DltGenerator *r, const int32_t *context, int64_t n,
                                  const DltReal **score, DltErr *err)
{
    memset(r->x, 0, (size_t)r->window * sizeof *r->x);
    memcpy(r->x, context, (size_t)n * sizeof *r->x);
    DLT_TRY(run_graph(r, r->p, 0, err));
    DLT_TRY(dlt_exec_read(r->p->exec, r->p->m->out, r->out, err));
    *score = (const DltReal *)r->out + (n - 1) * r->p->m->out->shape.dim[2];
    return DLT_OK;
}

/* The cache that the fill graph's tensor stands for; NULL: it is none. */
static const DltTensor *cache_of(const DltGenerator *r, const DltTensor *pairs)
{
    const DltTensor *cache = dlt_graph_find(r->p->m->graph, pairs->name);
    return cache != NULL && cache->role == DLT_STATE && !cache->saved && pairs->role == DLT_STATE &&
                   pairs->shape.rank == 3 && cache->shape.rank == 3
               ? cache
               : NULL;
}

/* Keys and values of the first n ids at once; those of the padding behind them are written anew before an id
 * sees them. */
static DltStatus fill_cache(DltGenerator *r, const int32_t *context, int64_t n, DltErr *err)
{
    const DltGraph *g = r->fill->m->graph;
    memset(r->x, 0, (size_t)r->n_fill * sizeof *r->x);
    memcpy(r->x, context, (size_t)n * sizeof *r->x);
    DLT_TRY(run_graph(r, r->fill, 0, err));
    for (int i = 0; i < g->n_tensor; i++) {
        const DltTensor *cache = cache_of(r, g->tensor[i]);
        if (cache == NULL) continue;
        memset(r->pairs, 0, (size_t)dlt_tensor_bytes(cache));
        DLT_TRY(dlt_exec_read(r->fill->exec, g->tensor[i], r->pairs, err));
        DLT_TRY(dlt_exec_write(r->p->exec, cache, r->pairs, err));
    }
    r->n_cached = n;
    return DLT_OK;
}

/* The same, where the first r->n_cached ids of the context have left their keys and values behind. */
static DltStatus scores_of_token(DltGenerator *r, const int32_t *context, int64_t n,
                                 const DltReal **score, DltErr *err)
{
    bool worth = r->fill != NULL && r->n_cached == 0 && n - 1 >= r->n_fill / FEW;
    if (worth) DLT_TRY(fill_cache(r, context, n - 1, err));
    for (; r->n_cached < n; r->n_cached++) {
        r->x[0] = context[r->n_cached];
        DLT_TRY(run_graph(r, r->p, (int32_t)r->n_cached, err));
    }
    DLT_TRY(dlt_exec_read(r->p->exec, r->p->m->out, r->out, err));
    *score = r->out;
    return DLT_OK;
}

/* Ids of a context whose older half was dropped. */
static int64_t half(const DltGenerator *r)
{
    return (r->window + 1) / 2;
}

/* Where the context of ids[n] begins. */
static int64_t context_start(const DltGenerator *r, int64_t start, int64_t n)
{
    return n - start <= r->window ? start : n - half(r);
}

DltStatus dlt_generator_run(DltGenerator *r, DltErr *err)
{
    const DltGenerate *g = r->g;
    int64_t n = g->n_prompt;
    int32_t *id = r->id;
    memcpy(id, g->prompt, (size_t)n * sizeof *id);
    r->n_cached = 0;
    int64_t start = n > r->window ? n - r->window : 0;
    for (int64_t i = 0; i < g->max_tokens && dlt_sys_signal_seen() == 0; i++, n++) {
        const DltReal *score = NULL;
        int64_t begin = context_start(r, start, n);
        if (begin != start) r->n_cached = 0;
        start = begin;
        DLT_TRY((g->no_cache ? scores_of_window : scores_of_token)(r, id + start, n - start, &score,
                                                                   err));
        DLT_TRY(choose(r, score, i, &id[n], err));
        if (id[n] == g->tokenizer->eot) return DLT_OK;
        DLT_TRY(g->emit(g->ctx, id[n], err));
    }
    return DLT_OK;
}

/* ---- setting up ----------------------------------------------------------------------------- */

/* Scores for each place (of more ids than there are, where the vocabulary is rounded up), and no place that
 * sees those behind it. */
static DltStatus check_model(const DltProgram *p, const DltSpec *spec, int64_t places, DltErr *err)
{
    const DltTensor *out = p->m->out;
    const DltGraph *g = p->m->graph;
    int64_t vocab = spec->data.source[DLT_TRAIN].ds.vocab;
    char shape[DLT_SHAPE_TEXT];
    for (int i = 0; i < g->n_node; i++) {
        const DltNode *n = g->node[i];
        if (n->kind == DLT_OP_attention_fwd && !((const DltAttention *)n->attr)->causal)
            return dlt_err_at(err, DLT_E_CONFIG, n->at, DLT_NOT_CAUSAL, n->name);
    }
    if (out->shape.rank == 3 && out->shape.dim[1] == places && out->shape.dim[2] >= vocab)
        return DLT_OK;
    return dlt_err_at(
        err, DLT_E_CONFIG, spec->model->at,
        "model: generate needs scores [1, %lld, %lld] of the id behind each token, but "
        "its output %s is %s",
        (long long)places, (long long)vocab, out->name, dlt_shape_text(&out->shape, shape));
}

static DltStatus make_room(DltGenerator *r, DltErr *err)
{
    DltProgram *p = r->p;
    r->ticket = dlt_host_memory(p->s, DLT_TICKET_INTS * sizeof *r->ticket);
    r->x = dlt_host_memory(p->s, (size_t)r->window * sizeof *r->x);
    r->out = dlt_host_memory(p->s, (size_t)dlt_tensor_bytes(p->m->out));
    r->choice = DLT_NEW_ARRAY(p->s->arena, r->vocab, Choice);
    r->id = DLT_NEW_ARRAY(p->s->arena, r->g->n_prompt + r->g->max_tokens, int32_t);
    if (r->ticket == NULL || r->x == NULL || r->out == NULL)
        return dlt_err(err, DLT_E_RESOURCE, "out of host memory for generation");
    memset(r->ticket, 0, DLT_TICKET_INTS * sizeof *r->ticket);
    r->ticket[DLT_TICKET_VALID] = 1;
    return DLT_OK;
}

/* A graph for the most ids that will have to be cached at once, if they are more than a few. */
static DltStatus plan_fill(DltGenerator *r, DltErr *err)
{
    const DltGenerate *g = r->g;
    int64_t first = g->n_prompt < r->window ? g->n_prompt : r->window;
    int64_t more = first + g->max_tokens - 1 > r->window ? half(r) : 0;
    r->n_fill = (first > more ? first : more) - 1;
    DltModelOptions options = {.split = -1, .batch = 1, .scores = true, .fill = r->n_fill};
    if (r->n_fill < FEW) return DLT_OK;
    return dlt_program_plan(r->p->s, &options, &r->fill, err);
}

/* Room for the largest cache. */
static DltStatus open_fill(DltGenerator *r, const DltProgram *share, const char *prefix,
                           DltErr *err)
{
    int64_t most = 0;
    for (int i = 0; i < r->fill->m->graph->n_tensor; i++) {
        const DltTensor *cache = cache_of(r, r->fill->m->graph->tensor[i]);
        if (cache != NULL && dlt_tensor_bytes(cache) > most) most = dlt_tensor_bytes(cache);
    }
    r->pairs = dlt_host_memory(r->p->s, (size_t)most + 1);
    if (r->pairs == NULL) return dlt_err(err, DLT_E_RESOURCE, "out of host memory for generation");
    return dlt_program_bind(r->fill, share != NULL ? share : r->p, prefix, err);
}

DltStatus dlt_generator_plan(DltSession *s, const DltGenerate *g, DltGenerator **out, DltErr *err)
{
    const DltDataset *ds = &s->spec->data.source[DLT_TRAIN].ds;
    DltGenerator *r = DLT_NEW(s->arena, DltGenerator);
    *r = (DltGenerator){.g = g, .window = ds->x_shape.dim[0], .vocab = ds->vocab};
    DltModelOptions options = {.split = -1, .batch = 1, .scores = true, .decode = !g->no_cache};
    int precision = s->spec->train.precision;
    *out = r;
    s->spec->train.precision = DLT_PRECISION_F32; /* whatever is trained in: the weights are f32 */
    DltStatus status = dlt_program_plan(s, &options, &r->p, err);
    if (status == DLT_OK && !g->no_cache) status = plan_fill(r, err);
    s->spec->train.precision = precision;
    DLT_TRY(status);
    return check_model(r->p, s->spec, g->no_cache ? r->window : 1, err);
}

int dlt_generator_programs(const DltGenerator *r, DltProgram *p[DLT_GENERATOR_PROGRAMS])
{
    p[0] = r->p;
    p[1] = r->fill;
    return r->fill != NULL ? 2 : 1;
}

DltStatus dlt_generator_bind(DltGenerator *r, const DltProgram *share, const char *prefix,
                             DltErr *err)
{
    DLT_TRY(dlt_program_bind(r->p, share, prefix, err));
    DLT_TRY(make_room(r, err));
    return r->fill != NULL ? open_fill(r, share, prefix, err) : DLT_OK;
}

DltStatus dlt_generate(DltArena *arena, DltSpec *spec, const DltCheckpoint *ckpt,
                       const DltGenerate *g, const DltRunOptions *o, DltErr *err)
{
    DltSession *s = NULL;
    DltGenerator *r = NULL;
    DltProgram *p[DLT_GENERATOR_PROGRAMS];
    if (spec->data.source[DLT_TRAIN].ds.vocab == 0)
        return dlt_err(err, DLT_E_CONFIG, "%s: it was trained on samples that are no text",
                       ckpt->path);
    spec->train.precision = DLT_PRECISION_F32; /* the device too takes no shorter factors */
    DLT_TRY(dlt_session_open(arena, spec, o, ckpt->meta.choices, &s, err));
    DLT_TRY(dlt_generator_plan(s, g, &r, err));
    int n = dlt_generator_programs(r, p);
    DLT_TRY(dlt_programs_fit(p, n, err));
    DLT_TRY(dlt_generator_bind(r, NULL, NULL, err));
    DLT_TRY(dlt_weights_load(r->p, ckpt, spec->eval_ema ? "ema/" : NULL, err));
    return dlt_generator_run(r, err);
}

DltStatus dlt_prompt_read(const DltTokenizer *t, const char *name, const char *text, DltIds *ids,
                          DltErr *err)
{
    const char *begin = text != NULL ? text : "\n";
    if (text == NULL && t->eot >= 0) {
        if (!dlt_ids_reserve(ids, 1)) return dlt_err(err, DLT_E_RESOURCE, "out of memory");
        ids->v[ids->n++] = t->eot;
        return DLT_OK;
    }
    return dlt_tokenizer_encode(t, text != NULL ? name : "the prompt of a new line", 0,
                                (const uint8_t *)begin, (int64_t)strlen(begin), ids, err);
}
