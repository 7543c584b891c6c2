/* `expect:` figures that the run must reach: [<|<=|>|>=] NUMBER[k|M|G|%|KiB|MiB|GiB] [± N%] [by end |
 * by SPAN]. A percentage is a fraction of one (94% is 0.94). */
#include "spec/read.h"

#include <ctype.h>
#include <math.h>

bool dlt_expect_holds(const DltExpect *e, double value)
{
    const bool holds[] = {
        [DLT_EXPECT_NEAR] = fabs(value - e->value) <= e->tolerance,
        [DLT_EXPECT_LT] =
            value<e->value, [DLT_EXPECT_LE] = value <= e->value, [DLT_EXPECT_GT] = value> e->value,
        [DLT_EXPECT_GE] = value >= e->value,
    };
    return !isnan(value) && holds[e->op];
}

static const char *skip_space(const char *p)
{
    while (*p == ' ')
        p++;
    return p;
}

static const char *read_op(const char *p, DltExpectOp *op)
{
    static const struct {
        const char *text;
        DltExpectOp op;
    } ops[] = {
        {"<=", DLT_EXPECT_LE}, {">=", DLT_EXPECT_GE}, {"<", DLT_EXPECT_LT}, {">", DLT_EXPECT_GT}};
    *op = DLT_EXPECT_NEAR;
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        size_t n = strlen(ops[i].text);
        if (strncmp(p, ops[i].text, n) != 0) continue;
        *op = ops[i].op;
        return skip_space(p + n);
    }
    return p;
}

/* A number with its unit; NULL when there is none. */
static const char *read_number(const char *p, double *v)
{
    static const struct {
        const char *text;
        double factor;
    } units[] = {{"KiB", 1024.0},
                 {"MiB", 1048576.0},
                 {"GiB", 1073741824.0},
                 {"TiB", 1099511627776.0},
                 {"k", 1e3},
                 {"M", 1e6},
                 {"G", 1e9},
                 {"B", 1e9},
                 {"%", 0.01}};
    char number[64];
    size_t n = strspn(p, "+-.0123456789");
    if ((p[n] == 'e' || p[n] == 'E') && n > 0) n += 1 + strspn(p + n + 1, "+-0123456789");
    if (n == 0 || n >= sizeof number) return NULL;
    memcpy(number, p, n);
    number[n] = '\0';
    if (!dlt_parse_float(number, v)) return NULL;
    p = skip_space(p + n);
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        size_t m = strlen(units[i].text);
        if (strncmp(p, units[i].text, m) != 0 || isalpha((unsigned char)p[m])) continue;
        *v *= units[i].factor;
        return skip_space(p + m);
    }
    return p;
}

/* "± 1%" or "+- 1%" of the value, or an absolute number. */
static const char *read_tolerance(const char *p, DltExpect *e)
{
    static const char *const signs[] = {"\xC2\xB1", "+-"};
    double v;
    for (size_t i = 0; i < 2; i++) {
        size_t n = strlen(signs[i]);
        if (strncmp(p, signs[i], n) != 0) continue;
        const char *number = skip_space(p + n), *end = read_number(number, &v);
        if (!end || v < 0.0) return NULL;
        bool relative = memchr(number, '%', (size_t)(end - number)) != NULL;
        e->tolerance = relative ? v * fabs(e->value) : v;
        return end;
    }
    return p;
}

static bool parse(const char *text, DltExpect *e)
{
    const char *p = read_op(skip_space(text), &e->op);
    p = read_number(p, &e->value);
    if (p) p = read_tolerance(p, e);
    if (!p || (e->tolerance > 0.0 && e->op != DLT_EXPECT_NEAR)) return false;
    if (*p == '\0') return true;
    if (strncmp(p, "by ", 3) != 0) return false;
    p = skip_space(p + 3);
    return strcmp(p, "end") == 0 || (dlt_parse_span(p, &e->by_span) && e->by_span.n > 0.0);
}

static DltStatus read_one(DltReader *r, const DltYaml *map, int i, DltExpect *e)
{
    static const char *const known[] = {"params", "vram", NULL};
    const char *key = map->key[i], *path = dlt_arena_printf(r->arena, "expect.%s", key);
    const DltYaml *value = map->item[i];
    const DltMetricDef *def;
    *e = (DltExpect){.key = key, .text = value->text, .at = value->at};
    bool fixed = strcmp(key, known[0]) == 0 || strcmp(key, known[1]) == 0;
    if (!fixed && !strchr(key, '.')) {
        const char *near = dlt_nearest(key, known);
        return dlt_err_at(r->err, DLT_E_CONFIG, map->key_at[i],
                          "expect: unknown key '%s'%s%s%s; known: params, vram, and metrics of a "
                          "split such as val.loss",
                          key, near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    }
    if (!fixed) DLT_TRY(dlt_metric_of(r->spec, map->key_at[i], "expect", key, &def, r->err));
    if (value->kind == DLT_YAML_SCALAR && parse(value->text, e)) return DLT_OK;
    return dlt_err_at(
        r->err, DLT_E_CONFIG, value->at,
        "%s: '%s' is no expectation; write such as \"> 94%% by end\", \"11.17M \xC2\xB1 "
        "1%%\" or \"< 20 GiB\"",
        path, value->kind == DLT_YAML_SCALAR ? value->text : "a list or map");
}

DltStatus dlt_read_expect(DltReader *r, const DltYaml *tree)
{
    DltSpec *spec = r->spec;
    DltYaml *map = NULL;
    DltStatus status = DLT_OK;
    if (!tree) return DLT_OK;
    DLT_TRY(dlt_expand(r->arena, &r->scope, tree, &map, r->err));
    if (map->kind != DLT_YAML_MAP)
        return dlt_err_at(r->err, DLT_E_CONFIG, map->at,
                          "expect: needs a map, such as {val.top1: \"> 90%% by end\"}");
    spec->expect = DLT_NEW_ARRAY(r->arena, map->n + 1, DltExpect);
    spec->n_expect = map->n;
    for (int i = 0; i < map->n; i++)
        status = dlt_first(status, read_one(r, map, i, &spec->expect[i]));
    return status;
}
