/* Field tables -> structs: one loop over the keys written, one over the rows, and a setter per
 * field type. Every fault is reported at its own place before the reading ends. */
#include "config/schema.h"
#include "config/suggest.h"
#include "config/types.h"
#include <strings.h>

/* One value on its way into one member. */
typedef struct Site {
    DltArena *arena;
    const DltField *field;
    const char *owner; /* "model[3].dense"; "" at top level */
    DltErr *err;
} Site;

static bool complain(const Site *s, DltMark at, const char *fmt, ...) DLT_PRINTF(3, 4);

/* Reports "owner.key: ..." and returns false. */
static bool complain(const Site *s, DltMark at, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    const char *text = dlt_arena_vprintf(s->arena, fmt, args);
    va_end(args);
    dlt_err_at(s->err, DLT_E_CONFIG, at, "%s%s%s: %s", s->owner, s->owner[0] != '\0' ? "." : "",
               s->field->key, text);
    return false;
}

static const char *kind_name(DltYamlKind kind)
{
    return kind == DLT_YAML_MAP ? "a map" : kind == DLT_YAML_LIST ? "a list" : "a text";
}

static bool is_missing(const DltYaml *value)
{
    return value->kind == DLT_YAML_SCALAR && value->text[0] == '\0' && !value->quoted;
}

/* True when value is a scalar with a text in it. */
static bool expect_scalar(const Site *s, const DltYaml *value)
{
    char expected[DLT_EXPECTS_TEXT];
    dlt_field_expects(s->field, expected);
    if (value->kind != DLT_YAML_SCALAR) {
        return complain(s, value->at, "expects %s, not %s", expected, kind_name(value->kind));
    }
    if (is_missing(value)) return complain(s, value->at, "has no value; it expects %s", expected);
    return true;
}

static bool in_range(const Site *s, const DltYaml *value, double v)
{
    const DltField *f = s->field;
    if (f->lo == 0 && f->hi == 0) return true;
    bool low = f->open_lo ? v <= f->lo : v < f->lo, high = f->open_hi ? v >= f->hi : v > f->hi;
    if (!low && !high) return true;
    char range[DLT_RANGE_TEXT];
    return complain(s, value->at, "%s is out of range %s", value->text, dlt_field_range(f, range));
}

/* "; write ..." for spellings of other languages. */
static const char *number_hint(const char *text)
{
    static const char *const no_number[] = {"nan",  ".nan",  "inf",   ".inf",
                                            "-inf", "-.inf", "+.inf", NULL};
    for (int i = 0; no_number[i] != NULL; i++) {
        if (strcasecmp(text, no_number[i]) == 0) return "; it must be finite";
    }
    double v;
    if (strchr(text, ',') != NULL) return "; the decimal sign is a point";
    if (strchr(text, '_') != NULL) return "; digits are written without '_'";
    if (dlt_parse_float(text, &v)) return "; it must be whole and is written without a point";
    return "";
}

static bool set_bool(const Site *s, const DltYaml *value, void *member)
{
    static const struct {
        const char *word, *instead;
    } others[] = {{"yes", "true"},  {"on", "true"},    {"y", "true"},  {"1", "true"},
                  {"no", "false"},  {"off", "false"},  {"n", "false"}, {"0", "false"},
                  {"true", "true"}, {"false", "false"}};
    if (!expect_scalar(s, value)) return false;
    bool is_true = strcmp(value->text, "true") == 0;
    if (is_true || strcmp(value->text, "false") == 0) {
        *(bool *)member = is_true;
        return true;
    }
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        if (strcasecmp(value->text, others[i].word) != 0) continue;
        return complain(s, value->at, "'%s' is not a boolean; write %s", value->text,
                        others[i].instead);
    }
    return complain(s, value->at, "'%s' is not a boolean; write true or false", value->text);
}

static bool read_int(const Site *s, const DltYaml *value, int64_t *v)
{
    if (!expect_scalar(s, value)) return false;
    if (!dlt_parse_int(value->text, v)) {
        return complain(s, value->at, "'%s' is not an integer%s", value->text,
                        number_hint(value->text));
    }
    return in_range(s, value, (double)*v);
}

static bool read_float(const Site *s, const DltYaml *value, double *v)
{
    if (!expect_scalar(s, value)) return false;
    if (!dlt_parse_float(value->text, v)) {
        return complain(s, value->at, "'%s' is not a number%s", value->text,
                        number_hint(value->text));
    }
    return in_range(s, value, *v);
}

