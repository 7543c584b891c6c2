/* Field tables and what was read by them -> text: names of types, ranges, resolved values, and the
 * table of `dltrain explain`. */
#include "base/text.h"
#include "config/schema.h"
#include "config/types.h"
#include <math.h>

static const char *const type_names[] = {
    [DLT_T_BOOL] = "true or false",
    [DLT_T_INT] = "an integer",
    [DLT_T_FLOAT] = "a number",
    [DLT_T_ENUM] = "one of",
    [DLT_T_STR] = "a text",
    [DLT_T_DIMS] = "an integer or a list of integers",
    [DLT_T_FLOATS] = "a number or a list of numbers",
    [DLT_T_STRS] = "a word or a list of words",
    [DLT_T_SPAN] = "a duration with its unit (50 epochs, 700 steps, 30 min, 5%)",
    [DLT_T_SIZE] = "a size with its unit (2 GiB)",
    [DLT_T_TREE] = "a word, a list or a map",
};

const char *dlt_field_expects(const DltField *field, char buf[DLT_EXPECTS_TEXT])
{
    int n = snprintf(buf, DLT_EXPECTS_TEXT, "%s", type_names[field->type]);
    const DltEnum *choice = field->type == DLT_T_ENUM ? field->choices : NULL;
    for (int i = 0; choice != NULL && choice[i].name != NULL && n < DLT_EXPECTS_TEXT; i++) {
        n += snprintf(buf + n, (size_t)(DLT_EXPECTS_TEXT - n), "%s %s", i > 0 ? "," : "",
                      choice[i].name);
    }
    return buf;
}

const char *dlt_field_range(const DltField *f, char buf[DLT_RANGE_TEXT])
{
    char lo[DLT_NUMBER_TEXT], hi[DLT_NUMBER_TEXT];
    dlt_number_text(f->lo, lo);
    dlt_number_text(f->hi, hi);
    buf[0] = '\0';
    if (f->lo == 0 && f->hi == 0) return buf;
    if (isinf(f->hi)) {
        snprintf(buf, DLT_RANGE_TEXT, "%s %s", f->open_lo ? ">" : ">=", lo);
    } else if (isinf(f->lo)) {
        snprintf(buf, DLT_RANGE_TEXT, "%s %s", f->open_hi ? "<" : "<=", hi);
    } else {
        snprintf(buf, DLT_RANGE_TEXT, "%s%s, %s%s", f->open_lo ? "(" : "[", lo, hi,
                 f->open_hi ? ")" : "]");
    }
    return buf;
}

/* ---- resolved values ---------------------------------------------------------------------- */

static DltYaml *plain(DltArena *arena, const char *text)
{
    return dlt_yaml_scalar(arena, text, DLT_NO_MARK);
}

static DltYaml *quoted(DltArena *arena, const char *text)
{
    DltYaml *scalar = plain(arena, text);
    scalar->quoted = text[0] == '\0';
    return scalar;
}

static DltYaml *of_bool(DltArena *arena, const DltField *field, const void *member)
{
    (void)field;
    return plain(arena, *(const bool *)member ? "true" : "false");
}

static DltYaml *int_text(DltArena *arena, int64_t v)
{
    return plain(arena, dlt_arena_printf(arena, "%lld", (long long)v));
}

static DltYaml *float_text(DltArena *arena, double v)
{
    char buf[DLT_NUMBER_TEXT];
    return plain(arena, dlt_number_text(v, buf));
}

static DltYaml *of_int(DltArena *arena, const DltField *field, const void *member)
{
    (void)field;
    return int_text(arena, *(const int64_t *)member);
}

static DltYaml *of_float(DltArena *arena, const DltField *field, const void *member)
{
    (void)field;
    return float_text(arena, *(const double *)member);
}

static DltYaml *of_enum(DltArena *arena, const DltField *field, const void *member)
{
    const DltEnum *choice = field->choices;
    while (choice->name != NULL && choice->value != *(const int *)member)
        choice++;
    return choice->name != NULL ? plain(arena, choice->name) : NULL;
}

static DltYaml *of_str(DltArena *arena, const DltField *field, const void *member)
{
    (void)field;
    const char *text = *(const char *const *)member;
    return text != NULL ? quoted(arena, text) : NULL;
}

static DltYaml *of_dims(DltArena *arena, const DltField *field, const void *member)
{
    (void)field;
    const DltDims *dims = member;
    DltYaml *list = dlt_yaml_list(arena, DLT_NO_MARK);
    for (int i = 0; i < dims->n; i++)
        dlt_yaml_append(arena, list, int_text(arena, dims->v[i]));
    return list->n == 1 ? list->item[0] : list;
}

