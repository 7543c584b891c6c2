/* Tokenizers: decode(encode(x)) is x for each kind, GPT-2's ids are the published ones, a tokenizer's
 * JSON text makes an equal one, and bad files are named with their place. */
#include "data_help.h"

#include "datasets/utf8.h"
#include "datasets/vocab.h"
#include <stdlib.h>

static const char sample[] = "datasets/samples/shakespeare.txt";

static DltTokenizer *make(Help *h, const char *kind, const char *yaml)
{
    DltTokenizer *t = DLT_NEW(h->arena, DltTokenizer);
    DltOpts *o = DLT_NEW(h->arena, DltOpts);
    DltYaml *tree = NULL;
    *t = (DltTokenizer){.def = dlt_tokenizer_find(kind), .path = kind, .eot = -1};
    if (yaml != NULL)
        help_ok(h,
                dlt_yaml_parse(h->arena, "test.yaml", yaml, (int64_t)strlen(yaml), &tree, &h->err));
    help_ok(h, dlt_schema_read(h->arena, t->def->fields, t->def->opt_size, tree,
                               (DltWhere){kind, DLT_NO_MARK}, o, &h->err));
    help_ok(h, t->def->open(h->arena, o, ".", t, &h->err));
    return t;
}

static DltTokenizer *gpt2(Help *h)
{
    return make(h, "gpt2",
                "{vocab: tests/golden/gpt2/encoder.json, merges: tests/golden/gpt2/vocab.bpe}");
}

static DltTokenizer *trained(Help *h, int64_t vocab)
{
    int64_t n;
    uint8_t *text = help_file(h, sample, &n);
    DltTokenizer *t = DLT_NEW(h->arena, DltTokenizer);
    help_ok(h, dlt_bpe_train(h->arena, text, n, vocab, t, &h->err));
    return t;
}

static void comes_back(Help *h, const DltTokenizer *t, const uint8_t *text, int64_t n)
{
    DltIds ids = {0};
    DltText back = dlt_text(h->arena);
    help_ok(h, dlt_tokenizer_encode(t, "text", 0, text, n, &ids, &h->err));
    for (int64_t i = 0; i < ids.n; i++)
        assert_in_range(ids.v[i], 0, t->vocab - 1);
    help_ok(h, dlt_tokenizer_decode(t, ids.v, ids.n, &back, &h->err));
    assert_int_equal(back.n, n);
    assert_memory_equal(back.bytes, text, (size_t)n);
    dlt_ids_free(&ids);
}

/* Every single byte, every pair of bytes, and a long run of one. */
static void all_bytes_come_back(Help *h, const DltTokenizer *t)
{
    enum { PAIRS = 1 << 17, RUN = 100000 };
    uint8_t *text = DLT_NEW_ARRAY(h->arena, PAIRS + RUN, uint8_t);
    for (int i = 0; i < 256; i++)
        text[i] = (uint8_t)i;
    comes_back(h, t, text, 256);
    for (int i = 0; i < PAIRS / 2; i++) {
        text[2 * i] = (uint8_t)(i >> 8);
        text[2 * i + 1] = (uint8_t)i;
    }
    memset(text + PAIRS, 'a', RUN);
    comes_back(h, t, text, PAIRS + RUN);
    comes_back(h, t, text, 0);
}

static void bytes_come_back(void **state)
{
    Help *h = *state;
    all_bytes_come_back(h, make(h, "bytes", NULL));
}

static void trained_bpe_comes_back(void **state)
{
    Help *h = *state;
    int64_t n;
    const DltTokenizer *t = trained(h, 512);
    uint8_t *text = help_file(h, sample, &n);
    assert_int_equal(t->vocab, 512);
    assert_int_equal(t->eot, 511);
    all_bytes_come_back(h, t);
    comes_back(h, t, text, n);
}

static void chars_come_back(void **state)
{
    Help *h = *state;
    int64_t n;
    uint8_t *text = help_file(h, sample, &n);
    DltTokenizer *t = make(h, "chars", NULL);
    help_ok(h, t->def->learn(h->arena, t, sample, text, n, &h->err));
    assert_int_equal(t->vocab, 61); /* sorted(set(text)) in Python */
    comes_back(h, t, text, n);
    static const char more[] = "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"; /* a é € and an emoji */
    help_ok(h, t->def->learn(h->arena, t, "more", (const uint8_t *)more, sizeof more - 1, &h->err));
    assert_int_equal(t->vocab, 64);
    comes_back(h, t, (const uint8_t *)more, sizeof more - 1);
}

