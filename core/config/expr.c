/* A precedence climber over a table of operators builds a small tree, which is then evaluated: so
 * the branch not taken costs nothing and fails never. Integer results stay integers; `//` and `%`
 * round towards minus infinity, as in Python. */
#include "config/expr.h"
#include "config/schema.h"
#include <ctype.h>
#include <math.h>

enum { MAX_EXPR_BYTES = 500 };

typedef struct Node Node;
typedef struct Eval Eval;
typedef struct Operator Operator;

struct Node {
    enum { LITERAL, NAME, INDEX, MEMBER, NEGATE, BINARY, CHOICE } kind;
    DltValue value;        /* LITERAL */
    const char *name;      /* NAME, MEMBER */
    const Operator *op;    /* BINARY */
    const Node *a, *b, *c; /* CHOICE: a if c else b */
};

struct Eval {
    const DltExprEnv *env;
    const char *at; /* NUL-terminated copy of the expression, read from here */
};

static DltStatus fail(const Eval *e, const char *fmt, ...) DLT_PRINTF(2, 3);

static DltStatus fail(const Eval *e, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    const char *text = dlt_arena_vprintf(e->env->arena, fmt, args);
    va_end(args);
    return dlt_err_at(e->env->err, DLT_E_CONFIG, e->env->at, "%s", text);
}

/* ---- operators ---------------------------------------------------------------------------- */

static bool number_of(const DltValue *v, DltValue *out)
{
    *out = *v;
    if (v->kind == DLT_V_INT || v->kind == DLT_V_FLOAT) return true;
    if (v->kind != DLT_V_TEXT) return false;
    out->kind = DLT_V_INT;
    if (dlt_parse_int(v->text, &out->i)) return true;
    out->kind = DLT_V_FLOAT;
    return dlt_parse_float(v->text, &out->f);
}

static double as_double(const DltValue *v)
{
    return v->kind == DLT_V_INT ? (double)v->i : v->f;
}

static DltStatus to_number(const Eval *e, const DltValue *v, DltValue *out)
{
    if (number_of(v, out)) return DLT_OK;
    const char *text = dlt_value_text(e->env->arena, v);
    if (text == NULL) return fail(e, "a list or map is not a number");
    return fail(e, "'%s' is not a number", text);
}

/* What an integer operation says of its result. */
typedef enum Exactness { WHOLE, FRACTION /* take the real one */, OVERFLOW } Exactness;

static Exactness add_whole(int64_t a, int64_t b, int64_t *out)
{
    return __builtin_add_overflow(a, b, out) ? OVERFLOW : WHOLE;
}

static Exactness subtract_whole(int64_t a, int64_t b, int64_t *out)
{
    return __builtin_sub_overflow(a, b, out) ? OVERFLOW : WHOLE;
}

static Exactness multiply_whole(int64_t a, int64_t b, int64_t *out)
{
    return __builtin_mul_overflow(a, b, out) ? OVERFLOW : WHOLE;
}

static Exactness divide_whole(int64_t a, int64_t b, int64_t *out)
{
    if (b == -1) return subtract_whole(0, a, out);
    if (a % b != 0) return FRACTION;
    *out = a / b;
    return WHOLE;
}

static Exactness floor_divide_whole(int64_t a, int64_t b, int64_t *out)
{
    if (b == -1) return subtract_whole(0, a, out);
    *out = a / b - (a % b != 0 && (a < 0) != (b < 0));
    return WHOLE;
}

static Exactness modulo_whole(int64_t a, int64_t b, int64_t *out)
{
    int64_t rest = b == -1 ? 0 : a % b;
    *out = rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
    return WHOLE;
}

static double add_real(double a, double b)
{
    return a + b;
}

static double subtract_real(double a, double b)
{
    return a - b;
}

static double multiply_real(double a, double b)
{
    return a * b;
}

static double divide_real(double a, double b)
{
    return a / b;
}

static double floor_divide_real(double a, double b)
{
    return floor(a / b);
}

static double modulo_real(double a, double b)
{
    return a - b * floor(a / b);
}

/* An arithmetic row has the two functions; a comparison says which orders it accepts. */
struct Operator {
    const char *text;
    int binds;
    Exactness (*whole)(int64_t a, int64_t b, int64_t *out);
    double (*real)(double a, double b);
    bool divides, accepts_less, accepts_equal, accepts_greater, takes_text;
};