static bool set_int(const Site *s, const DltYaml *value, void *member)
{
    int64_t v;
    if (!read_int(s, value, &v)) return false;
    *(int64_t *)member = v;
    return true;
}

static bool set_float(const Site *s, const DltYaml *value, void *member)
{
    double v;
    if (!read_float(s, value, &v)) return false;
    *(double *)member = v;
    return true;
}

static bool set_enum(const Site *s, const DltYaml *value, void *member)
{
    if (!expect_scalar(s, value)) return false;
    int n = 0;
    for (const DltEnum *e = s->field->choices; e->name != NULL; e++, n++) {
        if (strcmp(e->name, value->text) != 0) continue;
        *(int *)member = e->value;
        return true;
    }
    const char **names = DLT_NEW_ARRAY(s->arena, n + 1, const char *);
    for (int i = 0; i < n; i++)
        names[i] = s->field->choices[i].name;
    char expected[DLT_EXPECTS_TEXT];
    return complain(s, value->at, "'%s' is not %s%s", value->text,
                    dlt_field_expects(s->field, expected),
                    dlt_suggest_word(s->arena, value->text, names));
}

static bool set_str(const Site *s, const DltYaml *value, void *member)
{
    if (!expect_scalar(s, value)) return false;
    *(const char **)member = value->text;
    return true;
}

/* A list, or a single value standing for a list of one. */
static int list_of(const DltYaml *const *value, const DltYaml *const **items)
{
    bool is_list = (*value)->kind == DLT_YAML_LIST;
    *items = is_list ? (const DltYaml *const *)(*value)->item : value;
    return is_list ? (*value)->n : 1;
}

static bool expect_count(const Site *s, const DltYaml *value, int n, int max)
{
    if (n == 0) return complain(s, value->at, "the list is empty");
    if (n > max) return complain(s, value->at, "the list has %d values; at most %d", n, max);
    return true;
}

static bool set_dims(const Site *s, const DltYaml *value, void *member)
{
    DltDims dims = {.n = 0};
    const DltYaml *const *items;
    int n = list_of(&value, &items);
    if (!expect_count(s, value, n, DLT_MAX_RANK)) return false;
    bool ok = true;
    for (; dims.n < n; dims.n++)
        ok = read_int(s, items[dims.n], &dims.v[dims.n]) && ok;
    if (ok) *(DltDims *)member = dims;
    return ok;
}

static bool set_floats(const Site *s, const DltYaml *value, void *member)
{
    const DltYaml *const *items;
    int n = list_of(&value, &items);
    if (!expect_count(s, value, n, DLT_MAX_FLOATS)) return false;
    double *v = DLT_NEW_ARRAY(s->arena, n, double);
    bool ok = true;
    for (int i = 0; i < n; i++)
        ok = read_float(s, items[i], &v[i]) && ok;
    if (ok) *(DltFloats *)member = (DltFloats){.n = n, .v = v};
    return ok;
}

/* "a, b" -> {"a", "b"} */
static bool split_words(const Site *s, const DltYaml *value, DltStrs *strs)
{
    int n = 1;
    for (const char *c = value->text; *c != '\0'; c++)
        n += *c == ',';
    const char **words = DLT_NEW_ARRAY(s->arena, n, const char *);
    const char *at = value->text;
    for (int i = 0; i < n; i++) {
        at += strspn(at, " ");
        size_t whole = strcspn(at, ","), len = whole;
        while (len > 0 && at[len - 1] == ' ')
            len--;
        if (len == 0) return complain(s, value->at, "'%s' has an empty word", value->text);
        words[i] = dlt_arena_strn(s->arena, at, len);
        at += whole + 1;
    }
    *strs = (DltStrs){.n = n, .v = words};
    return true;
}

static bool set_strs(const Site *s, const DltYaml *value, void *member)
{
    DltStrs *strs = member;
    if (value->kind != DLT_YAML_LIST) return expect_scalar(s, value) && split_words(s, value, strs);
    const char **words = DLT_NEW_ARRAY(s->arena, value->n, const char *);
    bool ok = true;
    for (int i = 0; i < value->n; i++) {
        ok = expect_scalar(s, value->item[i]) && ok;
        words[i] = value->item[i]->text;
    }
    if (ok) *strs = (DltStrs){.n = value->n, .v = words};
    return ok;
}