static void chars_name_what_they_lack(void **state)
{
    Help *h = *state;
    DltTokenizer *t = make(h, "chars", NULL);
    DltIds ids = {0};
    static const uint8_t text[] = "abc", bad[] = "ab\xffz", new[] = "ab\xc3\xa9",
                         cut[] = "a\xe2\x82";
    help_ok(h, t->def->learn(h->arena, t, "a.txt", text, 3, &h->err));
    help_refused(h, dlt_tokenizer_encode(t, "b.txt", 10, bad, 4, &ids, &h->err), DLT_E_DATA,
                 "b.txt: byte 12 (0xff) is not UTF-8; the tokenizer bytes takes any file");
    help_refused(h, dlt_tokenizer_encode(t, "b.txt", 0, cut, 3, &ids, &h->err), DLT_E_DATA,
                 "b.txt: byte 1 (0xe2) is not UTF-8");
    help_refused(
        h, dlt_tokenizer_encode(t, "b.txt", 0, new, 4, &ids, &h->err), DLT_E_DATA,
        "b.txt: byte 2: the character '\xc3\xa9' (U+00E9) is not among the 3 of the training "
        "text");
    help_refused(h, t->def->learn(h->arena, t, "c.txt", bad, 4, &h->err), DLT_E_DATA,
                 "c.txt: byte 2 (0xff) is not UTF-8");
    dlt_ids_free(&ids);
}

/* Texts with the ids of the published vocabulary, computed by OpenAI's algorithm (make_gpt2.py). */
static void gpt2_gives_the_published_ids(void **state)
{
    Help *h = *state;
    const DltTokenizer *t = gpt2(h);
    int64_t n;
    char *line = (char *)help_file(h, "tests/golden/gpt2/ids.txt", &n), *rest = NULL;
    int n_case = 0;
    assert_int_equal(t->vocab, 50257);
    assert_int_equal(t->eot, 50256);
    for (line = strtok_r(line, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest)) {
        if (line[0] == '#') continue;
        DltIds ids = {0};
        char *at = line;
        uint8_t *text = (uint8_t *)line;
        int64_t n_text = 0, i = 0;
        for (; *at != ' '; at += 2) {
            unsigned byte;
            assert_int_equal(sscanf(at, "%2x", &byte), 1);
            text[n_text++] = (uint8_t)byte;
        }
        help_ok(h, dlt_tokenizer_encode(t, "text", 0, text, n_text, &ids, &h->err));
        for (; *at == ' '; i++) {
            long id = strtol(at, &at, 10);
            assert_true(i < ids.n);
            assert_int_equal(ids.v[i], id);
        }
        assert_int_equal(ids.n, i);
        comes_back(h, t, text, n_text);
        dlt_ids_free(&ids);
        n_case++;
    }
    assert_int_equal(n_case, 9);
}

static void gpt2_says_hello_world(void **state)
{
    Help *h = *state;
    DltIds ids = {0};
    help_ok(h, dlt_tokenizer_encode(gpt2(h), "text", 0, (const uint8_t *)"Hello world", 11, &ids,
                                    &h->err));
    assert_int_equal(ids.n, 2);
    assert_int_equal(ids.v[0], 15496);
    assert_int_equal(ids.v[1], 995);
    dlt_ids_free(&ids);
}

static void gpt2_wants_utf8_and_its_files(void **state)
{
    Help *h = *state;
    DltIds ids = {0};
    static const uint8_t bad[] = "ab\xc0\xaf";
    help_refused(h, dlt_tokenizer_encode(gpt2(h), "b.txt", 5, bad, 4, &ids, &h->err), DLT_E_DATA,
                 "b.txt: byte 7 (0xc0) is not UTF-8; the tokenizers bytes and bpe take any file");
    const DltTokenizer *bare = make(h, "gpt2", NULL);
    assert_int_equal(bare->vocab, 50257);
    assert_int_equal(bare->eot, 50256);
    help_refused(
        h, dlt_tokenizer_encode(bare, "b.txt", 0, bad, 2, &ids, &h->err), DLT_E_CONFIG,
        "tokenizer gpt2: text needs its files; write tokenizer: {gpt2: {vocab: encoder.json, "
        "merges: vocab.bpe}}");
    dlt_ids_free(&ids);
}

static DltTokenizer *again(Help *h, const DltTokenizer *t)
{
    DltTokenizer *copy = DLT_NEW(h->arena, DltTokenizer);
    char *text = dlt_tokenizer_write(h->arena, t);
    help_ok(h, dlt_tokenizer_parse(h->arena, "copy", text, (int64_t)strlen(text), copy, &h->err));
    assert_string_equal(dlt_tokenizer_write(h->arena, copy), text);
    assert_int_equal(copy->vocab, t->vocab);
    assert_int_equal(copy->eot, t->eot);
    assert_ptr_equal(copy->def, t->def);
    return copy;
}

