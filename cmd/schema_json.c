/* `dltrain explain --json-schema`: the field tables as a JSON Schema (draft 07), so that editors
 * complete and check configs while they are typed. It is as strict as the tables about keys, types and
 * ranges; what needs more than one value (shapes, totals) only the program itself can judge. Any
 * value may also be a text with a $variable in it. */
#include "cmd/manual.h"

#include "config/types.h"

#include <jansson.h>
#include <math.h>

static json_t *of_path(const char *path);

static json_t *ref(const char *name)
{
    return json_pack("{s:s+}", "$ref", "#/definitions/", name);
}

static json_t *any_of(json_t *a, json_t *b)
{
    return json_pack("{s:[o, o]}", "anyOf", a, b);
}

static json_t *list_of(json_t *item)
{
    return json_pack("{s:s, s:o}", "type", "array", "items", item);
}

static json_t *text_like(const char *pattern)
{
    return json_pack("{s:s, s:s}", "type", "string", "pattern", pattern);
}

static json_t *number(const DltField *f, const char *type)
{
    json_t *o = json_pack("{s:s}", "type", type);
    if (f->lo == 0 && f->hi == 0) return o;
    if (isfinite(f->lo))
        json_object_set_new(o, f->open_lo ? "exclusiveMinimum" : "minimum", json_real(f->lo));
    if (isfinite(f->hi))
        json_object_set_new(o, f->open_hi ? "exclusiveMaximum" : "maximum", json_real(f->hi));
    return o;
}

static json_t *of_bool(const DltField *f, const char *path)
{
    (void)f, (void)path;
    return any_of(json_pack("{s:s}", "type", "boolean"), text_like("^(true|false)$|\\$"));
}

static json_t *of_int(const DltField *f, const char *path)
{
    (void)path;
    return any_of(number(f, "integer"), text_like("^[ +-]*[0-9]+$|\\$"));
}

/* YAML readers take 1e-4 for a text, and 1/3 is one. */
static json_t *of_float(const DltField *f, const char *path)
{
    (void)path;
    return any_of(number(f, "number"), text_like("^[0-9eE./ +-]+$|\\$"));
}

static json_t *of_enum(const DltField *f, const char *path)
{
    (void)path;
    json_t *names = json_array();
    for (const DltEnum *e = f->choices; e->name; e++)
        json_array_append_new(names, json_string(e->name));
    return any_of(json_pack("{s:o}", "enum", names), text_like("\\$"));
}

static json_t *of_text(const DltField *f, const char *path)
{
    (void)f, (void)path;
    return json_pack("{s:[s, s, s]}", "type", "string", "number", "boolean");
}

static json_t *of_dims(const DltField *f, const char *path)
{
    return any_of(of_int(f, path), list_of(of_int(f, path)));
}

static json_t *of_floats(const DltField *f, const char *path)
{
    return any_of(of_float(f, path), list_of(of_float(f, path)));
}

static json_t *of_texts(const DltField *f, const char *path)
{
    return any_of(of_text(f, path), list_of(of_text(f, path)));
}

static json_t *of_span(const DltField *f, const char *path)
{
    (void)f, (void)path;
    return text_like("^[0-9eE./+-]+ ?(steps?|epochs?|tokens?|samples?|s|min|h|d|%)$|\\$");
}

static json_t *of_size(const DltField *f, const char *path)
{
    (void)f, (void)path;
    return text_like("^[0-9eE./+-]+ ?([KMGT]i?B|kB|B)$|\\$");
}

static json_t *of_tree(const DltField *f, const char *path)
{
    (void)f;
    return of_path(path);
}

static json_t *(*const of_type[])(const DltField *f, const char *path) = {
    [DLT_T_BOOL] = of_bool,     [DLT_T_INT] = of_int,    [DLT_T_FLOAT] = of_float,
    [DLT_T_ENUM] = of_enum,     [DLT_T_STR] = of_text,   [DLT_T_DIMS] = of_dims,
    [DLT_T_FLOATS] = of_floats, [DLT_T_STRS] = of_texts, [DLT_T_SPAN] = of_span,
    [DLT_T_SIZE] = of_size,     [DLT_T_TREE] = of_tree,
};

