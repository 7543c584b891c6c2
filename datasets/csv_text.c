/* CSV text into cells (RFC 4180): quoted cells may hold separators, line ends and doubled quotes;
 * lines end in LF, CRLF or CR; a BOM is skipped; blanks around unquoted cells are dropped. What the
 * rules do not cover (a quote inside an unquoted cell, text behind a closing quote, a quote that is
 * never closed) is an error with its line. */
#include "datasets/csv.h"
#include <math.h>
#include <strings.h>

static DltStatus text_error(const DltCsvScan *s, int64_t line, const char *what, DltErr *err)
{
    return dlt_err_at(err, DLT_E_DATA, (DltMark){.file = s->file}, "line %lld: %s", (long long)line,
                      what);
}

static bool is_line_end(char c)
{
    return c == '\n' || c == '\r';
}

DltStatus dlt_csv_scan(DltCsvScan *s, const char *file, const char *text, int64_t n, char separator,
                       DltErr *err)
{
    if (n >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
        text += 3;
        n -= 3;
    }
    const char *nul = memchr(text, 0, (size_t)n);
    if (nul != NULL)
        return dlt_err_at(err, DLT_E_DATA, (DltMark){.file = file},
                          "a zero byte at offset %lld: this is no text (perhaps UTF-16; save it as "
                          "UTF-8)",
                          (long long)(nul - text));
    while (n > 0 && is_line_end(text[n - 1]))
        n--;
    *s = (DltCsvScan){file, text, text + n, separator, 1, 1};
    return DLT_OK;
}

/* Steps over one line end. */
static void next_line(DltCsvScan *s)
{
    if (s->at[0] == '\r' && s->at + 1 < s->end && s->at[1] == '\n') s->at++;
    s->at++;
    s->line++;
}

static DltStatus quoted_cell(DltCsvScan *s, DltCell *cell, DltErr *err)
{
    int64_t opened = s->line;
    const char *from = ++s->at;
    for (;;) {
        if (s->at >= s->end)
            return text_error(s, opened, "a quote is opened and never closed", err);
        if (is_line_end(*s->at)) {
            next_line(s);
        } else if (*s->at != '"') {
            s->at++;
        } else if (s->at + 1 < s->end && s->at[1] == '"') {
            s->at += 2;
        } else {
            break;
        }
    }
    *cell = (DltCell){from, s->at - from, true};
    s->at++;
    while (s->at < s->end && *s->at == ' ' && s->separator != ' ')
        s->at++;
    if (s->at < s->end && *s->at != s->separator && !is_line_end(*s->at))
        return text_error(s, s->line, "text follows a closing quote", err);
    return DLT_OK;
}

static bool is_blank(const DltCsvScan *s, char c)
{
    return (c == ' ' || c == '\t') && c != s->separator;
}

static DltStatus plain_cell(DltCsvScan *s, DltCell *cell, DltErr *err)
{
    const char *from = s->at;
    while (s->at < s->end && *s->at != s->separator && !is_line_end(*s->at)) {
        if (*s->at == '"')
            return text_error(
                s, s->line, "a quote inside an unquoted cell; quote the cell and double the quote",
                err);
        s->at++;
    }
    const char *to = s->at;
    while (to > from && is_blank(s, to[-1]))
        to--;
    *cell = (DltCell){from, to - from, false};
    return DLT_OK;
}

DltStatus dlt_csv_row(DltCsvScan *s, DltCell *cell, int64_t room, int64_t *n, DltErr *err)
{
    *n = 0;
    s->row_line = s->line;
    if (s->at >= s->end) return DLT_OK;
    for (;;) {
        DltCell c;
        while (s->at < s->end && is_blank(s, *s->at))
            s->at++;
        if (s->at < s->end && *s->at == '"')
            DLT_TRY(quoted_cell(s, &c, err));
        else
            DLT_TRY(plain_cell(s, &c, err));
        if (*n < room) cell[*n] = c;
        (*n)++;
        if (s->at >= s->end) return DLT_OK;
        if (*s->at != s->separator) break;
        s->at++;
    }
    next_line(s);
    return DLT_OK;
}

/* Copies at most `room` characters with doubled quotes made single; returns how many there are. */
static int64_t unquote(DltCell cell, char *dst, int64_t room)
{
    int64_t n = 0;
    for (int64_t i = 0; i < cell.n; i++, n++) {
        if (n < room) dst[n] = cell.text[i];
        if (cell.quoted && cell.text[i] == '"') i++;
    }
    return n;
}

