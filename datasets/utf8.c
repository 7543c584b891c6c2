/* UTF-8, character classes by binary search in generated ranges, and GPT-2's pre-tokenisation as a
 * hand-written matcher of its one regular expression. */
#include "datasets/utf8.h"
#include "datasets/unicode_tables.h"
#include <string.h>

int dlt_utf8_next(const uint8_t *p, int64_t n, uint32_t *code)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    if (p[0] < 0x80) {
        *code = p[0];
        return 1;
    }
    int length = p[0] >= 0xF0 ? 4 : p[0] >= 0xE0 ? 3 : 2;
    if (p[0] < 0xC2 || p[0] > 0xF4 || n < length) return 0;
    uint32_t c = p[0] & (0x7Fu >> length);
    for (int i = 1; i < length; i++) {
        if ((p[i] & 0xC0) != 0x80) return 0;
        c = c << 6 | (p[i] & 0x3F);
    }
    if (c < least[length] || c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF)) return 0;
    *code = c;
    return length;
}

int dlt_utf8_put(uint32_t code, uint8_t out[4])
{
    static const uint8_t lead[] = {0, 0, 0xC0, 0xE0, 0xF0};
    int length = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (int i = length - 1; i > 0; i--) {
        out[i] = (uint8_t)(0x80 | (code & 0x3F));
        code >>= 6;
    }
    out[0] = (uint8_t)(lead[length] | code);
    return length;
}

int64_t dlt_utf8_check(const uint8_t *p, int64_t n)
{
    uint32_t code;
    for (int64_t i = 0, length; i < n; i += length) {
        length = dlt_utf8_next(p + i, n - i, &code);
        if (length == 0) return i;
    }
    return -1;
}

static bool in_ranges(const DltCodeRange *r, int n, uint32_t code)
{
    int lo = 0, hi = n - 1;
    while (lo <= hi) {
        int mid = (lo + hi) / 2;
        if (code < r[mid].first)
            hi = mid - 1;
        else if (code > r[mid].last)
            lo = mid + 1;
        else
            return true;
    }
    return false;
}

#define IN(table, code) in_ranges(table, (int)(sizeof(table) / sizeof(table)[0]), code)

DltCharClass dlt_char_class(uint32_t code)
{
    if ((code | 0x20) >= 'a' && (code | 0x20) <= 'z') return DLT_CHAR_LETTER;
    if (IN(dlt_space_ranges, code)) return DLT_CHAR_SPACE;
    if (code < 0x80) return code >= '0' && code <= '9' ? DLT_CHAR_NUMBER : DLT_CHAR_OTHER;
    if (IN(dlt_letter_ranges, code)) return DLT_CHAR_LETTER;
    return IN(dlt_number_ranges, code) ? DLT_CHAR_NUMBER : DLT_CHAR_OTHER;
}

/* Class and length of the character at p; a stray byte is a character of no class. */
static DltCharClass class_at(const uint8_t *p, int64_t n, int *length)
{
    uint32_t code;
    *length = dlt_utf8_next(p, n, &code);
    if (*length > 0) return dlt_char_class(code);
    *length = 1;
    return DLT_CHAR_OTHER;
}

/* Bytes of the run of one class from p on; *last is the length of its last character. */
static int64_t run_of(const uint8_t *p, int64_t n, DltCharClass class, int *last)
{
    int64_t i = 0;
    while (i < n) {
        int length;
        if (class_at(p + i, n - i, &length) != class) break;
        i += length;
        *last = length;
    }
    return i;
}

static int64_t contraction(const uint8_t *p, int64_t n)
{
    static const char *const endings[] = {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"};
    if (p[0] != '\'') return 0;
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        int64_t length = (int64_t)strlen(endings[i]);
        if (n >= length && memcmp(p, endings[i], (size_t)length) == 0) return length;
    }
    return 0;
}

int64_t dlt_gpt2_piece(const uint8_t *p, int64_t n)
{
    int last = 1;
    int64_t length = contraction(p, n);
    if (length > 0) return length;
    int64_t from = p[0] == ' ' && n > 1;
    DltCharClass class = class_at(p + from, n - from, &last);
    if (class != DLT_CHAR_SPACE) return from + run_of(p + from, n - from, class, &last);
    length = run_of(p, n, DLT_CHAR_SPACE, &last);
    /* the last blank before a word goes with the word, or stands alone */
    return length < n && length > last ? length - last : length;
}
