/* Text as code points: strict UTF-8 (RFC 3629) and the classes that GPT-2's pre-tokenisation asks
 * for. Private to datasets/. */
#ifndef DLT_UTF8_H
#define DLT_UTF8_H

#include <stdbool.h>
#include <stdint.h>

typedef enum DltCharClass {
    DLT_CHAR_LETTER, /* general category L* */
    DLT_CHAR_NUMBER, /* N* */
    DLT_CHAR_SPACE,  /* property White_Space */
    DLT_CHAR_OTHER
} DltCharClass;

/* The code point at p, of n > 0 bytes: its length 1..4; 0 when no UTF-8 begins there (overlong,
 * surrogate, beyond U+10FFFF, cut). */
int dlt_utf8_next(const uint8_t *p, int64_t n, uint32_t *code);
/* Writes 1..4 bytes, their number is returned. code must be a code point. */
int dlt_utf8_put(uint32_t code, uint8_t out[4]);
/* Offset of the first byte that is not UTF-8, -1: all is well. */
int64_t dlt_utf8_check(const uint8_t *p, int64_t n);
DltCharClass dlt_char_class(uint32_t code);

/* Length in bytes of the piece that GPT-2's pattern matches at p, n > 0:
 *   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 * (openai/gpt-2, src/encoder.py). A byte that is not UTF-8 counts as one character of no class. */
int64_t dlt_gpt2_piece(const uint8_t *p, int64_t n);

#endif