static bool set_span(const Site *s, const DltYaml *value, void *member)
{
    DltSpan span;
    double number;
    if (!expect_scalar(s, value)) return false;
    if (!dlt_parse_span(value->text, &span)) {
        bool bare = dlt_parse_float(value->text, &number);
        return complain(s, value->at,
                        "'%s' %s; write a number and one of: steps, epochs, tokens, samples (the "
                        "counted ones whole), s, min, h, d, %%",
                        value->text, bare ? "has no unit" : "is no duration");
    }
    if (!in_range(s, value, span.n)) return false;
    *(DltSpan *)member = span;
    return true;
}

static bool set_size(const Site *s, const DltYaml *value, void *member)
{
    int64_t bytes;
    double number;
    if (!expect_scalar(s, value)) return false;
    if (!dlt_parse_size(value->text, &bytes)) {
        bool bare = dlt_parse_float(value->text, &number);
        return complain(s, value->at,
                        "'%s' %s; write a number and one of: B, KiB, MiB, GiB, TiB, kB, MB, GB, TB",
                        value->text, bare ? "has no unit" : "is no size in whole bytes");
    }
    if (!in_range(s, value, (double)bytes)) return false;
    *(int64_t *)member = bytes;
    return true;
}

static bool set_tree(const Site *s, const DltYaml *value, void *member)
{
    if (is_missing(value)) return complain(s, value->at, "has no value");
    *(const DltYaml **)member = value;
    return true;
}

/* A setter writes the member when it returns true, and reports and leaves it when false. */
static bool (*const setters[])(const Site *s, const DltYaml *value, void *member) = {
    [DLT_T_BOOL] = set_bool,     [DLT_T_INT] = set_int,   [DLT_T_FLOAT] = set_float,
    [DLT_T_ENUM] = set_enum,     [DLT_T_STR] = set_str,   [DLT_T_DIMS] = set_dims,
    [DLT_T_FLOATS] = set_floats, [DLT_T_STRS] = set_strs, [DLT_T_SPAN] = set_span,
    [DLT_T_SIZE] = set_size,     [DLT_T_TREE] = set_tree,
};

/* One reading of one table. */
typedef struct Reading {
    DltArena *arena;
    const DltField *fields;
    char *v;
    DltMark *mark;
    bool *set;
    const char *name;
    DltMark at;
    DltErr *err;
    bool failed;
} Reading;

/* False when the value was refused. */
static bool set_member(Reading *r, int i, const DltYaml *value)
{
    const DltField *field = &r->fields[i];
    Site site = {.arena = r->arena, .field = field, .owner = r->name, .err = r->err};
    return setters[field->type](&site, value, r->v + field->offset);
}

/* The default goes the way of a written value, so that it cannot escape the checks. */
static void set_default(Reading *r, int i)
{
    const DltField *field = &r->fields[i];
    DltMark origin = {.file = "<default>", .line = 1, .col = 1, .text = field->def};
    DltYaml *value = NULL;
    bool is_tree = (field->def[0] == '[' || field->def[0] == '{') && field->type != DLT_T_STR;
    if (is_tree) {
        DltStatus status = dlt_yaml_parse_at(r->arena, origin, field->def, &value, NULL);
        DLT_BUG_ON(status != DLT_OK);
    } else {
        value = dlt_yaml_scalar(r->arena, field->def, origin);
        value->quoted = true;
    }
    DLT_BUG_ON(!set_member(r, i, value)); /* a table row whose default breaks its own rules */
}

/* After a refused value the member has its default, so that later checks meet a sane one. */
static void set_field(Reading *r, int i, const DltYaml *value)
{
    r->set[i] = true;
    r->mark[i] = value->at.file != NULL ? value->at : r->at;
    if (r->mark[i].file == NULL) r->mark[i].file = ""; /* a value made by code */
    if (set_member(r, i, value)) return;
    r->failed = true;
    if (r->fields[i].def != NULL) set_default(r, i);
}

static int find_field(const DltField *fields, const char *key)
{
    for (int i = 0; fields[i].key != NULL; i++) {
        if (strcmp(fields[i].key, key) == 0) return i;
    }
    return -1;
}

static void refuse(Reading *r, DltMark at, const char *fmt, ...) DLT_PRINTF(3, 4);

