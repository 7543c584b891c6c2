/* libyaml names places by line and column only, puts some errors on the line after the fault, and
 * does not say "tab". This file turns its findings into a mark and a sentence with a way out. */
#include "config/yaml_lines.h"

/* Bytes of the line end at `at`, 0 when there is none. */
static int64_t break_bytes(const char *at, const char *end)
{
    int64_t left = end - at;
    if (at[0] == '\r') return left > 1 && at[1] == '\n' ? 2 : 1;
    if (at[0] == '\n') return 1;
    if (left > 1 && memcmp(at, "\xC2\x85", 2) == 0) return 2;
    if (left > 2 && memcmp(at, "\xE2\x80", 2) == 0 && ((unsigned char)at[2] & 0xFE) == 0xA8)
        return 3;
    return 0;
}

DltLines dlt_lines_split(DltArena *arena, const char *file, const char *bytes, int64_t n)
{
    DltLines lines = {.origin = {.file = file}, .bytes = bytes, .n_byte = n};
    lines.utf16 =
        n >= 2 && (memcmp(bytes, "\xFF\xFE", 2) == 0 || memcmp(bytes, "\xFE\xFF", 2) == 0);
    if (lines.utf16) return lines;
    const char *end = bytes + n;
    int n_line = 1;
    for (const char *at = bytes; at < end; at++) {
        int64_t skip = break_bytes(at, end);
        n_line += skip > 0;
        if (skip > 0) at += skip - 1;
    }
    const char **line = DLT_NEW_ARRAY(arena, n_line, const char *);
    int32_t *line_byte = DLT_NEW_ARRAY(arena, n_line, int32_t); /* of a file of at most 1 MiB */
    const char *start = n >= 3 && memcmp(bytes, "\xEF\xBB\xBF", 3) == 0 ? bytes + 3 : bytes;
    for (int i = 0; i < n_line; i++) {
        const char *stop = start;
        while (stop < end && break_bytes(stop, end) == 0)
            stop++;
        line[i] = dlt_arena_strn(arena, start, (size_t)(stop - start));
        line_byte[i] = (int32_t)(start - bytes);
        start = stop < end ? stop + break_bytes(stop, end) : stop;
    }
    lines.line = line;
    lines.line_byte = line_byte;
    lines.n_line = n_line;
    return lines;
}

DltMark dlt_lines_mark(const DltLines *lines, int line, int column, int len)
{
    DltMark mark = lines->origin;
    mark.len = len;
    if (mark.line > 0) {
        mark.col += column;
        return mark;
    }
    mark.line = line + 1;
    mark.col = column + 1;
    if (line >= 0 && line < lines->n_line) mark.text = lines->line[line];
    return mark;
}

DltMark dlt_lines_mark_byte(const DltLines *lines, int64_t byte)
{
    int line = 0, column = 0;
    while (line + 1 < lines->n_line && lines->line_byte[line + 1] <= byte)
        line++;
    int64_t start = lines->n_line > 0 ? lines->line_byte[line] : 0;
    for (int64_t i = start; i < byte && i < lines->n_byte; i++) {
        column += ((unsigned char)lines->bytes[i] & 0xC0) != 0x80;
    }
    return dlt_lines_mark(lines, line, column, 1);
}

/* What libyaml says of the line after "lr:0.1", and what there is to say. */
static const char no_mapping[] = "mapping values are not allowed in this context";
static const char colon_hint[] = "write 'key: value', with a blank after the colon";

/* libyaml's words -> ours. */
static const struct {
    const char *problem;
    bool at_context; /* the fault is where the construct began */
    const char *hint;
} hints[] = {
    {"could not find expected ':'", true, colon_hint},
    {no_mapping, false,
     "a value that holds ': ' needs quotes, and keys of one map the same indentation"},
    {"did not find expected key", false,
     "keys of one map need the same indentation, and text after a closing quote is an error"},
    {"did not find expected '-' indicator", false, "items of one list need the same indentation"},
    {"did not find expected ',' or ']'", false, "a comma or the closing ']' is missing"},
    {"did not find expected ',' or '}'", false, "a comma or the closing '}' is missing"},
    {"found unexpected end of stream", true, "the closing quote is missing"},
    {"found character that cannot start any token", false,
     "a value that begins with this character needs quotes"},
    {"did not find expected alphabetic or numeric character", false,
     "a text that begins with '*' or '&' needs quotes"},
    {"did not find expected <document start>", false, "the document ends before this"},
    {"block sequence entries are not allowed in this context", false,
     "a list begins on a line of its own"},
};

static const char *hint_for(const char *problem, bool *at_context)
{
    for (size_t i = 0; i < sizeof hints / sizeof hints[0]; i++) {
        if (strcmp(problem, hints[i].problem) != 0) continue;
        *at_context = hints[i].at_context;
        return hints[i].hint;
    }
    *at_context = false;
    return NULL;
}

/* The column of a tab among the blanks that begin the line, or -1. */
static int tab_in_indentation(const DltMark *mark)
{
    if (mark->text == NULL) return -1;
    size_t blanks = strspn(mark->text, " ");
    return mark->text[blanks] == '\t' ? (int)blanks : -1;
}

/* The column of a line's first word when that is "key:value" without a blank, or -1. */
static int glued_key(const DltLines *lines, size_t line)
{
    if (lines->line == NULL || line >= (size_t)lines->n_line) return -1;
    const char *text = lines->line[line];
    size_t start = strspn(text, " "), colon = start + strcspn(text + start, ": \"'");
    bool glued = text[colon] == ':' && text[colon + 1] != '\0' && text[colon + 1] != ' ';
    return glued && colon > start ? (int)start : -1;
}

DltStatus dlt_yaml_syntax_error(const yaml_parser_t *parser, const DltLines *lines, DltErr *err)
{
    const char *problem = parser->problem != NULL ? parser->problem : "unknown fault";
    if (parser->error == YAML_MEMORY_ERROR) {
        return dlt_err(err, DLT_E_RESOURCE, "out of memory while reading %s", lines->origin.file);
    }
    if (parser->error == YAML_READER_ERROR) {
        int64_t byte = (int64_t)parser->problem_offset;
        return dlt_err_at(err, DLT_E_CONFIG, dlt_lines_mark_byte(lines, byte),
                          "not a text file in UTF-8: %s (byte %lld)", problem, (long long)byte);
    }
    bool at_context;
    const char *hint = hint_for(problem, &at_context);
    at_context = at_context && parser->context != NULL;
    yaml_mark_t where = at_context ? parser->context_mark : parser->problem_mark;
    DltMark mark = dlt_lines_mark(lines, (int)where.line, (int)where.column, 1);
    int tab = tab_in_indentation(&mark);
    if (tab >= 0) {
        mark.col = tab + 1;
        return dlt_err_at(err, DLT_E_CONFIG, mark,
                          "line %d is indented with a tab; YAML wants spaces", mark.line);
    }
    size_t before = where.line > 0 ? where.line - 1 : 0;
    int glued = at_context ? -1 : glued_key(lines, before);
    if (strcmp(problem, no_mapping) == 0 && glued >= 0) {
        mark = dlt_lines_mark(lines, (int)before, glued, 1);
        hint = colon_hint;
    }
    char context[128] = "";
    if (parser->context != NULL && !at_context) {
        snprintf(context, sizeof context, " %s that begins at line %d", parser->context,
                 (int)parser->context_mark.line + 1);
    }
    return dlt_err_at(err, DLT_E_CONFIG, mark, "not valid YAML: %s%s%s%s", problem, context,
                      hint != NULL ? "; " : "", hint != NULL ? hint : "");
}