/* Longer spellings stand before their beginnings. */
static const Operator operators[] = {
    {"==", 1, .accepts_equal = true, .takes_text = true},
    {"!=", 1, .accepts_less = true, .accepts_greater = true, .takes_text = true},
    {"<=", 1, .accepts_less = true, .accepts_equal = true},
    {">=", 1, .accepts_greater = true, .accepts_equal = true},
    {"<", 1, .accepts_less = true},
    {">", 1, .accepts_greater = true},
    {"+", 2, .whole = add_whole, .real = add_real},
    {"-", 2, .whole = subtract_whole, .real = subtract_real},
    {"*", 3, .whole = multiply_whole, .real = multiply_real},
    {"//", 3, .whole = floor_divide_whole, .real = floor_divide_real, .divides = true},
    {"/", 3, .whole = divide_whole, .real = divide_real, .divides = true},
    {"%", 3, .whole = modulo_whole, .real = modulo_real, .divides = true},
};

static DltStatus arithmetic(const Eval *e, const Operator *op, const DltValue *a, const DltValue *b,
                            DltValue *out)
{
    DltValue x, y;
    DLT_TRY(to_number(e, a, &x));
    DLT_TRY(to_number(e, b, &y));
    if (op->divides && as_double(&y) == 0.0) return fail(e, "division by zero");
    Exactness exactness = FRACTION;
    if (x.kind == DLT_V_INT && y.kind == DLT_V_INT) exactness = op->whole(x.i, y.i, &x.i);
    if (exactness == OVERFLOW) return fail(e, "the result is beyond 64 bits");
    *out = (DltValue){.kind = DLT_V_INT, .i = x.i};
    if (exactness == WHOLE) return DLT_OK;
    *out = (DltValue){.kind = DLT_V_FLOAT, .f = op->real(as_double(&x), as_double(&y))};
    return isfinite(out->f) ? DLT_OK : fail(e, "the result is not a finite number");
}

/* Two numbers compare as numbers; everything else as text, and only for equality. */
static DltStatus comparison(const Eval *e, const Operator *op, const DltValue *a, const DltValue *b,
                            DltValue *out)
{
    DltValue x, y;
    int order;
    if (number_of(a, &x) && number_of(b, &y)) {
        bool whole = x.kind == DLT_V_INT && y.kind == DLT_V_INT;
        double p = as_double(&x), q = as_double(&y);
        order = whole ? (x.i > y.i) - (x.i < y.i) : (p > q) - (p < q);
    } else {
        const char *s = dlt_value_text(e->env->arena, a), *t = dlt_value_text(e->env->arena, b);
        if (s == NULL || t == NULL) return fail(e, "a list or map cannot be compared");
        if (!op->takes_text) return fail(e, "'%s' and '%s' are not both numbers", s, t);
        order = strcmp(s, t);
    }
    bool yes = (order < 0 && op->accepts_less) || (order == 0 && op->accepts_equal) ||
               (order > 0 && op->accepts_greater);
    *out = (DltValue){.kind = DLT_V_BOOL, .i = yes};
    return DLT_OK;
}

/* ---- parsing ------------------------------------------------------------------------------ */

static DltStatus parse_choice(Eval *e, const Node **out);

static void skip_blanks(Eval *e)
{
    e->at += strspn(e->at, " \t\n");
}

static Node *new_node(const Eval *e, Node node)
{
    Node *n = DLT_NEW(e->env->arena, Node);
    *n = node;
    return n;
}

size_t dlt_name_length(const char *text)
{
    if (!isalpha((unsigned char)text[0]) && text[0] != '_') return 0;
    size_t n = 1;
    while (isalnum((unsigned char)text[n]) || text[n] == '_')
        n++;
    return n;
}

/* Consumes a word such as `if`. */
static bool accept_word(Eval *e, const char *word)
{
    skip_blanks(e);
    size_t n = strlen(word);
    if (strncmp(e->at, word, n) != 0 || dlt_name_length(e->at) != n) return false;
    e->at += n;
    return true;
}

static bool accept_char(Eval *e, char c)
{
    skip_blanks(e);
    if (*e->at != c) return false;
    e->at++;
    return true;
}

/* Reports that something else was expected here. */
static DltStatus expected(const Eval *e, const char *what)
{
    if (*e->at == '\0') return fail(e, "expected %s at the end of the expression", what);
    return fail(e, "expected %s before '%s'", what, e->at);
}

static DltStatus expect_char(Eval *e, char c)
{
    if (accept_char(e, c)) return DLT_OK;
    return expected(e, (const char[]){'\'', c, '\'', '\0'});
}

static DltStatus parse_number(Eval *e, const Node **out)
{
    size_t n = strspn(e->at, "0123456789.");
    if (n > 0 && (e->at[n] == 'e' || e->at[n] == 'E')) {
        size_t sign = e->at[n + 1] == '-' || e->at[n + 1] == '+';
        n += 1 + sign + strspn(e->at + n + 1 + sign, "0123456789");
    }
    DltValue text = {.kind = DLT_V_TEXT, .text = dlt_arena_strn(e->env->arena, e->at, n)}, number;
    if (n == 0 || dlt_name_length(e->at + n) > 0) return expected(e, "a value");
    DLT_TRY(to_number(e, &text, &number));
    e->at += n;
    *out = new_node(e, (Node){.kind = LITERAL, .value = number});
    return DLT_OK;
}

