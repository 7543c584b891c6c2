/* Replaces $name and ${expr} in a tree. A variable is expanded when it is first used and remembered
 * for the rest of the call, so chains of variables cost linear time; sizes and depth are limited as
 * for the text itself. After an error the other scalars are still looked at. */
#include "config/expand.h"
#include "base/text.h"
#include "config/expr.h"
#include "config/suggest.h"

enum { MAX_VARS = 1000 };

typedef enum VarState { UNTOUCHED, BEING_EXPANDED, EXPANDED, FAILED } VarState;

/* The variables of one scope as far as they are expanded. */
typedef struct Memo Memo;
struct Memo {
    const DltScope *scope;
    VarState *state;
    DltYaml **value;
    Memo *next;
};

/* The variable whose value is being expanded now, and who asked for it. */
typedef struct Active Active;
struct Active {
    const DltScope *scope;
    int var;
    const Active *asked_by;
};

typedef struct Expander {
    DltArena *arena;
    DltErr *err;
    const DltScope *innermost; /* of the call: where lookups of dotted names begin */
    Memo *memos;
    const Active *active;
    int n_node, depth;
} Expander;

/* The expander and the scope in which an expression stands. */
typedef struct Place {
    Expander *x;
    const DltScope *scope;
} Place;

static DltStatus expand(const Place *p, const DltYaml *tree, DltYaml **out);

static DltStatus count_node(Expander *x, DltMark at)
{
    if (++x->n_node <= DLT_YAML_NODES) return DLT_OK;
    return dlt_err_at(x->err, DLT_E_CONFIG, at, "more than %d values after expansion",
                      DLT_YAML_NODES);
}

static DltStatus copy_counted(Expander *x, const DltYaml *tree, DltYaml **out)
{
    DLT_TRY(count_node(x, tree->at));
    DltYaml *copy = DLT_NEW(x->arena, DltYaml);
    *copy = *tree;
    copy->n = 0;
    *out = copy;
    for (int i = 0; i < tree->n; i++) {
        DltYaml *item;
        DLT_TRY(copy_counted(x, tree->item[i], &item));
        if (tree->kind == DLT_YAML_LIST)
            dlt_yaml_append(x->arena, copy, item);
        else
            dlt_yaml_append_pair(x->arena, copy, tree->key[i], tree->key_at[i], item);
    }
    return DLT_OK;
}

/* ---- variables ---------------------------------------------------------------------------- */

static Memo *memo_of(Expander *x, const DltScope *scope)
{
    for (Memo *m = x->memos; m != NULL; m = m->next) {
        if (m->scope == scope) return m;
    }
    Memo *m = DLT_NEW(x->arena, Memo);
    *m = (Memo){.scope = scope,
                .state = DLT_NEW_ARRAY(x->arena, scope->vars->n, VarState),
                .value = DLT_NEW_ARRAY(x->arena, scope->vars->n, DltYaml *),
                .next = x->memos};
    x->memos = m;
    return m;
}

static DltStatus report_cycle(Expander *x, const char *name, DltMark at)
{
    DltText chain = dlt_text(x->arena);
    for (const Active *a = x->active; a != NULL; a = a->asked_by) {
        dlt_text_addf(&chain, "$%s needs ", a->scope->vars->key[a->var]);
        if (strcmp(a->scope->vars->key[a->var], name) == 0) break;
    }
    return dlt_err_at(x->err, DLT_E_CONFIG, at,
                      "a circle of variables: $%s is needed for itself (%s$%s)", name, chain.bytes,
                      name);
}

static int n_vars(const DltScope *scope)
{
    return scope->vars != NULL && scope->vars->kind == DLT_YAML_MAP ? scope->vars->n : 0;
}

/* The expanded value of variable `var` of a scope. */
static DltStatus var_value(Expander *x, const DltScope *scope, int var, DltMark at, DltYaml **out)
{
    Memo *m = memo_of(x, scope);
    if (m->state[var] == FAILED) return DLT_E_CONFIG; /* reported when it failed */
    if (m->state[var] == BEING_EXPANDED) return report_cycle(x, scope->vars->key[var], at);
    if (m->state[var] == UNTOUCHED) {
        Active active = {.scope = scope, .var = var, .asked_by = x->active};
        m->state[var] = BEING_EXPANDED;
        x->active = &active;
        DltStatus status = expand(&(Place){x, scope}, scope->vars->item[var], &m->value[var]);
        x->active = active.asked_by;
        m->state[var] = status == DLT_OK ? EXPANDED : FAILED;
        DLT_TRY(status);
    }
    *out = m->value[var];
    return DLT_OK;
}

static int find_var(const DltScope *scope, const char *name, size_t n)
{
    for (int i = 0; i < n_vars(scope); i++) {
        const char *key = scope->vars->key[i];
        if (key[0] == name[0] && strncmp(key, name, n) == 0 && key[n] == '\0') return i;
    }
    return -1;
}

