/* Reads the golden files that make_torch.py writes (its head says what they hold) and turns the
 * config of a case into options. Used by the tests only; a damaged file fails the test. */
#ifndef DLT_TORCH_FILE_H
#define DLT_TORCH_FILE_H

#include "base/file.h"
#include "config/schema.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { TORCH_ITEMS = 24, TORCH_CASES = 128 };

typedef struct TorchItem {
    const char *kind, *name; /* "grad", "weight" */
    DltShape shape;
    int64_t n;
    double *v;
} TorchItem;

typedef struct TorchCase {
    const char *name, *config;
    int n_item;
    TorchItem item[TORCH_ITEMS];
} TorchCase;

typedef struct TorchFile {
    DltArena *arena;
    int n_case;
    TorchCase *test;
} TorchFile;

static inline void torch_ok(DltStatus status, const DltErr *err)
{
    if (status == DLT_OK) return;
    dlt_err_print(err, stderr);
    fail_msg("status %d", (int)status);
}

/* The next line, ended by a NUL; NULL at the end. */
static inline char *torch_line(char **text)
{
    char *line = *text;
    if (!*line) return NULL;
    char *end = strchr(line, '\n');
    assert_non_null(end);
    *end = '\0';
    *text = end + 1;
    return line;
}

/* "KIND NAME DIMS..." and the line of values below it. */
static inline TorchItem torch_item(DltArena *arena, char *head, char *values)
{
    char kind[16], name[64];
    int used = 0;
    TorchItem item = {.n = 1};
    assert_int_equal(sscanf(head, "%15s %63s%n", kind, name, &used), 2);
    item.kind = dlt_arena_str(arena, kind);
    item.name = dlt_arena_str(arena, name);
    for (char *end, *at = head + used;; at = end) {
        long long dim = strtoll(at, &end, 10);
        if (end == at) break;
        assert_true(item.shape.rank < DLT_MAX_RANK);
        item.shape.dim[item.shape.rank++] = dim;
        item.n *= dim;
    }
    item.v = DLT_NEW_ARRAY(arena, item.n, double);
    char *at = values, *end;
    for (int64_t i = 0; i < item.n; i++, at = end) {
        item.v[i] = strtod(at, &end);
        assert_ptr_not_equal(at, end);
    }
    assert_int_equal(at[strspn(at, " ")], '\0');
    return item;
}

static inline TorchFile torch_read(DltArena *arena, const char *path)
{
    TorchFile f = {.arena = arena, .test = DLT_NEW_ARRAY(arena, TORCH_CASES, TorchCase)};
    DltErr err;
    dlt_err_init(&err);
    char *text = NULL;
    int64_t n = 0;
    torch_ok(dlt_file_read(arena, path, (DltFileRule){1 << 20, DLT_E_DATA, DLT_NO_MARK}, &text, &n,
                           &err),
             &err);
    TorchCase *test = NULL;
    for (char *line; (line = torch_line(&text));) {
        if (!*line || *line == '#') continue;
        if (strncmp(line, "case ", 5) == 0) {
            assert_true(f.n_case < TORCH_CASES);
            test = &f.test[f.n_case++];
            test->name = line + 5;
            continue;
        }
        assert_non_null(test);
        if (strncmp(line, "config ", 7) == 0) {
            test->config = line + 7;
            continue;
        }
        assert_true(test->n_item < TORCH_ITEMS);
        char *values = torch_line(&text);
        assert_non_null(values);
        test->item[test->n_item++] = torch_item(arena, line, values);
    }
    assert_true(f.n_case > 0);
    return f;
}

/* The tensor of that kind and name, or NULL. */
static inline const TorchItem *torch_find(const TorchCase *c, const char *kind, const char *name)
{
    for (int i = 0; i < c->n_item; i++)
        if (strcmp(c->item[i].kind, kind) == 0 && strcmp(c->item[i].name, name) == 0)
            return &c->item[i];
    return NULL;
}

static inline const TorchItem *torch_get(const TorchCase *c, const char *kind, const char *name)
{
    const TorchItem *item = torch_find(c, kind, name);
    if (item) return item;
    fail_msg("case %s has no %s %s", c->name, kind, name);
    abort();
}

static inline DltYaml *torch_yaml(DltArena *arena, const char *text)
{
    DltErr err;
    dlt_err_init(&err);
    DltYaml *root = NULL;
    torch_ok(dlt_yaml_parse(arena, "<test>", text, (int64_t)strlen(text), &root, &err), &err);
    return root;
}

/* "kind", "kind: argument" or "kind: {...}" -> the kind and its value (NULL for a bare word). */
static inline const char *torch_kind(const DltYaml *tree, const DltYaml **value)
{
    *value = NULL;
    if (tree->kind == DLT_YAML_SCALAR) return tree->text;
    assert_int_equal(tree->kind, DLT_YAML_MAP);
    assert_int_equal(tree->n, 1);
    *value = tree->item[0];
    return tree->key[0];
}

#endif
