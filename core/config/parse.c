/* Texts -> numbers, durations, sizes. Decimal notation only, the whole text or nothing: no octal,
 * no hexadecimal, no infinity, no trailing junk. */
#include "config/schema.h"
#include <errno.h>
#include <math.h>

static size_t n_digits(const char *text)
{
    return strspn(text, "0123456789");
}

/* Bytes of "[sign] digits [. digits] [e [sign] digits]" at text, 0 when there is no number. */
static size_t number_length(const char *text)
{
    size_t sign = text[0] == '+' || text[0] == '-' ? 1 : 0;
    size_t whole = n_digits(text + sign), n = sign + whole, fraction = 0;
    if (text[n] == '.') {
        fraction = n_digits(text + n + 1);
        n += 1 + fraction;
    }
    if (whole + fraction == 0) return 0;
    if (text[n] == 'e' || text[n] == 'E') {
        size_t skip = text[n + 1] == '+' || text[n + 1] == '-' ? 2 : 1;
        size_t exponent = n_digits(text + n + skip);
        if (exponent == 0) return 0;
        n += skip + exponent;
    }
    return n;
}

/* The number at text; false when there is none, or when it is too large or too small for a double.
 */
static bool read_number(const char *text, size_t *length, double *v)
{
    *length = number_length(text);
    if (*length == 0) return false;
    errno = 0;
    *v = strtod(text, NULL);
    bool vanished = errno == ERANGE && *v == 0.0;
    return isfinite(*v) && !vanished;
}

bool dlt_parse_float(const char *text, double *v)
{
    size_t n;
    double value, divisor;
    if (!read_number(text, &n, &value)) return false;
    const char *rest = text + n + strspn(text + n, " ");
    if (rest[0] == '/') {
        rest += 1 + strspn(rest + 1, " ");
        if (!read_number(rest, &n, &divisor) || divisor == 0.0) return false;
        value /= divisor;
        rest += n;
    } else if (text[n] != '\0') {
        return false;
    }
    if (rest[0] != '\0' || !isfinite(value)) return false;
    *v = value;
    return true;
}

bool dlt_parse_int(const char *text, int64_t *v)
{
    size_t sign = text[0] == '+' || text[0] == '-' ? 1 : 0;
    size_t digits = n_digits(text + sign), n;
    if (digits > 0 && text[sign + digits] == '\0') {
        errno = 0;
        long long value = strtoll(text, NULL, 10);
        if (errno != 0) return false;
        *v = value;
        return true;
    }
    /* 2e6 and 2.5e3 are whole numbers too; 64.0 is written as a fraction and is none */
    double value;
    if (strpbrk(text, "eE") == NULL || !read_number(text, &n, &value) || text[n] != '\0')
        return false;
    if (floor(value) < value || fabs(value) > 0x1p53) return false;
    *v = (int64_t)value;
    return true;
}

/* Splits "1.5 GiB" into a number and the word behind it. */
static bool read_quantity(const char *text, double *number, const char **word)
{
    char digits[64];
    size_t n = strlen(text);
    while (n > 0 && strchr("0123456789. /+-", text[n - 1]) == NULL)
        n--;
    *word = text + n;
    while (n > 0 && text[n - 1] == ' ')
        n--;
    if (n == 0 || n >= sizeof digits) return false;
    memcpy(digits, text, n);
    digits[n] = '\0';
    return dlt_parse_float(digits, number);
}

static const struct {
    const char *word;
    DltUnit unit;
    double scale;
} span_units[] = {
    {"steps", DLT_U_STEPS, 1},      {"step", DLT_U_STEPS, 1},      {"epochs", DLT_U_EPOCHS, 1},
    {"epoch", DLT_U_EPOCHS, 1},     {"tokens", DLT_U_TOKENS, 1},   {"token", DLT_U_TOKENS, 1},
    {"samples", DLT_U_SAMPLES, 1},  {"sample", DLT_U_SAMPLES, 1},  {"s", DLT_U_SECONDS, 1},
    {"sec", DLT_U_SECONDS, 1},      {"seconds", DLT_U_SECONDS, 1}, {"min", DLT_U_SECONDS, 60},
    {"minutes", DLT_U_SECONDS, 60}, {"h", DLT_U_SECONDS, 3600},    {"hour", DLT_U_SECONDS, 3600},
    {"hours", DLT_U_SECONDS, 3600}, {"d", DLT_U_SECONDS, 86400},   {"days", DLT_U_SECONDS, 86400},
    {"%", DLT_U_PERCENT, 1},
};

/* Units of which there is no half. */
static bool is_counted(DltUnit unit)
{
    return unit == DLT_U_STEPS || unit == DLT_U_TOKENS || unit == DLT_U_SAMPLES;
}

bool dlt_parse_span(const char *text, DltSpan *v)
{
    double number;
    const char *word;
    if (!read_quantity(text, &number, &word) || number < 0) return false;
    for (size_t i = 0; i < sizeof span_units / sizeof span_units[0]; i++) {
        if (strcmp(word, span_units[i].word) != 0) continue;
        DltUnit unit = span_units[i].unit;
        if (is_counted(unit) && floor(number) < number) return false;
        *v = (DltSpan){.n = number * span_units[i].scale, .unit = unit};
        return true;
    }
    return false;
}

static const struct {
    const char *word;
    double bytes;
} size_units[] = {
    {"B", 1},    {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40},
    {"kB", 1e3}, {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12},
};

bool dlt_parse_size(const char *text, int64_t *v)
{
    double number;
    const char *word;
    if (!read_quantity(text, &number, &word)) return false;
    for (size_t i = 0; i < sizeof size_units / sizeof size_units[0]; i++) {
        if (strcmp(word, size_units[i].word) != 0) continue;
        double bytes = number * size_units[i].bytes;
        if (bytes < 0 || bytes > 0x1p53 || floor(bytes) < bytes) return false;
        *v = (int64_t)bytes;
        return true;
    }
    return false;
}

const char *dlt_number_text(double v, char buf[DLT_NUMBER_TEXT])
{
    for (int precision = 15; precision <= 17; precision++) {
        snprintf(buf, DLT_NUMBER_TEXT, "%.*g", precision, v);
        if (strtod(buf, NULL) == v) break;
    }
    return buf;
}
