/* Places in a YAML text: its lines, marks into them, and the wording of syntax errors. */
#ifndef DLT_YAML_LINES_H
#define DLT_YAML_LINES_H

#include "base/arena.h"
#include <yaml.h>

typedef struct DltLines {
    DltMark origin;    /* file; and line, col, text when the text is a part of one line */
    const char *bytes; /* not owned */
    int64_t n_byte;
    const char *const *line;  /* NUL-terminated copies, without a BOM; NULL for UTF-16 */
    const int32_t *line_byte; /* where each begins */
    int n_line;
    bool utf16;
} DltLines;

/* Lines end as libyaml ends them: LF, CRLF, CR, NEL, LS, PS. */
DltLines dlt_lines_split(DltArena *arena, const char *file, const char *bytes, int64_t n);
/* line and column count from 0; line -1 is the whole file. */
DltMark dlt_lines_mark(const DltLines *lines, int line, int column, int len);
DltMark dlt_lines_mark_byte(const DltLines *lines, int64_t byte);
/* Reports what stopped the parser: CONFIG with a hint, or RESOURCE. */
DltStatus dlt_yaml_syntax_error(const yaml_parser_t *parser, const DltLines *lines, DltErr *err);

#endif
