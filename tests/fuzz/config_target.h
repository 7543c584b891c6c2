/* What both the fuzzer and the corpus test do with one input: a config, and behind the first NUL an
 * override. Whatever the bytes, reading ends with a tree or with reports; a tree that was read is
 * written and read back as it is, and a whole run's model is built. */
#ifndef CONFIG_TARGET_H
#define CONFIG_TARGET_H

#include "base/log.h"
#include "spec/spec.h"

static inline void config_target_tree(DltArena *arena, const char *bytes, int64_t n)
{
    DltErr err;
    dlt_err_init(&err);
    DltYaml *root = NULL, *back = NULL;
    DltStatus status = dlt_yaml_parse(arena, "fuzz.yaml", bytes, n, &root, &err);
    DLT_BUG_ON(status != dlt_err_status(&err));
    if (status != DLT_OK) return;
    const char *text = dlt_yaml_write(arena, root);
    if (strlen(text) > DLT_YAML_BYTES) return; /* block style may be longer than what was read */
    status = dlt_yaml_parse(arena, "written.yaml", text, (int64_t)strlen(text), &back, &err);
    DLT_BUG_ON(status != DLT_OK || strcmp(dlt_yaml_write(arena, back), text) != 0);
    DltScope scope = {.vars = dlt_yaml_get(root, "vars")};
    status = dlt_expand(arena, &scope, root, &back, &err);
    DLT_BUG_ON(status != dlt_err_status(&err));
}

static inline void config_target_spec(DltArena *arena, const char *text, const char *override)
{
    DltErr err;
    dlt_err_init(&err);
    DltSpec *spec = NULL;
    int n_override = override != NULL;
    DltStatus status = dlt_spec_read_stored(
        arena, &(DltStored){.name = "fuzz.yaml", .text = text, .folder = "/nonexistent"},
        n_override, n_override ? &override : NULL, &spec, &err);
    DLT_BUG_ON(status != DLT_OK && dlt_err_status(&err) == DLT_OK);
    if (status != DLT_OK) return;
    DltModelGraph *model = NULL;
    DltModelOptions options = {.training = true, .split = DLT_TRAIN, .batch = 2};
    status = dlt_spec_build(spec, &options, &model, &err);
    DLT_BUG_ON(status != DLT_OK && dlt_err_status(&err) == DLT_OK);
}

static inline void config_target(const uint8_t *data, size_t size)
{
    DltArena *arena = dlt_arena_new();
    char *bytes = dlt_arena_strn(arena, (const char *)data, size);
    size_t n_text = strlen(bytes);
    dlt_log_level(DLT_LOG_QUIET);
    config_target_tree(arena, bytes, (int64_t)size);
    config_target_spec(arena, bytes, n_text < size ? bytes + n_text + 1 : NULL);
    dlt_arena_free(arena);
}

#endif
