/* Expressions of ${...}: + - * / // % ( ), comparisons, `a if c else b`, references with dots and
 * [index], 'text'. Values are typed by use: the text of a variable becomes a number where it is
 * reckoned with. */
#ifndef DLT_EXPR_H
#define DLT_EXPR_H

#include "config/yaml.h"

typedef enum DltValueKind {
    DLT_V_TEXT,
    DLT_V_INT,
    DLT_V_FLOAT,
    DLT_V_BOOL,
    DLT_V_TREE
} DltValueKind;

typedef struct DltValue {
    DltValueKind kind;
    int64_t i;           /* INT; BOOL: 0 or 1 */
    double f;            /* FLOAT, finite */
    const char *text;    /* TEXT */
    const DltYaml *tree; /* TREE: a list or map */
} DltValue;

/* What an expression needs from its surroundings. */
typedef struct DltExprEnv {
    DltArena *arena;
    /* The value of a name such as width or data.classes; CONFIG after reporting that there is none.
     */
    DltStatus (*resolve)(void *ctx, const char *dotted, DltMark at, DltValue *out, DltErr *err);
    void *ctx;
    DltMark at; /* for reports */
    DltErr *err;
} DltExprEnv;

/* Evaluates text[0..n), at most 500 bytes. CONFIG: syntax, a name or index that is not there, a
 * text that is no number, division by zero, a result that is not finite or beyond 64 bits. The
 * branch of `if` that is not taken is not evaluated. */
DltStatus dlt_expr_eval(const DltExprEnv *env, const char *text, size_t n,
                        DltValue *out) DLT_CHECKED;
/* Bytes of the name of a variable that text begins with, 0: none. */
size_t dlt_name_length(const char *text);
/* The text that stands for a value, NULL for a tree. */
const char *dlt_value_text(DltArena *arena, const DltValue *v);
DltValue dlt_value_of(const DltYaml *tree);

#endif