/* Reports "name: ..." about the table as a whole. */
static void refuse(Reading *r, DltMark at, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    const char *text = dlt_arena_vprintf(r->arena, fmt, args);
    va_end(args);
    dlt_err_at(r->err, DLT_E_CONFIG, at, "%s%s%s", r->name, r->name[0] != '\0' ? ": " : "", text);
    r->failed = true;
}

/* The row that was meant counts as written, so that it is not called missing as well. */
static void refuse_key(Reading *r, const DltYaml *map, int i)
{
    bool full = r->err != NULL && r->err->n == DLT_ERR_MAX; /* finding suggestions takes time */
    int meant = -1;
    const char *answer = "";
    if (!full) answer = dlt_suggest_key(r->arena, r->name, r->fields, map->key[i], &meant);
    refuse(r, map->key_at[i], "unknown key '%s'%s", map->key[i], answer);
    if (meant < 0 || r->set[meant]) return;
    r->set[meant] = true;
    r->mark[meant] = map->key_at[i];
    if (r->fields[meant].def != NULL) set_default(r, meant);
}

static void read_map(Reading *r, const DltYaml *map)
{
    for (int i = 0; i < map->n; i++) {
        int field = find_field(r->fields, map->key[i]);
        if (field >= 0)
            set_field(r, field, map->item[i]);
        else if (strncmp(map->key[i], "x-", 2) != 0)
            refuse_key(r, map, i);
    }
}

/* A scalar or list that stands for the main argument, or is no options at all. */
static void read_main(Reading *r, const DltYaml *value)
{
    if (is_missing(value)) return;
    if (r->fields[0].key != NULL && r->fields[0].main) {
        set_field(r, 0, value);
        return;
    }
    bool glued = value->kind == DLT_YAML_SCALAR && strchr(value->text, ':') != NULL;
    refuse(r, value->at, "expects 'key: value' lines, not %s%s", kind_name(value->kind),
           glued ? "; is there a blank after the colon?" : "");
}

static void finish_fields(Reading *r)
{
    for (int i = 0; r->fields[i].key != NULL; i++) {
        const DltField *field = &r->fields[i];
        if (r->set[i]) continue;
        if (field->def != NULL) {
            set_default(r, i);
            r->mark[i] = (DltMark){.file = "<default>"};
        }
        if (!field->required) continue;
        char expected[DLT_EXPECTS_TEXT];
        refuse(r, r->at, "'%s' is required (%s)", field->key, dlt_field_expects(field, expected));
    }
}

DltStatus dlt_schema_read(DltArena *arena, const DltField *fields, size_t size,
                          const DltYaml *value, DltWhere where, DltOpts *out, DltErr *err)
{
    static const DltField no_fields[] = {DLT_FIELDS_END};
    if (fields == NULL) fields = no_fields;
    int n = 0;
    while (fields[n].key != NULL)
        n++;
    Reading r = {.arena = arena,
                 .fields = fields,
                 .v = dlt_arena_new_bytes(arena, size > 0 ? size : 1, 1),
                 .mark = DLT_NEW_ARRAY(arena, n + 1, DltMark),
                 .set = DLT_NEW_ARRAY(arena, n + 1, bool),
                 .name = dlt_arena_str(arena, where.name != NULL ? where.name : ""),
                 .at = where.at,
                 .err = err};
    if (value != NULL && value->kind == DLT_YAML_MAP)
        read_map(&r, value);
    else if (value != NULL)
        read_main(&r, value);
    finish_fields(&r);
    *out = (DltOpts){.v = r.v, .fields = fields, .mark = r.mark, .at = r.at, .name = r.name};
    return r.failed ? DLT_E_CONFIG : DLT_OK;
}

static int field_at(const DltOpts *o, size_t offset)
{
    for (int i = 0; o->fields[i].key != NULL; i++) {
        if (o->fields[i].offset == offset) return i;
    }
    dlt_bug(__FILE__, __LINE__, "no field at this offset");
}

DltMark dlt_opts_mark(const DltOpts *o, size_t offset)
{
    int i = field_at(o, offset);
    return o->mark[i].line > 0 ? o->mark[i] : o->at;
}

bool dlt_opts_given(const DltOpts *o, size_t offset)
{
    return o->mark[field_at(o, offset)].line > 0;
}