static void written_tokenizers_are_equal(void **state)
{
    Help *h = *state;
    int64_t n;
    uint8_t *text = help_file(h, sample, &n);
    DltTokenizer *chars = make(h, "chars", NULL);
    help_ok(h, chars->def->learn(h->arena, chars, sample, text, n, &h->err));
    DltTokenizer *all[] = {make(h, "bytes", NULL), chars, trained(h, 400), gpt2(h)};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        DltTokenizer *copy = again(h, all[i]);
        DltIds a = {0}, b = {0};
        help_ok(h, dlt_tokenizer_encode(all[i], "a", 0, text, n, &a, &h->err));
        help_ok(h, dlt_tokenizer_encode(copy, "b", 0, text, n, &b, &h->err));
        assert_int_equal(a.n, b.n);
        assert_memory_equal(a.v, b.v, (size_t)a.n * sizeof *a.v);
        dlt_ids_free(&a);
        dlt_ids_free(&b);
    }
    again(h, make(h, "gpt2", NULL));
}

/* Gage's example (1994): aaabdaaabac -> ZabdZabac -> ZYdZYac -> XdXac, with Y for ab, since of Za and ab,
 * twice each, ab has the lower ids; then no pair occurs twice. */
static void training_merges_the_most_frequent(void **state)
{
    Help *h = *state;
    DltTokenizer t;
    static const char text[] = "aaabdaaabac";
    help_ok(h, dlt_bpe_train(h->arena, (const uint8_t *)text, sizeof text - 1, 1000, &t, &h->err));
    const DltVocab *v = t.state;
    static const DltMerge want[] = {{'a', 'a', 256}, {'a', 'b', 257}, {256, 257, 258}};
    assert_int_equal(v->n_merge, 3);
    assert_memory_equal(v->merge, want, sizeof want);
    assert_int_equal(t.vocab, 260);
}

static void training_depends_on_the_text_alone(void **state)
{
    Help *h = *state;
    const DltTokenizer *a = trained(h, 700), *b = trained(h, 700), *fewer = trained(h, 400);
    assert_string_equal(dlt_tokenizer_write(h->arena, a), dlt_tokenizer_write(h->arena, b));
    const DltVocab *v = a->state, *w = fewer->state;
    assert_memory_equal(v->merge, w->merge, (size_t)w->n_merge * sizeof *w->merge);
}

static void damaged_tokenizers_are_refused(void **state)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"", "byte 0: this is no JSON, so no tokenizer"},
        {"{\"a\": 1", "this is no JSON, so no tokenizer"},
        {"[1]", "this JSON is no tokenizer: its \"format\" must be \"dltrain tokenizer 1\""},
        {"{\"format\": \"dltrain tokenizer 1\", \"kind\": \"words\"}", "no kind 'words' is known"},
        {"{\"format\": \"dltrain tokenizer 1\", \"kind\": \"bpe\", \"ids\": 0}",
         "damaged tokenizer: its number of ids is 0"},
        {"{\"format\": \"dltrain tokenizer 1\", \"kind\": \"bpe\", \"ids\": 2}",
         "no vocabulary is listed"},
        {"{\"format\": \"dltrain tokenizer 1\", \"kind\": \"bpe\", \"ids\": 2, \"eot\": 2}",
         "the id that ends a document is 2"},
        {"{\"format\": \"dltrain tokenizer 1\", \"kind\": \"bpe\", \"ids\": 2, \"vocab\": [\"a\"]}",
         "the number of its tokens is 1"},
        {"{\"format\": \"dltrain tokenizer 1\", \"kind\": \"bpe\", \"ids\": 2, \"vocab\": "
         "[\"a\", \" \"]}",
         "no token at id 1"},
        {"{\"format\": \"dltrain tokenizer 1\", \"kind\": \"bpe\", \"ids\": 2, \"vocab\": "
         "[\"a\", \"a\"]}",
         "the token of another id at id 1"},
        {"{\"format\": \"dltrain tokenizer 1\", \"kind\": \"bpe\", \"ids\": 2, \"vocab\": "
         "[\"a\", \"b\"], \"merges\": [\"a b\"]}",
         "no merge of two tokens at place 0"},
        {"{\"format\": \"dltrain tokenizer 1\", \"kind\": \"bpe\", \"ids\": 2, \"vocab\": "
         "[\"a\", \"b\"], \"merges\": []}",
         "the vocabulary has no id for the byte 0x00"},
        {"{\"format\": \"dltrain tokenizer 1\", \"kind\": \"chars\", \"ids\": 2, \"vocab\": "
         "[\"b\", \"a\"], \"merges\": []}",
         "id 1 is no character behind that of id 0"},
    };
    Help *h = *state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        DltTokenizer t;
        help_refused(h,
                     dlt_tokenizer_parse(h->arena, "tok.json", cases[i].text,
                                         (int64_t)strlen(cases[i].text), &t, &h->err),
                     DLT_E_DATA, cases[i].message);
    }
}