static DltStatus parse_text(Eval *e, const Node **out)
{
    char quote = *e->at++;
    const char *end = strchr(e->at, quote);
    if (end == NULL) return fail(e, "the closing %c is missing", quote);
    const char *text = dlt_arena_strn(e->env->arena, e->at, (size_t)(end - e->at));
    e->at = end + 1;
    *out = new_node(e, (Node){.kind = LITERAL, .value = {.kind = DLT_V_TEXT, .text = text}});
    return DLT_OK;
}

/* true, false, or name.name.name as one NAME node */
static void parse_name(Eval *e, const Node **out)
{
    bool yes = accept_word(e, "true");
    if (yes || accept_word(e, "false")) {
        *out = new_node(e, (Node){.kind = LITERAL, .value = {.kind = DLT_V_BOOL, .i = yes}});
        return;
    }
    size_t n = dlt_name_length(e->at);
    while (e->at[n] == '.' && dlt_name_length(e->at + n + 1) > 0)
        n += 1 + dlt_name_length(e->at + n + 1);
    *out = new_node(e, (Node){.kind = NAME, .name = dlt_arena_strn(e->env->arena, e->at, n)});
    e->at += n;
}

static DltStatus parse_primary(Eval *e, const Node **out)
{
    skip_blanks(e);
    if (accept_char(e, '(')) {
        DLT_TRY(parse_choice(e, out));
        return expect_char(e, ')');
    }
    if (*e->at == '\'' || *e->at == '"') return parse_text(e, out);
    if (dlt_name_length(e->at) == 0) return parse_number(e, out);
    parse_name(e, out);
    while (*e->at == '[' || *e->at == '.') {
        const Node *object = *out, *index = NULL;
        if (accept_char(e, '.')) {
            size_t n = dlt_name_length(e->at);
            if (n == 0) return expected(e, "a name");
            const char *name = dlt_arena_strn(e->env->arena, e->at, n);
            *out = new_node(e, (Node){.kind = MEMBER, .name = name, .a = object});
            e->at += n;
            continue;
        }
        e->at++;
        DLT_TRY(parse_choice(e, &index));
        DLT_TRY(expect_char(e, ']'));
        *out = new_node(e, (Node){.kind = INDEX, .a = object, .b = index});
    }
    return DLT_OK;
}

static DltStatus parse_unary(Eval *e, const Node **out)
{
    if (accept_char(e, '+')) return parse_unary(e, out);
    if (!accept_char(e, '-')) return parse_primary(e, out);
    const Node *operand;
    DLT_TRY(parse_unary(e, &operand));
    *out = new_node(e, (Node){.kind = NEGATE, .a = operand});
    return DLT_OK;
}

/* The operator here that binds at least so much, or -1. */
static int find_operator(Eval *e, int binds)
{
    skip_blanks(e);
    for (int i = 0; i < (int)(sizeof operators / sizeof operators[0]); i++) {
        if (strncmp(e->at, operators[i].text, strlen(operators[i].text)) == 0) {
            return operators[i].binds >= binds ? i : -1;
        }
    }
    return -1;
}

static DltStatus parse_binary(Eval *e, int binds, const Node **out)
{
    DLT_TRY(parse_unary(e, out));
    for (int i = find_operator(e, binds); i >= 0; i = find_operator(e, binds)) {
        const Node *left = *out, *right;
        e->at += strlen(operators[i].text);
        DLT_TRY(parse_binary(e, operators[i].binds + 1, &right));
        *out = new_node(e, (Node){.kind = BINARY, .op = &operators[i], .a = left, .b = right});
    }
    return DLT_OK;
}

static DltStatus parse_choice(Eval *e, const Node **out)
{
    const Node *yes, *condition, *no;
    DLT_TRY(parse_binary(e, 1, &yes));
    *out = yes;
    if (!accept_word(e, "if")) return DLT_OK;
    DLT_TRY(parse_binary(e, 1, &condition));
    if (!accept_word(e, "else")) return fail(e, "`if` needs `else`: a if condition else b");
    DLT_TRY(parse_choice(e, &no));
    *out = new_node(e, (Node){.kind = CHOICE, .a = yes, .b = no, .c = condition});
    return DLT_OK;
}

/* ---- evaluation --------------------------------------------------------------------------- */

static DltStatus evaluate(const Eval *e, const Node *n, DltValue *out);

