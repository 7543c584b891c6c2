/* dltrain generate: text from a checkpoint, from the file alone. */
#include "cmd/cmd.h"

#include "base/sys.h"

#include <jansson.h>
#include <signal.h>

static const DltMark command_line = {"<command line>", 0, 0, 0, NULL};

typedef struct Output {
    const DltTokenizer *t;
    DltText text;
    DltIds ids;
    bool json;
} Output;

/* Each id is shown as soon as it is there. */
static DltStatus emit(void *ctx, int32_t id, DltErr *err)
{
    Output *o = ctx;
    int64_t n;
    const uint8_t *bytes = dlt_tokenizer_bytes(o->t, id, &n);
    if (!dlt_ids_reserve(&o->ids, 1)) return dlt_err(err, DLT_E_RESOURCE, "out of memory");
    o->ids.v[o->ids.n++] = id;
    if (o->json) {
        if (n > 0) dlt_text_addn(&o->text, (const char *)bytes, (size_t)n);
        return DLT_OK;
    }
    for (int64_t i = 0; i < n; i++)
        putchar(bytes[i]);
    if (fflush(stdout) == 0 && !ferror(stdout)) return DLT_OK;
    return dlt_err(err, DLT_E_RESOURCE, "the text could not be written");
}

static DltStatus read_prompt(const DltArgs *args, const DltTokenizer *t, DltIds *ids, DltErr *err)
{
    if (args->prompt && args->prompt[0] == '\0')
        return dlt_err_at(err, DLT_E_CONFIG, command_line, "--prompt: is empty; leave it out");
    return dlt_prompt_read(t, "--prompt", args->prompt, ids, err);
}

static DltStatus print_json(const DltArgs *args, const DltCheckpoint *c, const Output *o,
                            DltErr *err)
{
    json_t *json = json_object(), *ids = json_array();
    int failed = json == NULL || ids == NULL;
    failed |= json_object_set_new(json, "checkpoint", json_string(c->path));
    if (args->prompt) failed |= json_object_set_new(json, "prompt", json_string(args->prompt));
    failed |= json_object_set_new(json, "text", dlt_json_text(&o->text));
    for (int64_t i = 0; i < o->ids.n; i++)
        failed |= json_array_append_new(ids, json_integer(o->ids.v[i]));
    failed |= json_object_set_new(json, "ids", ids);
    failed |= json_dumpf(json, stdout, JSON_INDENT(2) | JSON_PRESERVE_ORDER);
    json_decref(json);
    putchar('\n');
    return failed ? dlt_err(err, DLT_E_RESOURCE, "the JSON result could not be written") : DLT_OK;
}

static DltStatus generate(const DltArgs *args, DltSpec *spec, const DltCheckpoint *c,
                          DltIds *prompt, Output *out, DltErr *err)
{
    DltRunOptions options = dlt_run_options(args);
    DltGenerate g = {.tokenizer = out->t,
                     .temperature = args->temperature,
                     .top_k = args->top_k,
                     .top_p = args->top_p,
                     .seed = (uint64_t)args->seed,
                     .max_tokens = args->max_tokens,
                     .no_cache = args->no_cache,
                     .emit = emit,
                     .ctx = out};
    DLT_TRY(read_prompt(args, out->t, prompt, err));
    g.prompt = prompt->v;
    g.n_prompt = prompt->n;
    dlt_sys_signals_install();
    if (!args->json && args->prompt) fputs(args->prompt, stdout);
    DLT_TRY(dlt_generate(args->arena, spec, c, &g, &options, err));
    if (args->json) return print_json(args, c, out, err);
    putchar('\n');
    return DLT_OK;
}

static DltStatus run(const DltArgs *args, DltErr *err)
{
    DltCheckpoint *c = NULL;
    DltSpec *spec = NULL;
    DltIds prompt = {0};
    DLT_TRY(dlt_checkpoint_read(args->arena, dlt_checkpoint_path(args, args->word[0]), &c, err));
    DLT_TRY(dlt_spec_from_checkpoint_alone(args, c, &spec, err));
    Output out = {.t = spec->data.tokenizer, .text = dlt_text(args->arena), .json = args->json};
    if (out.t == NULL)
        return dlt_err(err, DLT_E_CONFIG,
                       "%s: it was trained without a tokenizer (data.tokenizer), so "
                       "its ids are no text",
                       c->path);
    DltStatus status = generate(args, spec, c, &prompt, &out, err);
    dlt_ids_free(&prompt);
    dlt_ids_free(&out.ids);
    int signal = dlt_sys_signal_seen();
    return status != DLT_OK || signal == 0 ? status : signal == SIGTERM ? DLT_SIGTERM : DLT_SIGINT;
}

const DltCommand dlt_command_generate = {
    .name = "generate",
    .words = "CKPT [key=value...]",
    .help = "text that a model goes on with",
    .min_word = 1,
    .max_word = 1,
    .options = (const char *const[]){"prompt", "temperature", "top_k", "top_p", "seed",
                                     "max_tokens", "no_cache", "device", "threads", "json", NULL},
    .run = run,
};
