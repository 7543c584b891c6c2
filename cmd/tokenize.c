/* dltrain tokenize: text or JSON lines to shards of token ids, or to a byte-level BPE learnt from it. */
#include "cmd/cmd.h"

#include "base/file.h"
#include "base/log.h"
#include "base/sys.h"

static const DltMark command_line = {"<command line>", 0, 0, 0, NULL};
enum { DEFAULT_SHARD = 100000000, MAX_THREADS = 64, TEXT_BYTES = 1 << 30 };

typedef struct Progress {
    int64_t start_ns, told_ns;
    bool quiet;
} Progress;

/* A line every two seconds; on a terminal the live line. */
static void tell(void *ctx, const DltTokenizeResult *r)
{
    static const int64_t interval_ns = 2000000000;
    Progress *p = ctx;
    int64_t now = dlt_sys_now_ns();
    double s = 1e-9 * (double)(now - p->start_ns), mb = 1e-6 * (double)r->bytes;
    char text[160];
    snprintf(text, sizeof text, "%.1f of %.1f MB, %lld tokens, %.1f MB/s", mb,
             1e-6 * (double)r->all_bytes, (long long)r->ids, s > 0 ? mb / s : 0.0);
    if (dlt_log_is_terminal()) {
        dlt_log_live("%s", text);
    } else if (now - p->told_ns > interval_ns) {
        p->told_ns = now;
        dlt_log("%s", text);
    }
}

static DltStatus read_file(const DltArgs *args, const char *path, char **text, int64_t *n,
                           DltErr *err)
{
    return dlt_file_read(args->arena, path, (DltFileRule){TEXT_BYTES, DLT_E_DATA, command_line},
                         text, n, err);
}

static DltStatus write_tokenizer(const DltArgs *args, const DltTokenizer *t, const char *path,
                                 DltErr *err)
{
    DltAtomic *file = NULL;
    const char *text = dlt_tokenizer_write(args->arena, t);
    if (text == NULL) return dlt_err(err, DLT_E_RESOURCE, "out of memory for the tokenizer");
    DLT_TRY(dlt_atomic_open(args->arena, path, &file, err));
    DLT_TRY(dlt_atomic_write(file, text, strlen(text), err));
    DLT_TRY(dlt_atomic_write(file, "\n", 1, err));
    return dlt_atomic_commit(file, err);
}

/* --train-bpe: all files behind each other. */
static DltStatus train_bpe(const DltArgs *args, DltErr *err)
{
    DltText all = dlt_text(args->arena);
    DltTokenizer t;
    const char *out = args->out ? args->out : "tokenizer.json";
    if (args->jsonl)
        return dlt_err_at(err, DLT_E_CONFIG, command_line,
                          "tokenize: --train-bpe learns from text, not from JSON lines");
    for (int i = 0; i < args->n_word; i++) {
        char *text = NULL;
        int64_t n = 0;
        DLT_TRY(read_file(args, args->word[i], &text, &n, err));
        dlt_text_addn(&all, text, (size_t)n);
    }
    DLT_TRY(dlt_bpe_train(args->arena, (const uint8_t *)all.bytes, (int64_t)all.n, args->train_bpe,
                          &t, err));
    if (t.vocab < args->train_bpe)
        dlt_log(
            "note: no pair of tokens is left that occurs twice; the vocabulary ends at %lld ids",
            (long long)t.vocab);
    DLT_TRY(write_tokenizer(args, &t, out, err));
    printf("%-14s %s\n%-14s %lld\n", "tokenizer", out, "vocab", (long long)t.vocab);
    return DLT_OK;
}

