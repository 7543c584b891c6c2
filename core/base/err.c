/* Reports with places. Nothing here allocates, so that "out of memory" can be told; printing
 * happens once, at the end of main(), in the manner of compilers: file:line:col: error: text 21 |
 * hiden: 3072 |         ^~~~~ Text from the user's files is cleaned of control bytes, so a config
 * cannot drive the terminal. */
#include "base/err.h"
#include "base/fatal.h"

enum { SHOWN_COLUMNS = 160, SHOWN_BEFORE = 80 };

void dlt_err_init(DltErr *err)
{
    err->n = 0;
    err->n_dropped = 0;
}

static void add(DltErr *err, DltStatus status, DltMark at, bool note, const char *fmt, va_list args)
    DLT_PRINTF(5, 0);

static void add(DltErr *err, DltStatus status, DltMark at, bool note, const char *fmt, va_list args)
{
    if (err == NULL) return;
    if (err->n == DLT_ERR_MAX || err->n_dropped > 0) {
        err->n_dropped += !note;
        return;
    }
    DltReport *report = &err->report[err->n++];
    report->status = status;
    report->at = at;
    report->note = note;
    int n = vsnprintf(report->text, sizeof report->text, fmt, args);
    if (n >= DLT_ERR_TEXT) memcpy(report->text + DLT_ERR_TEXT - 4, "...", 4);
}

DltStatus dlt_err_at(DltErr *err, DltStatus status, DltMark at, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    add(err, status, at, false, fmt, args);
    va_end(args);
    return status;
}

DltStatus dlt_err(DltErr *err, DltStatus status, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    add(err, status, DLT_NO_MARK, false, fmt, args);
    va_end(args);
    return status;
}

void dlt_err_note(DltErr *err, DltMark at, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    add(err, DLT_OK, at, true, fmt, args);
    va_end(args);
}

DltStatus dlt_err_status(const DltErr *err)
{
    for (int i = 0; i < err->n; i++) {
        if (!err->report[i].note) return err->report[i].status;
    }
    return DLT_OK;
}

/* Bytes of the UTF-8 character at `at` (n left), 0 when it is none or a control character. */
static size_t character_bytes(const unsigned char *at, size_t n)
{
    if (at[0] < 0x80) return (at[0] >= 0x20 && at[0] != 0x7F) || at[0] == '\n' || at[0] == '\t';
    size_t len = at[0] < 0xC2 ? 0 : at[0] < 0xE0 ? 2 : at[0] < 0xF0 ? 3 : at[0] < 0xF5 ? 4 : 0;
    if (len > n || (at[0] == 0xC2 && at[1] < 0xA0)) return 0;
    for (size_t i = 1; i < len; i++) {
        if ((at[i] & 0xC0) != 0x80) return 0;
    }
    return len;
}

static void put_clean(const char *text, size_t n, FILE *out)
{
    for (size_t i = 0; i < n;) {
        size_t len = character_bytes((const unsigned char *)text + i, n - i);
        if (len > 0)
            fwrite(text + i, 1, len, out);
        else
            fputc('?', out);
        i += len > 0 ? len : 1;
    }
}

/* Byte offset of the column-th character (from 0) of UTF-8 text, at most the length. */
static size_t column_offset(const char *text, int column)
{
    size_t i = 0;
    while (text[i] != '\0' && column > 0) {
        i++;
        while (((unsigned char)text[i] & 0xC0) == 0x80)
            i++;
        column--;
    }
    return i;
}

/* The source line and the caret below it; of a long line the part around the caret. */
static void print_source(const DltMark *at, FILE *out)
{
    int first = at->col - 1 > SHOWN_COLUMNS - SHOWN_BEFORE ? at->col - 1 - SHOWN_BEFORE : 0;
    if (column_offset(at->text, SHOWN_COLUMNS) == strlen(at->text)) first = 0;
    const char *line = at->text + column_offset(at->text, first);
    size_t n = column_offset(line, SHOWN_COLUMNS);
    fprintf(out, "%5d | %s", at->line, first > 0 ? "..." : "");
    put_clean(line, n, out);
    fprintf(out, "%s\n      | %s", line[n] != '\0' ? "..." : "", first > 0 ? "   " : "");
    size_t caret = column_offset(line, at->col - 1 - first);
    for (size_t i = 0; i < caret; i++) {
        bool inside_character = ((unsigned char)line[i] & 0xC0) == 0x80;
        if (!inside_character) fputc(line[i] == '\t' ? '\t' : ' ', out);
    }
    fputc('^', out);
    for (int i = 1; i < at->len && i < SHOWN_COLUMNS - (at->col - 1 - first); i++)
        fputc('~', out);
    fputc('\n', out);
}

static void print_report(const DltReport *report, FILE *out)
{
    const DltMark *at = &report->at;
    if (at->file != NULL) {
        put_clean(at->file, strlen(at->file), out);
        if (at->line > 0) fprintf(out, ":%d:%d", at->line, at->col);
        fputs(": ", out);
    }
    fputs(report->note ? "note: " : "error: ", out);
    put_clean(report->text, strlen(report->text), out);
    fputc('\n', out);
    if (at->file != NULL && at->line > 0 && at->col > 0 && at->text != NULL) print_source(at, out);
}

void dlt_err_print(const DltErr *err, FILE *out)
{
    int n_config = 0;
    for (int i = 0; i < err->n; i++) {
        print_report(&err->report[i], out);
        n_config += err->report[i].status == DLT_E_CONFIG;
    }
    int n = n_config + err->n_dropped;
    if (n_config > 1 && err->n_dropped == 0) {
        fprintf(out, "%d errors; nothing was allocated\n", n);
    } else if (n_config > 1) {
        fprintf(out, "%d errors, the first %d shown; nothing was allocated\n", n, n_config);
    }
}

void dlt_bug(const char *file, int line, const char *what)
{
    char cause[256];
    snprintf(cause, sizeof cause, "%s:%d: bug in dltrain: %s", file, line, what);
    fprintf(stderr, "%s\n", cause);
    dlt_fatal_run(cause, 0);
    abort();
}