static json_t *of_field(const DltField *f, const char *path)
{
    char full[256], expects[DLT_EXPECTS_TEXT];
    snprintf(full, sizeof full, "%s%s%s", path, path[0] ? "." : "", f->key);
    json_t *o = of_type[f->type](f, full);
    json_object_set_new(
        o, "description",
        json_sprintf("%s (%s)", f->help ? f->help : f->key, dlt_field_expects(f, expects)));
    if (f->def) json_object_set_new(o, "default", json_string(f->def));
    return o;
}

/* One table as a map: closed, but for keys x-... What is required may come from a config that is
 * extended, so only the top level asks for its sections. */
static json_t *of_table(const DltField *fields, const char *path)
{
    json_t *properties = json_object();
    for (const DltField *f = fields; f && f->key; f++)
        json_object_set_new(properties, f->key, of_field(f, path));
    return json_pack("{s:s, s:o, s:{s:{}}, s:b}", "type", "object", "properties", properties,
                     "patternProperties", "^x-", "additionalProperties", 0);
}

/* A table, or its main argument alone, or nothing. */
static json_t *of_options(const DltField *fields, const char *path)
{
    json_t *table = any_of(of_table(fields, path), json_pack("{s:s}", "type", "null"));
    if (!fields || !fields[0].key || !fields[0].main) return table;
    return any_of(of_field(&fields[0], path), table);
}

/* {kind: options, ...} with the keys that may stand beside it, or the bare name of a kind. */
static json_t *of_registry(const DltRegistry *reg, json_t *beside, bool open)
{
    DltRegistryRow row;
    json_t *names = json_array(), *properties = beside;
    for (int i = 0; reg->row(i, &row); i++) {
        char path[256];
        snprintf(path, sizeof path, "%s.%s", reg->path, row.name);
        json_t *options = of_options(row.fields, path);
        json_object_set_new(options, "description", json_string(row.help ? row.help : row.name));
        json_object_set_new(properties, row.name, options);
        json_array_append_new(names, json_string(row.name));
    }
    json_t *word = open ? (json_decref(names), json_pack("{s:s}", "type", "string"))
                        : any_of(json_pack("{s:o}", "enum", names), text_like("\\$"));
    return any_of(word, json_pack("{s:s, s:o, s:b}", "type", "object", "properties", properties,
                                  "additionalProperties", (int)open));
}

/* Layers: blocks have names that only the config knows, so other keys are let through. */
static json_t *layer_item(void)
{
    json_t *beside = json_object();
    json_object_set_new(beside, "name", json_pack("{s:[s, s]}", "type", "string", "integer"));
    json_object_set_new(beside, "from", json_object());
    json_object_set_new(beside, "repeat", json_object());
    json_object_set_new(beside, "sequential", ref("layers"));
    json_object_set_new(
        beside, "residual",
        any_of(ref("layers"), of_table(dlt_section_fields("model.residual"), "model.residual")));
    return of_registry(&dlt_registries[DLT_REG_LAYER], beside, true);
}

/* A source of samples: options beside the format or inside it; val and test may be "10% of train". */
static json_t *of_source(void)
{
    const DltRegistry *reg = &dlt_registries[DLT_REG_DATASET];
    DltRegistryRow row;
    json_t *forms = json_pack("[o]", json_pack("{s:s}", "type", "string"));
    for (int i = 0; reg->row(i, &row); i++) {
        json_array_append_new(forms, of_table(row.fields, row.name));
        json_array_append_new(forms,
                              json_pack("{s:s, s:{s:o}, s:[s], s:b}", "type", "object",
                                        "properties", row.name, of_options(row.fields, row.name),
                                        "required", row.name, "additionalProperties", 0));
    }
    return json_pack("{s:o}", "anyOf", forms);
}

static json_t *layers_ref(void)
{
    return ref("layers");
}

static json_t *layers_or_one(void)
{
    return any_of(ref("layers"), ref("layer"));
}