static DltStatus report_unknown(const Place *p, const char *name, DltMark at)
{
    int n = 0, at_name = 0;
    for (const DltScope *s = p->scope; s != NULL; s = s->outer)
        n += n_vars(s);
    const char **known = DLT_NEW_ARRAY(p->x->arena, n + 1, const char *);
    for (const DltScope *s = p->scope; s != NULL; s = s->outer) {
        for (int i = 0; i < n_vars(s); i++)
            known[at_name++] = s->vars->key[i];
    }
    return dlt_err_at(p->x->err, DLT_E_CONFIG, at, "unknown variable '%s'%s", name,
                      dlt_suggest_word(p->x->arena, name, known));
}

/* A variable's own name inside its value means the one further out: {f: $f} passes f on. */
static bool is_own_name(const Expander *x, const DltScope *scope, int var)
{
    return x->active != NULL && x->active->scope == scope && x->active->var == var;
}

/* The value of a (dotted) name: the innermost variable, then what the scopes' owners know. */
static DltStatus resolve(void *ctx, const char *dotted, DltMark at, DltValue *out, DltErr *err)
{
    const Place *p = ctx;
    Expander *x = p->x;
    size_t n = strcspn(dotted, ".");
    bool own = false;
    for (const DltScope *s = p->scope; s != NULL; s = s->outer) {
        int var = find_var(s, dotted, n);
        own = own || (var >= 0 && is_own_name(x, s, var));
        if (var < 0 || is_own_name(x, s, var)) continue;
        DltYaml *value = NULL;
        DLT_TRY(var_value(x, s, var, at, &value));
        if (dotted[n] == '.') value = dlt_yaml_find(value, dotted + n + 1);
        if (value == NULL) {
            return dlt_err_at(err, DLT_E_CONFIG, at, "'%.*s' has no '%s'", (int)n, dotted,
                              dotted + n + 1);
        }
        *out = dlt_value_of(value);
        return DLT_OK;
    }
    for (const DltScope *s = x->innermost; s != NULL; s = s->outer) {
        const char *text = s->lookup != NULL ? s->lookup(s->ctx, x->arena, dotted) : NULL;
        if (text == NULL) continue;
        *out = (DltValue){.kind = DLT_V_TEXT, .text = text};
        return DLT_OK;
    }
    return own ? report_cycle(x, dotted, at) : report_unknown(p, dotted, at);
}

/* ---- one scalar --------------------------------------------------------------------------- */

/* The place of byte `offset` of a scalar's text, as far as it stands in the source as it is. */
static DltMark mark_inside(const DltYaml *scalar, size_t offset, size_t n)
{
    DltMark at = scalar->at;
    int columns = 0, before = 0;
    for (size_t i = 0; scalar->text[i] != '\0'; i++) {
        bool starts = ((unsigned char)scalar->text[i] & 0xC0) != 0x80;
        columns += starts;
        before += starts && i < offset;
    }
    int quotes = scalar->quoted ? 2 : 0;
    if (at.len != columns + quotes) return at;
    at.col += before + quotes / 2;
    at.len = (int)n;
    return at;
}

/* The closing brace of the "${" at text, quotes respected, or NULL. */
static const char *closing_brace(const char *text)
{
    char quote = '\0';
    for (const char *c = text + 2; *c != '\0'; c++) {
        if (quote != '\0')
            quote = *c == quote ? '\0' : quote;
        else if (*c == '\'' || *c == '"')
            quote = *c;
        else if (*c == '}')
            return c;
    }
    return NULL;
}

/* ${env:NAME}: only in paths, so that no hyperparameter hides in the environment. */
static DltStatus read_env(Expander *x, const char *name, size_t n, DltMark at, DltValue *out)
{
    const char *variable = dlt_arena_strn(x->arena, name, n);
    const char *text = getenv(variable);
    if (text == NULL) {
        return dlt_err_at(x->err, DLT_E_CONFIG, at, "the environment has no variable '%s'",
                          variable);
    }
    *out = (DltValue){.kind = DLT_V_TEXT, .text = dlt_arena_str(x->arena, text)};
    return DLT_OK;
}

/* What stands at one '$'. */
typedef struct Reference {
    size_t n; /* bytes from the '$' on */
    bool env;
    DltValue value;
} Reference;

static DltStatus read_reference(const Place *p, const DltYaml *scalar, size_t offset,
                                Reference *ref)
{
    Expander *x = p->x;
    const char *text = scalar->text + offset;
    *ref = (Reference){.n = 2, .value = {.kind = DLT_V_TEXT, .text = "$"}};
    if (text[1] == '$') return DLT_OK;
    size_t name = dlt_name_length(text + 1);
    if (name > 0) {
        ref->n = 1 + name;
        const char *variable = dlt_arena_strn(x->arena, text + 1, name);
        return resolve((void *)p, variable, mark_inside(scalar, offset, ref->n), &ref->value,
                       x->err);
    }
    const char *end = text[1] == '{' ? closing_brace(text) : NULL;
    if (end == NULL) {
        return dlt_err_at(x->err, DLT_E_CONFIG, mark_inside(scalar, offset, 1),
                          "'$' begins $name or ${expression}; a dollar sign itself is written $$");
    }
    ref->n = (size_t)(end - text) + 1;
    DltMark at = mark_inside(scalar, offset, ref->n);
    ref->env = strncmp(text, "${env:", 6) == 0;
    if (ref->env) return read_env(x, text + 6, ref->n - 7, at, &ref->value);
    DltExprEnv env = {
        .arena = x->arena, .resolve = resolve, .ctx = (void *)p, .at = at, .err = x->err};
    return dlt_expr_eval(&env, text + 2, ref->n - 3, &ref->value);
}

