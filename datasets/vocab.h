/* Vocabulary and merges of a tokenizer: what every kind but `bytes` keeps. Private to datasets/. */
#ifndef DLT_VOCAB_H
#define DLT_VOCAB_H

#include "api/tokenizer.h"

typedef struct DltToken {
    const uint8_t *bytes;
    int32_t n; /* 0: an id without text */
} DltToken;

/* One merge: ids left and right become `id`. rank: 0 is applied first. */
typedef struct DltMerge {
    int32_t left, right, id;
} DltMerge;

typedef struct DltVocab {
    int64_t n; /* ids */
    DltToken *token;
    int64_t n_merge;
    const DltMerge *merge; /* by rank */
    int32_t *pair;         /* hash table of ranks + 1; 0: free */
    int64_t n_pair;        /* its size, a power of two */
    int32_t byte[256];     /* id of each single byte, -1: none */
    const uint32_t *code;  /* chars: the code points in order, id = place */
} DltVocab;

DltVocab *dlt_vocab_new(DltArena *arena, int64_t n);
/* Ids of single bytes; then the table of merges. merge is kept. */
void dlt_vocab_index(DltArena *arena, DltVocab *v, const DltMerge *merge, int64_t n_merge);
/* Rank of the merge of two ids, -1: they do not merge. */
int32_t dlt_vocab_rank(const DltVocab *v, int32_t left, int32_t right);

/* Ids by their bytes, for reading merges: open addressing, ids + 1. */
typedef struct DltTokenTable {
    const DltVocab *v;
    int32_t *slot;
    int64_t n;
} DltTokenTable;
/* False: two ids have the same bytes, *twice is the second. */
bool dlt_token_table(DltArena *arena, const DltVocab *v, DltTokenTable *t, int64_t *twice);
int32_t dlt_token_find(const DltTokenTable *t, const uint8_t *bytes, int64_t n); /* -1: none */

/* GPT-2's alphabet: every byte as one printable character, so that bytes can stand in JSON and in
 * merge files (bytes_to_unicode in openai/gpt-2, src/encoder.py). */
char *dlt_alphabet_write(DltArena *arena, const uint8_t *bytes, int64_t n);
/* False: a character outside the alphabet. out has room for n bytes. */
bool dlt_alphabet_read(const char *text, int64_t n, uint8_t *out, int64_t *n_out);
/* "left right" in that alphabet, both parts and their join known to the table. */
bool dlt_merge_read(const DltTokenTable *t, const char *line, int64_t n, DltMerge *merge);

/* byte-level BPE: the ids of one piece are appended. False: memory is out. */
bool dlt_bpe_piece(const DltVocab *v, const uint8_t *piece, int64_t n, DltIds *ids);

/* A tokenizer's options when they are one file that dlt_tokenizer_write has made, and its open: the file
 * must hold a tokenizer of t's kind. */
typedef struct DltTokenizerFile {
    const char *file;
} DltTokenizerFile;
DltStatus dlt_tokenizer_file(DltArena *arena, const DltOpts *o, const char *folder, DltTokenizer *t,
                             DltErr *err) DLT_CHECKED;

#define TOKENIZER(name) extern const DltTokenizerDef dlt_tokenizer_kind_##name;
#include "datasets/tokenizers.def"
#undef TOKENIZER

#endif