static json_t *model(void)
{
    return any_of(ref("layers"), of_table(dlt_section_fields("model"), "model"));
}

static json_t *blocks(void)
{
    return json_pack("{s:s, s:o}", "type", "object", "additionalProperties",
                     of_table(dlt_section_fields("blocks.NAME"), "blocks.NAME"));
}

static json_t *optimizer(void)
{
    json_t *beside = json_object();
    json_t *group =
        of_table(dlt_section_fields("train.optimizer.groups"), "train.optimizer.groups");
    json_object_set_new(beside, "groups", list_of(group));
    return of_registry(&dlt_registries[DLT_REG_OPTIM], beside, false);
}

/* Numbers of the table, or texts such as `524288 tokens` and `auto`. */
static json_t *batch(void)
{
    json_t *table = of_table(dlt_section_fields("train.batch"), "train.batch");
    const char *key;
    json_t *value;
    json_object_foreach(json_object_get(table, "properties"), key, value)
    {
        json_object_set_new(value, "anyOf", json_array());
        json_array_append_new(json_object_get(value, "anyOf"),
                              json_pack("{s:s, s:i}", "type", "integer", "minimum", 1));
        json_array_append_new(json_object_get(value, "anyOf"),
                              text_like("^[0-9]+( tokens)?$|^auto$|\\$"));
    }
    json_t *one = any_of(json_pack("{s:s, s:i}", "type", "integer", "minimum", 1),
                         text_like("^[0-9]+( tokens)?$|\\$"));
    return any_of(one, table);
}

/* Trees whose form is no field table and no registry. */
static const struct {
    const char *path;
    json_t *(*make)(void);
} special[] = {
    {"model", model},
    {"model.layers", layers_ref},
    {"model.residual.body", layers_ref},
    {"model.residual.project", layers_or_one},
    {"blocks", blocks},
    {"blocks.NAME.layers", layers_ref},
    {"data.train", of_source},
    {"data.val", of_source},
    {"data.test", of_source},
    {"train.batch", batch},
    {"train.optimizer", optimizer},
};

static json_t *of_path(const char *path)
{
    for (size_t i = 0; i < sizeof special / sizeof special[0]; i++)
        if (strcmp(special[i].path, path) == 0) return special[i].make();
    const DltField *fields = dlt_section_fields(path);
    if (fields) return any_of(of_options(fields, path), text_like(""));
    for (int k = 0; k < DLT_N_REGISTRY; k++) {
        const DltRegistry *reg = &dlt_registries[k];
        if (strcmp(reg->path, path) != 0) continue;
        json_t *item = of_registry(reg, json_object(), false);
        return any_of(item, list_of(json_deep_copy(item)));
    }
    return json_object(); /* free: vars, passes, expect */
}

DltStatus dlt_manual_json(const DltArgs *args, DltErr *err)
{
    (void)args;
    json_t *o = of_table(dlt_section_fields("config"), "");
    json_object_set_new(json_object_get(o, "properties"), "extends",
                        json_pack("{s:s}", "type", "string"));
    json_t *required = json_array();
    for (const DltField *f = dlt_section_fields("config"); f->key; f++)
        if (f->required) json_array_append_new(required, json_string(f->key));
    json_object_set_new(o, "anyOf",
                        json_pack("[{s:[s]}, {s:o}]", "required", "extends", "required", required));
    json_object_set_new(o, "$schema", json_string("http://json-schema.org/draft-07/schema#"));
    json_object_set_new(o, "title", json_sprintf("dltrain %s", dlt_version()));
    json_object_set_new(o, "definitions",
                        json_pack("{s:o, s:o}", "layer", layer_item(), "layers",
                                  list_of(any_of(ref("layer"), ref("layers")))));
    int failed = json_dumpf(o, stdout, JSON_INDENT(1) | JSON_PRESERVE_ORDER);
    json_decref(o);
    putchar('\n');
    return failed ? dlt_err(err, DLT_E_RESOURCE, "the JSON Schema could not be written") : DLT_OK;
}
