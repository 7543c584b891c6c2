/* What the config tests share: an arena and a list of reports for each test. */
#ifndef CONFIG_HELP_H
#define CONFIG_HELP_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/sys.h"
#include "config/expand.h"
#include "config/schema.h"

typedef struct Help {
    DltArena *arena;
    DltErr err;
} Help;

static inline int help_setup(void **state)
{
    DltArena *arena = dlt_arena_new();
    Help *h = DLT_NEW(arena, Help);
    h->arena = arena;
    dlt_err_init(&h->err);
    dlt_names_set_current(NULL);
    *state = h;
    return 0;
}

static inline int help_teardown(void **state)
{
    dlt_arena_free(((Help *)*state)->arena);
    return 0;
}

/* The tree of a text that must be good; reports start anew. */
static inline DltYaml *help_parse(Help *h, const char *text)
{
    DltYaml *root = NULL;
    dlt_err_init(&h->err);
    DltStatus status =
        dlt_yaml_parse(h->arena, "t.yaml", text, (int64_t)strlen(text), &root, &h->err);
    if (status != DLT_OK) fail_msg("%s: %s", text, h->err.report[0].text);
    return root;
}

/* YAML text of a tree without the last line end. */
static inline char *help_text(Help *h, const DltYaml *tree)
{
    char *text = dlt_yaml_write(h->arena, tree);
    text[strlen(text) - 1] = '\0';
    return text;
}

#define HELP_TEST(f) cmocka_unit_test_setup_teardown(f, help_setup, help_teardown)
#define HELP_COUNT(rows) (sizeof(rows) / sizeof(rows)[0])

#endif
