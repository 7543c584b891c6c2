/* Tokenizers: text <-> ids. A kind is a row with a field table like everything the user can name; what
 * it has read or learnt is one value, DltTokenizer, that can be written as JSON text: the file of
 * `dltrain tokenize --train-bpe` and what a checkpoint carries. Reading one is thread safe. */
#ifndef DLT_TOKENIZER_H
#define DLT_TOKENIZER_H

#include "base/text.h"
#include "config/schema.h"

typedef struct DltTokenizerDef DltTokenizerDef;
typedef struct DltTokenizer {
    const DltTokenizerDef *def;
    int64_t vocab;     /* number of ids; 0: not learnt yet (chars before it has seen its text) */
    int32_t eot;       /* id that ends a document; -1: there is none */
    const char *path;  /* for messages */
    const void *state; /* vocabulary and merges; NULL: ids only (gpt2 without its files) */
} DltTokenizer;

/* Ids that grow; dlt_ids_free is the caller's. */
typedef struct DltIds {
    int32_t *v;
    int64_t n, room;
} DltIds;
bool dlt_ids_reserve(DltIds *ids, int64_t more); /* false: memory is out */
void dlt_ids_free(DltIds *ids);

struct DltTokenizerDef {
    const char *name, *help;
    const DltField *fields;
    size_t opt_size;
    DltStatus (*check)(const DltOpts *o, DltErr *err); /* cross-field rules only; may be NULL */
    /* Reads its files (folder: the config's). t->def is set. */
    DltStatus (*open)(DltArena *arena, const DltOpts *o, const char *folder, DltTokenizer *t,
                      DltErr *err);
    /* Adds what a training text has to its vocabulary; NULL: it has one of its own. */
    DltStatus (*learn)(DltArena *arena, DltTokenizer *t, const char *path, const uint8_t *text,
                       int64_t n, DltErr *err);
    /* Takes vocabulary and merges that dlt_tokenizer_parse has read; NULL: it needs none. */
    DltStatus (*adopt)(DltArena *arena, DltTokenizer *t, DltErr *err);
    /* Appends the ids of a whole text. `path` names it in messages, offsets count from `at`. */
    DltStatus (*encode)(const DltTokenizer *t, const char *path, int64_t at, const uint8_t *text,
                        int64_t n, DltIds *ids, DltErr *err);
};
extern const DltTokenizerDef *const dlt_tokenizers[]; /* defined by datasets/tokenizers.c */
const DltTokenizerDef *dlt_tokenizer_find(const char *name);

/* Appends the ids of text: DATA with file and byte offset where it must be UTF-8 and is not, or has
 * a character that the vocabulary lacks. */
DltStatus dlt_tokenizer_encode(const DltTokenizer *t, const char *path, int64_t at,
                               const uint8_t *text, int64_t n, DltIds *ids,
                               DltErr *err) DLT_CHECKED;
/* Appends the bytes of ids; the id that ends a document and ids without bytes add nothing. */
DltStatus dlt_tokenizer_decode(const DltTokenizer *t, const int32_t *id, int64_t n, DltText *text,
                               DltErr *err) DLT_CHECKED;
/* Bytes of one id, *n of them (0: none). */
const uint8_t *dlt_tokenizer_bytes(const DltTokenizer *t, int32_t id, int64_t *n);
/* JSON text from which parse makes an equal tokenizer. */
char *dlt_tokenizer_write(DltArena *arena, const DltTokenizer *t);
DltStatus dlt_tokenizer_parse(DltArena *arena, const char *path, const char *text, int64_t n,
                              DltTokenizer *t, DltErr *err) DLT_CHECKED;
/* Text files, or JSON lines with a document each, -> shards of ids "OUT_000000.bin" ... in llm.c's format.
 * The end of a document stands behind each, where the tokenizer has one. Shards appear whole or not at
 * all. Errors name file and byte offset. */
typedef struct DltTokenizeResult {
    int64_t bytes, all_bytes; /* read so far, of all files */
    int64_t documents, ids;
    int shards;
} DltTokenizeResult;
typedef struct DltTokenizeJob {
    DltArena *arena;
    const char *const *file;
    int n_file, n_thread; /* 1 to 64 */
    bool json_lines;
    const char *field; /* of a JSON line: the text */
    const char *out;
    int64_t per_shard, width; /* ids of a shard, bytes of an id: 2 or 4 */
    void (*progress)(void *ctx,
                     const DltTokenizeResult *so_far); /* after each round; may be NULL */
    void *ctx;
} DltTokenizeJob;
DltStatus dlt_tokenize(const DltTokenizer *t, const DltTokenizeJob *job, DltTokenizeResult *result,
                       DltErr *err) DLT_CHECKED;
/* Learns a byte-level BPE of `vocab` ids (256 bytes, the merges, the end of a document) from text, as
 * Sennrich et al. 2016 on GPT-2's pieces; ties go to the lower pair, so the result depends on the
 * text alone. Fewer ids come out when no pair is left that occurs twice. */
DltStatus dlt_bpe_train(DltArena *arena, const uint8_t *text, int64_t n, int64_t vocab,
                        DltTokenizer *t, DltErr *err) DLT_CHECKED;

#endif
