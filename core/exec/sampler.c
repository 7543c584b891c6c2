/* Text that a model writes behind each evaluation, with the weights that were evaluated. The draws are the same
 * each time, so the texts differ by what was learnt. Nothing of training depends on it. */
#include "base/log.h"
#include "exec/trainer.h"

struct DltSampler {
    DltTrainer *t;
    DltGenerate g;
    DltGenerator *generator;
    DltIds prompt, ids;
};

static void free_ids(void *ctx)
{
    DltSampler *s = ctx;
    dlt_ids_free(&s->prompt);
    dlt_ids_free(&s->ids);
}

static DltStatus emit(void *ctx, int32_t id, DltErr *err)
{
    DltSampler *s = ctx;
    if (!dlt_ids_reserve(&s->ids, 1)) return dlt_err(err, DLT_E_RESOURCE, "out of memory");
    s->ids.v[s->ids.n++] = id;
    return DLT_OK;
}

DltStatus dlt_sampler_plan(DltTrainer *t, DltErr *err)
{
    const DltSpec *spec = t->spec;
    if (spec->sample.tokens == 0) return DLT_OK;
    DltSampler *s = t->sampler = DLT_NEW(t->arena, DltSampler);
    const DltTokenizer *tokenizer = spec->data.tokenizer;
    s->t = t;
    dlt_arena_on_free(t->arena, free_ids, s);
    DLT_TRY(dlt_prompt_read(tokenizer, "eval.sample.prompt", spec->sample.prompt, &s->prompt, err));
    s->g = (DltGenerate){.tokenizer = tokenizer,
                         .prompt = s->prompt.v,
                         .n_prompt = s->prompt.n,
                         .temperature = spec->sample.temperature,
                         .top_p = 1,
                         .seed = spec->seed,
                         .max_tokens = spec->sample.tokens,
                         .emit = emit,
                         .ctx = s};
    return dlt_generator_plan(t->s, &s->g, &s->generator, err);
}

int dlt_sampler_programs(const DltSampler *s, DltProgram *p[DLT_GENERATOR_PROGRAMS])
{
    return s != NULL ? dlt_generator_programs(s->generator, p) : 0;
}

DltStatus dlt_sampler_bind(DltSampler *s, const char *prefix, DltErr *err)
{
    return s != NULL ? dlt_generator_bind(s->generator, s->t->p, prefix, err) : DLT_OK;
}

/* A line of text a line of the log. */
static void log_text(const DltText *text)
{
    const char *at = text->bytes, *end = text->bytes + text->n;
    while (at < end) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        if (stop == NULL) stop = end;
        dlt_log("| %.*s", (int)(stop - at), at);
        at = stop + 1;
    }
}

DltStatus dlt_sampler_run(DltSampler *s, DltErr *err)
{
    if (s == NULL) return DLT_OK;
    DltArena *scratch = dlt_arena_new();
    if (scratch == NULL) return dlt_err(err, DLT_E_RESOURCE, "out of memory");
    DltText text = dlt_text(scratch);
    const DltTokenizer *t = s->g.tokenizer;
    s->ids.n = 0;
    DltStatus status = dlt_generator_run(s->generator, err);
    if (status == DLT_OK && s->t->spec->sample.prompt != NULL)
        dlt_text_add(&text, s->t->spec->sample.prompt);
    if (status == DLT_OK) status = dlt_tokenizer_decode(t, s->ids.v, s->ids.n, &text, err);
    if (status == DLT_OK) dlt_log("sample at step %lld:", (long long)s->t->at.step);
    if (status == DLT_OK) log_text(&text);
    dlt_arena_free(scratch);
    return status;
}