/* chars takes its characters from the files. */
static DltStatus learn(const DltArgs *args, DltTokenizer *t, DltErr *err)
{
    if (t->vocab > 0) return DLT_OK;
    if (args->jsonl)
        return dlt_err_at(err, DLT_E_CONFIG, command_line,
                          "tokenize: %s learns from text, not from JSON lines; give it a file",
                          t->def->name);
    for (int i = 0; i < args->n_word; i++) {
        DltArena *scratch = dlt_arena_new();
        if (scratch == NULL) return dlt_err(err, DLT_E_RESOURCE, "out of memory");
        DltArgs with = *args;
        with.arena = scratch;
        char *text = NULL;
        int64_t n = 0;
        const char *path = dlt_path_absolute(args->arena, args->word[i]);
        DltStatus status = read_file(&with, path, &text, &n, err);
        if (status == DLT_OK)
            status = t->def->learn(args->arena, t, path, (const uint8_t *)text, n, err);
        dlt_arena_free(scratch);
        DLT_TRY(status);
    }
    return DLT_OK;
}

static DltStatus choose_width(const DltArgs *args, const DltTokenizer *t, int64_t *width,
                              DltErr *err)
{
    enum { IDS16 = 1 << 16 };
    *width = args->width > 0 ? args->width / 8 : t->vocab <= IDS16 ? 2 : 4;
    if (args->width % 16 != 0)
        return dlt_err_at(err, DLT_E_CONFIG, command_line, "--width: %lld; known: 16, 32",
                          (long long)args->width);
    if (*width == 4 || t->vocab <= IDS16) return DLT_OK;
    return dlt_err_at(err, DLT_E_CONFIG, command_line,
                      "--width: ids of 16 bits cannot hold a vocabulary of %lld; write --width 32",
                      (long long)t->vocab);
}

static DltStatus make_shards(const DltArgs *args, DltErr *err)
{
    DltTokenizer t;
    DltTokenizeResult result;
    const char *out = args->out ? args->out : "tokens";
    Progress progress = {.start_ns = dlt_sys_now_ns()};
    if (!args->tokenizer)
        return dlt_err_at(err, DLT_E_CONFIG, command_line,
                          "tokenize: which tokenizer? --tokenizer bytes, chars, '{bpe: FILE}' or "
                          "'{gpt2: {vocab: FILE, merges: FILE}}'; or --train-bpe N makes one");
    int n_thread = args->threads > 0 ? (int)args->threads : dlt_sys_n_cpu();
    DltTokenizeJob job = {.arena = args->arena,
                          .file = args->word,
                          .n_file = args->n_word,
                          .n_thread = n_thread < MAX_THREADS ? n_thread : MAX_THREADS,
                          .json_lines = args->jsonl != NULL,
                          .field = args->jsonl,
                          .out = out,
                          .per_shard = args->shard > 0 ? args->shard : DEFAULT_SHARD,
                          .progress = args->quiet ? NULL : tell,
                          .ctx = &progress};
    DLT_TRY(dlt_spec_tokenizer(args->arena, args->tokenizer, command_line, "--tokenizer", &t, err));
    DLT_TRY(learn(args, &t, err));
    DLT_TRY(choose_width(args, &t, &job.width, err));
    DLT_TRY(dlt_tokenize(&t, &job, &result, err));
    const char *file = dlt_arena_printf(args->arena, "%s_tokenizer.json", out);
    DLT_TRY(write_tokenizer(args, &t, file, err));
    printf("%-14s %s_*.bin (%d)\n%-14s %s\n", "shards", out, result.shards, "tokenizer", file);
    printf("%-14s %lld\n%-14s %lld\n%-14s %lld\n", "vocab", (long long)t.vocab, "documents",
           (long long)result.documents, "tokens", (long long)result.ids);
    return DLT_OK;
}

static DltStatus run(const DltArgs *args, DltErr *err)
{
    if (args->train_bpe > 0 && args->tokenizer)
        return dlt_err_at(err, DLT_E_CONFIG, command_line,
                          "tokenize: --train-bpe makes a tokenizer and --tokenizer uses one; write "
                          "one of them");
    return args->train_bpe > 0 ? train_bpe(args, err) : make_shards(args, err);
}

const DltCommand dlt_command_tokenize = {
    .name = "tokenize",
    .words = "FILE...",
    .help = "text or JSON lines to shards of token ids; trains a BPE",
    .min_word = 1,
    .max_word = -1,
    .options = (const char *const[]){"out", "tokenizer", "train_bpe", "jsonl", "shard", "width",
                                     "threads", NULL},
    .run = run,
};