static DltYaml *of_floats(DltArena *arena, const DltField *field, const void *member)
{
    (void)field;
    const DltFloats *floats = member;
    DltYaml *list = dlt_yaml_list(arena, DLT_NO_MARK);
    for (int i = 0; i < floats->n; i++)
        dlt_yaml_append(arena, list, float_text(arena, floats->v[i]));
    return list->n == 1 ? list->item[0] : list;
}

static DltYaml *of_strs(DltArena *arena, const DltField *field, const void *member)
{
    (void)field;
    const DltStrs *strs = member;
    DltYaml *list = dlt_yaml_list(arena, DLT_NO_MARK);
    for (int i = 0; i < strs->n; i++)
        dlt_yaml_append(arena, list, quoted(arena, strs->v[i]));
    return list;
}

static DltYaml *of_span(DltArena *arena, const DltField *field, const void *member)
{
    static const char *const words[] = {
        [DLT_U_STEPS] = " steps",     [DLT_U_EPOCHS] = " epochs", [DLT_U_TOKENS] = " tokens",
        [DLT_U_SAMPLES] = " samples", [DLT_U_SECONDS] = " s",     [DLT_U_PERCENT] = "%"};
    (void)field;
    const DltSpan *span = member;
    char buf[DLT_NUMBER_TEXT];
    if (span->unit == DLT_U_NONE) return NULL;
    return plain(arena,
                 dlt_arena_printf(arena, "%s%s", dlt_number_text(span->n, buf), words[span->unit]));
}

static DltYaml *of_size(DltArena *arena, const DltField *field, const void *member)
{
    static const char *const words[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    (void)field;
    int64_t n = *(const int64_t *)member;
    int unit = 0;
    for (; unit < 4 && n > 0 && n % 1024 == 0; unit++)
        n /= 1024;
    return plain(arena, dlt_arena_printf(arena, "%lld %s", (long long)n, words[unit]));
}

static DltYaml *of_tree(DltArena *arena, const DltField *field, const void *member)
{
    (void)field;
    const DltYaml *tree = *(const DltYaml *const *)member;
    return tree != NULL ? dlt_yaml_copy(arena, tree) : NULL;
}

static DltYaml *(*const getters[])(DltArena *arena, const DltField *field, const void *member) = {
    [DLT_T_BOOL] = of_bool,     [DLT_T_INT] = of_int,   [DLT_T_FLOAT] = of_float,
    [DLT_T_ENUM] = of_enum,     [DLT_T_STR] = of_str,   [DLT_T_DIMS] = of_dims,
    [DLT_T_FLOATS] = of_floats, [DLT_T_STRS] = of_strs, [DLT_T_SPAN] = of_span,
    [DLT_T_SIZE] = of_size,     [DLT_T_TREE] = of_tree,
};

DltYaml *dlt_schema_resolved(DltArena *arena, const DltOpts *o)
{
    DltYaml *map = dlt_yaml_map(arena, o->at);
    for (int i = 0; o->fields[i].key != NULL; i++) {
        const DltField *field = &o->fields[i];
        bool has_value = o->mark[i].file != NULL;
        if (!has_value) continue;
        DltYaml *value = getters[field->type](arena, field, (const char *)o->v + field->offset);
        if (value != NULL) dlt_yaml_append_pair(arena, map, field->key, o->mark[i], value);
    }
    return map;
}

/* ---- explain ------------------------------------------------------------------------------ */

/* The width of the longest key. */
static int key_width(const DltField *fields)
{
    size_t width = 0;
    for (const DltField *f = fields; f->key != NULL; f++) {
        if (strlen(f->key) > width) width = strlen(f->key);
    }
    return (int)width;
}

void dlt_schema_explain(const DltField *fields, FILE *out)
{
    int width = key_width(fields);
    for (const DltField *f = fields; f->key != NULL; f++) {
        char expects[DLT_EXPECTS_TEXT], range[DLT_RANGE_TEXT];
        fprintf(out, "  %-*s  %s", width, f->key, dlt_field_expects(f, expects));
        if (f->unit != NULL) fprintf(out, " of %s", f->unit);
        if (dlt_field_range(f, range)[0] != '\0') fprintf(out, ", %s", range);
        if (f->required)
            fputs(", required", out);
        else if (f->def != NULL)
            fprintf(out, ", default %s", f->def[0] != '\0' ? f->def : "\"\"");
        if (f->main) fputs(", main argument", out);
        if (f->help != NULL) fprintf(out, ": %s", f->help);
        if (f->example != NULL) fprintf(out, " (example: %s)", f->example);
        fputc('\n', out);
    }
}
