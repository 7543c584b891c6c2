/* G13: every config in configs/ with one thing wrong, for each key that has a line of its own: the key
 * misspelt, the key twice, a value of no use there, the line indented with a tab. All are refused as configs
 * (exit 2), at the line and column of what is wrong. */
#include "config_help.h"

#include "spec/spec.h"
#include <ctype.h>
#include <dirent.h>

enum { BYTES = 1 << 14, WORD = 80 };

typedef struct Line { /* "INDENT KEY: VALUE", a list's dash counting as indentation */
    const char *at, *key, *value, *end;
    int n_key, col; /* of the key, from 1 */
    bool free;      /* the names are the user's */
} Line;

static int n_bad, n_misspelt, n_suggested;

static const char *read_config(Help *h, const char *name)
{
    char path[300], *text = DLT_NEW_ARRAY(h->arena, BYTES, char);
    snprintf(path, sizeof path, "configs/%s", name);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    size_t n = fread(text, 1, BYTES - 1, f);
    fclose(f);
    assert_true(n > 0 && n < BYTES - 1);
    return text;
}

/* False when the line holds no key with a value. */
static bool split(const char *at, const char *end, Line *line)
{
    const char *key = at;
    while (key < end && (*key == ' ' || (*key == '-' && key[1] == ' ')))
        key++;
    const char *colon = key;
    while (colon < end && (isalnum((unsigned char)*colon) || *colon == '_'))
        colon++;
    const char *value = colon + 2;
    if (colon == key || colon >= end || *colon != ':' || value >= end || *value == '#')
        return false;
    *line = (Line){at, key, value, end, (int)(colon - key), (int)(key - at) + 1, false};
    return true;
}

/* The text with [from, to) replaced, read: one report at least, of a config. */
static const DltReport *refuse(Help *h, const char *name, const char *text, const char *from,
                               const char *to, const char *with)
{
    DltSpec *spec = NULL;
    char *bad = dlt_arena_printf(h->arena, "%.*s%s%s", (int)(from - text), text, with, to);
    dlt_err_init(&h->err);
    DltStatus status =
        dlt_spec_read_stored(h->arena, &(DltStored){.name = name, .text = bad, .folder = "configs"},
                             0, NULL, &spec, &h->err);
    if (status != DLT_E_CONFIG || h->err.n < 1)
        fail_msg("%s: '%s' in the place of '%.*s' gives status %d", name, with, (int)(to - from),
                 from, (int)status);
    n_bad++;
    return &h->err.report[0];
}

/* Somewhere among the reports, as one mistake may be seen from several sides. */
static void must_be_at(const Help *h, const char *name, int line, int col, int width,
                       const char *what)
{
    for (int i = 0; i < h->err.n; i++) {
        const DltMark *at = &h->err.report[i].at;
        if (at->line == line && at->col >= col && at->col < col + width) return;
    }
    fail_msg("%s:%d:%d: %s is reported at %d:%d: %s", name, line, col, what,
             h->err.report[0].at.line, h->err.report[0].at.col, h->err.report[0].text);
}

static void misspelt(Help *h, const char *name, const char *text, const Line *l, int number)
{
    char word[WORD], wanted[WORD + 2];
    snprintf(wanted, sizeof wanted, "'%.*s'", l->n_key, l->key);
    for (int i = 0; i < 3; i++) { /* a letter missing, doubled, other */
        int cut = (number + i) % l->n_key;
        snprintf(word, sizeof word, "%.*s%s%.*s", cut, l->key,
                 i == 0   ? ""
                 : i == 1 ? (char[]){l->key[cut], l->key[cut], '\0'}
                          : "q",
                 l->n_key - cut - 1, l->key + cut + 1);
        if (word[0] == '\0' || strcmp(word, "adam") == 0) continue; /* adamw's neighbour exists */
        const DltReport *r = refuse(h, name, text, l->key, l->key + l->n_key, word);
        must_be_at(h, name, number, l->col, 1, word);
        const char *meant = strstr(r->text, "did you mean ");
        n_misspelt++;
        n_suggested += meant != NULL && strncmp(meant + 13, wanted, strlen(wanted)) == 0;
    }
}

static void each_line(Help *h, const char *name, const char *text)
{
    bool is_free = false;
    int number = 1;
    for (const char *at = text, *end; (end = strchr(at, '\n')) != NULL; at = end + 1, number++) {
        Line l;
        char twice[BYTES];
        if (isalpha((unsigned char)*at)) /* a section begins */
            is_free = strncmp(at, "vars:", 5) == 0 || strncmp(at, "blocks:", 7) == 0;
        if (!split(at, end, &l)) continue;
        bool dash = memchr(at, '-', (size_t)(l.key - at)) != NULL;
        bool top = strncmp(l.key, "vars:", 5) == 0 || strncmp(l.key, "blocks:", 7) == 0;
        snprintf(twice, sizeof twice, "%*s%.*s\n", l.col - 1, "", (int)(end - l.key), l.key);
        refuse(h, name, text, end + 1, end + 1, twice);
        must_be_at(h, name, number + 1, l.col, 1, "a key twice");
        if (l.col > 1 && !dash) {
            refuse(h, name, text, at, l.key, "\t");
            must_be_at(h, name, number, 1, l.col, "a tab");
        }
        if (is_free) continue;
        if (!top) misspelt(h, name, text, &l, number);
        refuse(h, name, text, l.value, end, "{zzz: {yyy: 1}}");
        must_be_at(h, name, number, l.col, (int)(l.value - l.key) + 3, "a value of no use");
        refuse(h, name, text, l.value, end, "[1, {");
    }
}

static void every_config_with_one_mistake(void **state)
{
    Help *h = *state;
    int n_file = 0;
    DIR *dir = opendir("configs");
    assert_non_null(dir);
    for (struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        if (strstr(e->d_name, ".yaml") == NULL) continue;
        each_line(h, e->d_name, read_config(h, e->d_name));
        n_file++;
    }
    closedir(dir);
    print_message("%d bad configs made of %d good ones, all refused at their place; of %d misspelt "
                  "keys %d with the right suggestion\n",
                  n_bad, n_file, n_misspelt, n_suggested);
    assert_true(n_bad >= 400);
    assert_true(100 * n_suggested >= 95 * n_misspelt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {HELP_TEST(every_config_with_one_mistake)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