const char *dlt_cell_text(DltArena *arena, DltCell cell)
{
    char *text = DLT_NEW_ARRAY(arena, cell.n + 1, char);
    unquote(cell, text, cell.n);
    return text;
}

const char *dlt_cell_show(DltCell cell, char buf[DLT_CELL_SHOWN])
{
    int64_t n = unquote(cell, buf, DLT_CELL_SHOWN - 1);
    if (n >= DLT_CELL_SHOWN) {
        memcpy(buf + DLT_CELL_SHOWN - 4, "...", 3);
        n = DLT_CELL_SHOWN - 1;
    }
    buf[n] = '\0';
    return buf;
}

bool dlt_cell_is(DltCell cell, const char *word)
{
    size_t n = strlen(word);
    if (!cell.quoted) return (size_t)cell.n == n && memcmp(cell.text, word, n) == 0;
    int64_t at = 0;
    for (int64_t i = 0; i < cell.n; i++, at++) {
        if (at >= (int64_t)n || cell.text[i] != word[at]) return false;
        if (cell.text[i] == '"') i++;
    }
    return at == (int64_t)n;
}

static const char *const missing_words[] = {"", "?", "na", "n/a", "nan", "null"};

static bool is_missing(DltCell cell)
{
    for (size_t i = 0; i < sizeof missing_words / sizeof missing_words[0]; i++) {
        size_t n = strlen(missing_words[i]);
        if ((size_t)cell.n == n && strncasecmp(cell.text, missing_words[i], n) == 0) return true;
    }
    return false;
}

/* The parts of a decimal number: value = digits * 10^exponent; exact when `exact`. */
typedef struct Decimal {
    uint64_t digits;
    int exponent;
    bool negative, exact;
} Decimal;

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* [+-] digits [. digits] [e [+-] digits], at least one digit before e, nothing else. */
static bool parse_decimal(const char *p, const char *end, Decimal *d)
{
    enum { MAX_EXPONENT = 9999 };
    const uint64_t room = 1000000000000000000u;
    *d = (Decimal){.exact = true};
    int n_digit = 0, exponent = 0;
    if (p < end && (*p == '+' || *p == '-')) d->negative = *p++ == '-';
    for (bool point = false; p < end && (is_digit(*p) || (*p == '.' && !point)); p++) {
        if (*p == '.') {
            point = true;
            continue;
        }
        n_digit++;
        d->exponent -= point;
        if (d->digits < room)
            d->digits = d->digits * 10 + (uint64_t)(*p - '0');
        else
            d->exact = false;
    }
    if (n_digit == 0) return false;
    if (p == end) return true;
    if (*p != 'e' && *p != 'E') return false;
    p++;
    bool minus = false;
    if (p < end && (*p == '+' || *p == '-')) minus = *p++ == '-';
    if (p == end) return false;
    for (; p < end && is_digit(*p); p++)
        if (exponent < MAX_EXPONENT) exponent = exponent * 10 + (*p - '0');
    d->exponent += minus ? -exponent : exponent;
    return p == end;
}

/* Exact for up to 53 bits of digits and powers up to 10^22, which doubles hold exactly (Clinger
 * 1990); strtod otherwise. */
static double decimal_value(const Decimal *d, const char *text, int64_t n)
{
    static const double power[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                   1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                   1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    enum { MAX_POWER = 22 };
    char copy[512];
    if (d->exact && d->digits <= (uint64_t)1 << 53 && abs(d->exponent) <= MAX_POWER) {
        double v = (double)d->digits;
        v = d->exponent < 0 ? v / power[-d->exponent] : v * power[d->exponent];
        return d->negative ? -v : v;
    }
    memcpy(copy, text, (size_t)n);
    copy[n] = '\0';
    return strtod(copy, NULL);
}

DltCellKind dlt_cell_number(DltCell cell, double *v)
{
    enum { MAX_CHARACTERS = 500 };
    Decimal d;
    if (is_missing(cell)) return DLT_CELL_MISSING;
    if (cell.n > MAX_CHARACTERS || !parse_decimal(cell.text, cell.text + cell.n, &d))
        return DLT_CELL_WORD;
    *v = decimal_value(&d, cell.text, cell.n);
    return isfinite((float)*v) ? DLT_CELL_NUMBER : DLT_CELL_HUGE;
}
