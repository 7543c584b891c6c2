/* YAML trees: look-ups, merging, and random trees that survive writing and reading. */
#include "config_help.h"

#include "base/rng.h"

static void look_ups(void **state)
{
    DltYaml *root = help_parse(*state, "{a: {b: [x, {c: y}]}, a.b: z, 'p.q': {r: s}}");
    assert_string_equal(dlt_yaml_find(root, "a.b.1.c")->text, "y");
    assert_int_equal(dlt_yaml_find(root, "a.b")->kind, DLT_YAML_LIST);
    assert_string_equal(dlt_yaml_find(root, "p.q.r")->text, "s");
    assert_string_equal(dlt_yaml_get(root, "a.b")->text, "z");
    static const char *const absent[] = {"a.b.2",     "a.b.x", "a.b.",   "b",
                                         "a.b.1.c.d", "",      "a.b.-1", "p"};
    for (size_t i = 0; i < HELP_COUNT(absent); i++)
        assert_null(dlt_yaml_find(root, absent[i]));
    assert_null(dlt_yaml_get(root->item[1], "a"));
    assert_null(dlt_yaml_find(NULL, "a"));
}

static void merging_replaces_all_but_maps(void **state)
{
    Help *h = *state;
    const DltYaml *base = help_parse(h, "{a: {x: 1, y: 2}, l: [1, 2], s: 1, m: {x: 1}, r: {x: 1}}");
    const DltYaml *over =
        help_parse(h, "{a: {y: 3, z: 4}, l: [3], s: {t: 1}, m: 5, r: !replace {y: 2}}");
    assert_string_equal(help_text(h, dlt_yaml_merge(h->arena, base, over)),
                        "a:\n  x: 1\n  y: 3\n  z: 4\nl: [3]\ns:\n  t: 1\nm: 5\nr:\n  y: 2");
    assert_string_equal(help_text(h, base->item[0]), "x: 1\ny: 2"); /* left as it was */
}

static bool equal(const DltYaml *a, const DltYaml *b)
{
    const char *tag_a = a->tag != NULL ? a->tag : "", *tag_b = b->tag != NULL ? b->tag : "";
    if (a->kind != b->kind || a->n != b->n || strcmp(tag_a, tag_b) != 0) return false;
    if (a->kind == DLT_YAML_SCALAR) return strcmp(a->text, b->text) == 0;
    for (int i = 0; i < a->n; i++) {
        if (a->kind == DLT_YAML_MAP && strcmp(a->key[i], b->key[i]) != 0) return false;
        if (!equal(a->item[i], b->item[i])) return false;
    }
    return true;
}

static const char *const nasty[] = {"a",
                                    "",
                                    " ",
                                    " a",
                                    "a ",
                                    "-",
                                    "- a",
                                    "-1",
                                    "+.5",
                                    "---",
                                    "...",
                                    "...a",
                                    "a: b",
                                    "a:",
                                    ":a",
                                    "#a",
                                    "a #b",
                                    "a#b",
                                    "'",
                                    "\"",
                                    "a'b",
                                    "\\",
                                    "\n",
                                    "a\nb",
                                    "\ta",
                                    "*x",
                                    "&x",
                                    "!x",
                                    "!replace",
                                    "%x",
                                    "@x",
                                    "`x",
                                    "?",
                                    "? x",
                                    "[",
                                    "]",
                                    "{",
                                    "}",
                                    "[a]",
                                    "a,b",
                                    "a, b",
                                    ",",
                                    "|",
                                    ">",
                                    "~",
                                    "null",
                                    "true",
                                    "no",
                                    "010",
                                    "1e-3",
                                    "<<",
                                    "=",
                                    "$x",
                                    "${a[0]}",
                                    "$",
                                    "/a/b",
                                    "./x",
                                    "ä",
                                    "\xc2\x85",
                                    "\xe2\x80\xa8",
                                    "\xef\xbb\xbf",
                                    "\xf0\x9f\x98\x80",
                                    "\x01",
                                    "\x7f",
                                    "\xc2\x80",
                                    "5 epochs",
                                    "10% of train",
                                    "a-b",
                                    "x.y",
                                    "~/d",
                                    "1/3",
                                    "a  b",
                                    "val.top1 > 94%"};

static DltYaml *random_tree(DltArena *arena, uint64_t seed, int depth)
{
    DltRand4 r = dlt_philox(seed, 1, 0);
    unsigned kind = depth > 4 ? 0 : r.v[0] % 4;
    if (kind < 2) {
        DltYaml *scalar = dlt_yaml_scalar(arena, nasty[r.v[1] % HELP_COUNT(nasty)], DLT_NO_MARK);
        scalar->quoted = scalar->text[0] == '\0' || r.v[2] % 2 == 0;
        return scalar;
    }
    DltYaml *tree =
        kind == 2 ? dlt_yaml_list(arena, DLT_NO_MARK) : dlt_yaml_map(arena, DLT_NO_MARK);
    for (unsigned i = 0; i < r.v[1] % 6; i++) {
        uint64_t child_seed = seed * 7 + i + 1;
        DltYaml *child = random_tree(arena, child_seed, depth + 1);
        const char *key = nasty[dlt_philox(child_seed, 2, 0).v[0] % HELP_COUNT(nasty)];
        if (kind == 2)
            dlt_yaml_append(arena, tree, child);
        else if (key[0] != '\0')
            dlt_yaml_put(arena, tree, key, DLT_NO_MARK, child);
    }
    if (kind == 3 && r.v[2] % 8 == 0) tree->tag = "!replace";
    return tree;
}

static void written_trees_read_back_equal(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 3000; seed++) {
        Help local = {.arena = dlt_arena_new()};
        const DltYaml *tree = random_tree(local.arena, seed, 0);
        const char *text = dlt_yaml_write(local.arena, tree);
        DltYaml *back = help_parse(&local, text);
        if (!equal(tree, back)) fail_msg("seed %d: %s", (int)seed, text);
        assert_string_equal(dlt_yaml_write(local.arena, back), text);
        if (!equal(tree, dlt_yaml_copy(local.arena, tree))) fail_msg("copy of seed %d", (int)seed);
        dlt_arena_free(local.arena);
    }
}

static void missing_values_stay_missing(void **state)
{
    Help *h = *state;
    const DltYaml *root = help_parse(h, "a:\nb: ''\nc:\n  -\n  - d:\n");
    assert_string_equal(help_text(h, root), "a: \nb: \"\"\nc:\n  - \n  - d: ");
    assert_true(equal(root, help_parse(h, dlt_yaml_write(h->arena, root))));
    assert_string_equal(help_text(h, help_parse(h, "---")), "---");
}

static void parse_at_gives_marks_of_the_origin(void **state)
{
    Help *h = *state;
    DltYaml *root = NULL;
    DltMark origin = {.file = "<command line>", .line = 3, .col = 5, .text = "a.b=[1, x]"};
    assert_int_equal(dlt_yaml_parse_at(h->arena, origin, "[1, x]", &root, &h->err), DLT_OK);
    assert_int_equal(root->item[1]->at.line, 3);
    assert_int_equal(root->item[1]->at.col, 9);
    assert_string_equal(root->item[1]->at.text, origin.text);
    assert_string_equal(root->item[1]->at.file, origin.file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        HELP_TEST(look_ups),
        HELP_TEST(merging_replaces_all_but_maps),
        HELP_TEST(written_trees_read_back_equal),
        HELP_TEST(missing_values_stay_missing),
        HELP_TEST(parse_at_gives_marks_of_the_origin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