static void bad_gpt2_files_are_named(void **state)
{
    static const struct {
        const char *vocab, *merges, *message;
    } cases[] = {
        {"no json", "", "no JSON object of tokens and ids"},
        {"{\"a\": \"b\"}", "", "token 'a' has no id of 0 to 2^24"},
        {"{\"a\": -1}", "", "token 'a' has no id of 0 to 2^24"},
        {"{\"a\": 1, \"b\": 1}", "", "token 'b' has the id of another token"},
        {"{\"a b\": 1}", "", "token 'a b' is not in GPT-2's alphabet of bytes"},
        {"{\"a\": 0, \"b\": 1, \"ab\": 2}", "#version: 0.2\na b\nb a\n",
         "line 3 (byte 18): 'b a' is no merge of two tokens of"},
        {"{\"a\": 0}", "#version: 0.2\n", "the vocabulary has no id for the byte 0x00"},
    };
    Help *h = *state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        DltTokenizer t = {.def = dlt_tokenizer_find("gpt2"), .eot = -1};
        DltOpts o = {0};
        DltYaml *tree = NULL;
        const char *vocab =
            help_write("encoder.json", cases[i].vocab, (int64_t)strlen(cases[i].vocab));
        const char *merges =
            help_write("vocab.bpe", cases[i].merges, (int64_t)strlen(cases[i].merges));
        const char *yaml = dlt_arena_printf(h->arena, "{vocab: %s, merges: %s}", vocab, merges);
        help_ok(h, dlt_yaml_parse(h->arena, "t.yaml", yaml, (int64_t)strlen(yaml), &tree, &h->err));
        help_ok(h, dlt_schema_read(h->arena, t.def->fields, t.def->opt_size, tree,
                                   (DltWhere){"gpt2", tree->at}, &o, &h->err));
        help_refused(h, t.def->open(h->arena, &o, ".", &t, &h->err), DLT_E_DATA, cases[i].message);
        unlink(vocab);
        unlink(merges);
    }
}

/* Lengths of the pieces, as Python's regex module cuts them. */
static void pieces_are_gpt2s(void **state)
{
    static const struct {
        const char *text;
        int n[12];
    } cases[] = {
        {"it's  a\n\nb", {2, 2, 1, 2, 1, 1, 1}},
        {"  x   ", {1, 2, 3}},
        {"12ab!?'s", {2, 2, 3, 1}},
        {" \t\n", {3}},
        {"\xc2\xa0\xc2\xa0z",
         {2, 2, 1}}, /* no-break spaces are white, but only ' ' goes with a word */
        {"\xe6\x97\xa5\xe6\x9c\xac \xe0\xa5\xa7", {6, 4}}, /* letters, then a Devanagari digit */
        {"\xff\xfe", {2}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const uint8_t *p = (const uint8_t *)cases[i].text;
        int64_t n = (int64_t)strlen(cases[i].text);
        int k = 0;
        for (; n > 0; k++) {
            int64_t length = dlt_gpt2_piece(p, n);
            assert_int_equal(length, cases[i].n[k]);
            p += length;
            n -= length;
        }
        assert_int_equal(cases[i].n[k], 0);
    }
}

/* Every code point comes back from its bytes; what is no UTF-8 is found. */
static void utf8_is_strict(void **state)
{
    static const char *const bad[] = {
        "\x80",         "\xc0\xaf",         "\xc1\xbf",         "\xe0\x9f\xbf",
        "\xed\xa0\x80", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80",
        "\xe2\x82",     "\xe2\x28\xa1"};
    (void)state;
    for (uint32_t c = 0; c < 0x110000; c++) {
        uint8_t bytes[4];
        uint32_t got = 0;
        if (c >= 0xD800 && c <= 0xDFFF) continue;
        int n = dlt_utf8_put(c, bytes);
        assert_int_equal(dlt_utf8_next(bytes, n, &got), n);
        assert_int_equal(got, c);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(dlt_utf8_check((const uint8_t *)bad[i], (int64_t)strlen(bad[i])), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        help_test(bytes_come_back),
        help_test(trained_bpe_comes_back),
        help_test(chars_come_back),
        help_test(chars_name_what_they_lack),
        help_test(gpt2_gives_the_published_ids),
        help_test(gpt2_says_hello_world),
        help_test(gpt2_wants_utf8_and_its_files),
        help_test(written_tokenizers_are_equal),
        help_test(training_merges_the_most_frequent),
        help_test(training_depends_on_the_text_alone),
        help_test(damaged_tokenizers_are_refused),
        help_test(bad_gpt2_files_are_named),
        help_test(pieces_are_gpt2s),
        help_test(utf8_is_strict),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
