/* Tree -> YAML text that parses back to an equal tree: block style, lists of scalars on one line.
 * A text is written plain only when it is made of harmless characters, else in double quotes. */
#include "base/text.h"
#include "config/yaml.h"
#include <ctype.h>

enum { FLOW_LIST_COLUMNS = 80 };

static bool is_alnum(char c)
{
    return isalnum((unsigned char)c) != 0 && (unsigned char)c < 0x80;
}

/* True when YAML reads the text back unchanged without quotes, in block and in flow style. */
static bool is_plain(const char *text)
{
    size_t n = strlen(text);
    bool good_start = is_alnum(text[0]) || (text[0] != '\0' && strchr("_./$~+-", text[0]) != NULL);
    if (!good_start || text[n - 1] == ' ') return false;
    if (text[0] == '-' && !is_alnum(text[1]) && text[1] != '.') return false;
    if (strncmp(text, "...", 3) == 0) return false;
    for (size_t i = 0; i < n; i++) {
        if (!is_alnum(text[i]) && strchr("_./$~+-*%()=<>^@ ", text[i]) == NULL) return false;
    }
    return true;
}

/* Bytes and code point of the UTF-8 character at `at`. */
static size_t decode(const unsigned char *at, unsigned *code)
{
    size_t n = at[0] < 0x80 ? 1 : at[0] < 0xE0 ? 2 : at[0] < 0xF0 ? 3 : 4;
    *code = n == 1 ? at[0] : at[0] & (0xFFu >> (n + 1));
    for (size_t i = 1; i < n; i++) {
        if ((at[i] & 0xC0) != 0x80) return i;
        *code = *code << 6 | (at[i] & 0x3F);
    }
    return n;
}

static bool needs_escape(unsigned code)
{
    return code < 0x20 || (code >= 0x7F && code < 0xA0) || code == 0x2028 || code == 0x2029 ||
           code == 0xFEFF || (code >= 0xD800 && code < 0xE000) || code == 0xFFFE || code == 0xFFFF;
}

static void write_quoted(DltText *out, const char *text)
{
    dlt_text_add(out, "\"");
    for (const unsigned char *at = (const unsigned char *)text; *at != '\0';) {
        unsigned code;
        size_t n = decode(at, &code);
        if (code == '"' || code == '\\') dlt_text_add(out, "\\");
        if (needs_escape(code))
            dlt_text_addf(out, "\\u%04x", code);
        else
            dlt_text_addn(out, (const char *)at, n);
        at += n;
    }
    dlt_text_add(out, "\"");
}

/* One writing; note may be NULL. */
typedef struct Writer {
    DltText out;
    const char *(*note)(void *ctx, DltMark at);
    void *ctx;
} Writer;

static void write_text(DltText *out, const char *text, bool quoted)
{
    if (quoted || !is_plain(text))
        write_quoted(out, text);
    else
        dlt_text_add(out, text);
}

/* `key: [a, b]` on one line when it is short. */
static bool fits_flow(const DltYaml *list)
{
    size_t columns = 0;
    for (int i = 0; i < list->n; i++) {
        if (list->item[i]->kind != DLT_YAML_SCALAR) return false;
        columns += strlen(list->item[i]->text) + 2;
        if (columns > FLOW_LIST_COLUMNS) return false;
    }
    return true;
}

static bool is_missing(const DltYaml *tree)
{
    return tree->kind == DLT_YAML_SCALAR && tree->text[0] == '\0' && !tree->quoted;
}

static void write_scalar(DltText *out, const DltYaml *scalar)
{
    if (!is_missing(scalar)) write_text(out, scalar->text, scalar->quoted);
}

static void write_flow(DltText *out, const DltYaml *list)
{
    dlt_text_add(out, "[");
    for (int i = 0; i < list->n; i++) {
        const DltYaml *item = list->item[i];
        dlt_text_add(out, i > 0 ? ", " : "");
        write_text(out, item->text, item->quoted);
    }
    dlt_text_add(out, "]");
}

static bool is_inline(const DltYaml *tree)
{
    if (tree->kind == DLT_YAML_LIST) return fits_flow(tree);
    return tree->kind == DLT_YAML_SCALAR || tree->n == 0;
}

/* The comment behind a value: its own mark, or that of its key when code made the value. */
static void write_note(Writer *w, const DltYaml *parent, int i)
{
    const DltYaml *item = parent->item[i];
    bool own = item->at.file != NULL || parent->kind != DLT_YAML_MAP;
    if (w->note == NULL) return;
    const char *text = w->note(w->ctx, own ? item->at : parent->key_at[i]);
    if (text != NULL) dlt_text_addf(&w->out, "  # %s", text);
}

static void write_inline(DltText *out, const DltYaml *tree)
{
    if (tree->kind == DLT_YAML_SCALAR)
        write_scalar(out, tree);
    else if (tree->kind == DLT_YAML_LIST && fits_flow(tree))
        write_flow(out, tree);
    else
        dlt_text_add(out, "{}");
}

/* Writes what follows "key:", "-" or the start of the text, line end included. `indent` is the
 * column of the tree's own keys or dashes; the first is written where the text stands. */
static void write_tree(Writer *w, const DltYaml *tree, int indent)
{
    DltText *out = &w->out;
    for (int i = 0; i < tree->n; i++) {
        const DltYaml *item = tree->item[i];
        if (i > 0) dlt_text_addf(out, "%*s", indent, "");
        if (tree->kind == DLT_YAML_MAP) {
            write_text(out, tree->key[i], false);
            dlt_text_add(out, ":");
        } else {
            dlt_text_add(out, "-");
        }
        if (item->tag != NULL) dlt_text_addf(out, " %s", item->tag);
        bool below = !is_inline(item) && (tree->kind == DLT_YAML_MAP || item->tag != NULL);
        if (below)
            dlt_text_addf(out, "\n%*s", indent + 2, "");
        else
            dlt_text_add(out, " ");
        if (!is_inline(item)) {
            write_tree(w, item, indent + 2);
            continue;
        }
        write_inline(out, item);
        write_note(w, tree, i);
        dlt_text_add(out, "\n");
    }
}

char *dlt_yaml_write_noted(DltArena *arena, const DltYaml *tree,
                           const char *(*note)(void *ctx, DltMark at), void *ctx)
{
    Writer w = {.out = dlt_text(arena), .note = note, .ctx = ctx};
    if (tree->tag != NULL) dlt_text_addf(&w.out, "%s\n", tree->tag);
    if (is_missing(tree)) dlt_text_add(&w.out, "---"); /* a document in which nothing stands */
    if (is_inline(tree)) {
        write_inline(&w.out, tree);
        dlt_text_add(&w.out, "\n");
    } else {
        write_tree(&w, tree, 0);
    }
    return w.out.bytes;
}

char *dlt_yaml_write(DltArena *arena, const DltYaml *tree)
{
    return dlt_yaml_write_noted(arena, tree, NULL, NULL);
}