/* The text with every reference replaced; *whole is the value when it is one reference alone. */
static DltStatus interpolate(const Place *p, const DltYaml *scalar, DltText *text, DltValue *whole)
{
    Expander *x = p->x;
    bool env = false;
    for (size_t i = 0; scalar->text[i] != '\0';) {
        size_t literal = strcspn(scalar->text + i, "$");
        dlt_text_addn(text, scalar->text + i, literal);
        i += literal;
        if (scalar->text[i] == '\0') break;
        Reference ref;
        DLT_TRY(read_reference(p, scalar, i, &ref));
        const char *value = dlt_value_text(x->arena, &ref.value);
        bool alone = i == 0 && scalar->text[ref.n] == '\0';
        if (alone && value == NULL) {
            *whole = ref.value;
            return DLT_OK;
        }
        if (value == NULL) {
            return dlt_err_at(x->err, DLT_E_CONFIG, mark_inside(scalar, i, ref.n),
                              "a list or map cannot be a part of a text");
        }
        dlt_text_add(text, value);
        env = env || ref.env;
        i += ref.n;
        if (text->n > DLT_YAML_SCALAR_BYTES) {
            return dlt_err_at(x->err, DLT_E_CONFIG, scalar->at, "a text of more than %d bytes",
                              DLT_YAML_SCALAR_BYTES);
        }
    }
    if (!env || strchr(text->bytes, '/') != NULL) return DLT_OK;
    return dlt_err_at(x->err, DLT_E_CONFIG, scalar->at,
                      "${env:...} is for paths only, and '%s' has no '/'", text->bytes);
}

static DltStatus expand_scalar(const Place *p, const DltYaml *scalar, DltYaml **out)
{
    DltText text = dlt_text(p->x->arena);
    DltValue whole = {.kind = DLT_V_TEXT};
    DLT_TRY(interpolate(p, scalar, &text, &whole));
    if (whole.kind == DLT_V_TREE) {
        DLT_TRY(copy_counted(p->x, whole.tree, out));
        (*out)->at = scalar->at;
        return DLT_OK;
    }
    DltYaml *copy = DLT_NEW(p->x->arena, DltYaml);
    *copy = *scalar;
    copy->text = text.bytes;
    copy->quoted = copy->quoted || text.n == 0;
    *out = copy;
    return DLT_OK;
}

/* ---- the tree ----------------------------------------------------------------------------- */

static DltStatus expand_items(const Place *p, const DltYaml *tree, DltYaml **out)
{
    Expander *x = p->x;
    DltStatus status = DLT_OK;
    DltYaml *copy = DLT_NEW(x->arena, DltYaml);
    *copy = *tree;
    copy->n = 0;
    *out = copy;
    for (int i = 0; i < tree->n && x->n_node <= DLT_YAML_NODES; i++) {
        DltYaml *item = NULL;
        DltStatus one = expand(p, tree->item[i], &item);
        if (one != DLT_OK) {
            status = one;
            continue;
        }
        if (tree->kind == DLT_YAML_LIST)
            dlt_yaml_append(x->arena, copy, item);
        else
            dlt_yaml_append_pair(x->arena, copy, tree->key[i], tree->key_at[i], item);
    }
    return status;
}

static DltStatus expand(const Place *p, const DltYaml *tree, DltYaml **out)
{
    Expander *x = p->x;
    DLT_TRY(count_node(x, tree->at));
    if (x->depth == DLT_YAML_DEPTH) {
        return dlt_err_at(x->err, DLT_E_CONFIG, tree->at,
                          "variables and values nest deeper than %d levels", DLT_YAML_DEPTH);
    }
    x->depth++;
    DltStatus status;
    if (tree->kind == DLT_YAML_SCALAR && strchr(tree->text, '$') != NULL) {
        status = expand_scalar(p, tree, out);
    } else {
        status = expand_items(p, tree, out);
    }
    x->depth--;
    return status;
}

DltStatus dlt_expand(DltArena *arena, const DltScope *scope, const DltYaml *tree, DltYaml **out,
                     DltErr *err)
{
    for (const DltScope *s = scope; s != NULL; s = s->outer) {
        if (n_vars(s) <= MAX_VARS) continue;
        return dlt_err_at(err, DLT_E_CONFIG, s->vars->at, "more than %d variables", MAX_VARS);
    }
    Expander x = {.arena = arena, .err = err, .innermost = scope};
    return expand(&(Place){&x, scope}, tree, out);
}