static DltStatus evaluate_index(const Eval *e, const Node *n, DltValue *out)
{
    DltValue object, index, i;
    DLT_TRY(evaluate(e, n->a, &object));
    DLT_TRY(evaluate(e, n->b, &index));
    if (object.kind != DLT_V_TREE || object.tree->kind != DLT_YAML_LIST) {
        return fail(e, "[ ] needs a list before it");
    }
    DLT_TRY(to_number(e, &index, &i));
    if (i.kind != DLT_V_INT || i.i < 0 || i.i >= object.tree->n) {
        return fail(e, "index %s is outside the list; it has %d values, counted from 0",
                    dlt_value_text(e->env->arena, &i), object.tree->n);
    }
    *out = dlt_value_of(object.tree->item[i.i]);
    return DLT_OK;
}

static DltStatus evaluate_member(const Eval *e, const Node *n, DltValue *out)
{
    DltValue object;
    DLT_TRY(evaluate(e, n->a, &object));
    const DltYaml *member = object.kind == DLT_V_TREE ? dlt_yaml_get(object.tree, n->name) : NULL;
    if (member == NULL) return fail(e, "there is no '.%s' here", n->name);
    *out = dlt_value_of(member);
    return DLT_OK;
}

static DltStatus evaluate_choice(const Eval *e, const Node *n, DltValue *out)
{
    DltValue condition;
    DLT_TRY(evaluate(e, n->c, &condition));
    const char *text = dlt_value_text(e->env->arena, &condition);
    bool yes = text != NULL && strcmp(text, "true") == 0;
    if (!yes && (text == NULL || strcmp(text, "false") != 0)) {
        return fail(e, "the condition of `if` is neither true nor false");
    }
    return evaluate(e, yes ? n->a : n->b, out);
}

static DltStatus evaluate_negate(const Eval *e, const Node *n, DltValue *out)
{
    DltValue operand;
    DLT_TRY(evaluate(e, n->a, &operand));
    DLT_TRY(to_number(e, &operand, out));
    if (out->kind == DLT_V_INT && out->i == INT64_MIN)
        return fail(e, "the result is beyond 64 bits");
    if (out->kind == DLT_V_INT)
        out->i = -out->i;
    else
        out->f = -out->f;
    return DLT_OK;
}

static DltStatus evaluate_binary(const Eval *e, const Node *n, DltValue *out)
{
    DltValue a, b;
    DLT_TRY(evaluate(e, n->a, &a));
    DLT_TRY(evaluate(e, n->b, &b));
    return n->op->real != NULL ? arithmetic(e, n->op, &a, &b, out)
                               : comparison(e, n->op, &a, &b, out);
}

static DltStatus evaluate_name(const Eval *e, const Node *n, DltValue *out)
{
    return e->env->resolve(e->env->ctx, n->name, e->env->at, out, e->env->err);
}

static DltStatus evaluate_literal(const Eval *e, const Node *n, DltValue *out)
{
    (void)e;
    *out = n->value;
    return DLT_OK;
}

static DltStatus evaluate(const Eval *e, const Node *n, DltValue *out)
{
    static DltStatus (*const by_kind[])(const Eval *e, const Node *n, DltValue *out) = {
        [LITERAL] = evaluate_literal, [NAME] = evaluate_name,     [INDEX] = evaluate_index,
        [MEMBER] = evaluate_member,   [NEGATE] = evaluate_negate, [BINARY] = evaluate_binary,
        [CHOICE] = evaluate_choice};
    return by_kind[n->kind](e, n, out);
}

DltStatus dlt_expr_eval(const DltExprEnv *env, const char *text, size_t n, DltValue *out)
{
    Eval e = {.env = env, .at = dlt_arena_strn(env->arena, text, n)};
    if (n > MAX_EXPR_BYTES) return fail(&e, "an expression of more than %d bytes", MAX_EXPR_BYTES);
    const Node *root;
    DLT_TRY(parse_choice(&e, &root));
    skip_blanks(&e);
    if (*e.at != '\0') return expected(&e, "an operator");
    return evaluate(&e, root, out);
}

const char *dlt_value_text(DltArena *arena, const DltValue *v)
{
    char buf[DLT_NUMBER_TEXT];
    if (v->kind == DLT_V_TREE) return NULL;
    if (v->kind == DLT_V_TEXT) return v->text;
    if (v->kind == DLT_V_BOOL) return v->i != 0 ? "true" : "false";
    if (v->kind == DLT_V_INT) return dlt_arena_printf(arena, "%lld", (long long)v->i);
    return dlt_arena_str(arena, dlt_number_text(v->f, buf));
}

DltValue dlt_value_of(const DltYaml *tree)
{
    if (tree->kind == DLT_YAML_SCALAR) return (DltValue){.kind = DLT_V_TEXT, .text = tree->text};
    return (DltValue){.kind = DLT_V_TREE, .tree = tree};
}
