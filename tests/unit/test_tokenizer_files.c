/* Tokenizers and vocabularies that are damaged, by table, and GPT-2's files. Right values follow from the
 * formats' own definitions. */
#include "data_help.h"
#include "tokenizer_help.h"

#include "base/sys.h"
#include "datasets/reader.h"
#include "datasets/vocab.h"

#define HELP_COUNT(rows) (sizeof(rows) / sizeof(rows)[0])

#define HEAD "{\"format\":\"dltrain tokenizer 1\","

static void damaged_tokenizers(void **state)
{
    Help *h = *state;
    static const struct {
        const char *text, *part; /* part NULL: accepted */
    } rows[] = {
        {"", "this is no JSON"},
        {"[1]", "this JSON is no tokenizer"},
        {"{\"format\":1}", "this JSON is no tokenizer"},
        {"{\"format\":\"other\"}", "this JSON is no tokenizer"},
        {HEAD "\"kind\":7}", "no kind '' is known"},
        {HEAD "\"kind\":\"morse\"}", "no kind 'morse' is known"},
        {HEAD "\"kind\":\"bytes\",\"ids\":\"x\"}", "its number of ids is 0"},
        {HEAD "\"kind\":\"bytes\",\"ids\":0}", "its number of ids is 0"},
        {HEAD "\"kind\":\"bytes\",\"ids\":99999999}", "its number of ids is 99999999"},
        {HEAD "\"kind\":\"bytes\",\"ids\":256,\"eot\":-1}", "ends a document is -1"},
        {HEAD "\"kind\":\"bytes\",\"ids\":256,\"eot\":256}", "ends a document is 256"},
        {HEAD "\"kind\":\"bytes\",\"ids\":256,\"eot\":null}", NULL},
        {HEAD "\"kind\":\"gpt2\",\"ids\":50257,\"eot\":50256}", NULL},
        {HEAD "\"kind\":\"chars\",\"ids\":2}", "no characters are listed"},
        {HEAD "\"kind\":\"bpe\",\"ids\":2}", "no vocabulary is listed"},
        {HEAD "\"kind\":\"chars\",\"ids\":2,\"vocab\":[\"a\"]}", "the number of its tokens is 1"},
        {HEAD "\"kind\":\"chars\",\"ids\":2,\"vocab\":7}", "the number of its tokens is 0"},
        {HEAD "\"kind\":\"chars\",\"ids\":2,\"vocab\":[\"a\",7]}", "no token at id 1"},
        {HEAD "\"kind\":\"chars\",\"ids\":2,\"vocab\":[\"a\",\"\"]}", "no token at id 1"},
        {HEAD "\"kind\":\"chars\",\"ids\":2,\"vocab\":[\"a\",\" \"]}", "no token at id 1"},
        {HEAD "\"kind\":\"chars\",\"ids\":2,\"vocab\":[\"a\",\"\xe2\x82\xac\"]}",
         "no token at id 1"},
        {HEAD "\"kind\":\"chars\",\"ids\":2,\"vocab\":[\"a\",null]}", "no character behind"},
        {HEAD "\"kind\":\"chars\",\"ids\":2,\"vocab\":[\"b\",\"a\"]}", "no character behind"},
        {HEAD "\"kind\":\"chars\",\"ids\":2,\"vocab\":[\"a\",\"bc\"]}", "no character behind"},
        {HEAD "\"kind\":\"chars\",\"ids\":2,\"vocab\":[\"a\",\"a\"]}", "the token of another id"},
        {HEAD "\"kind\":\"chars\",\"ids\":2,\"vocab\":[\"a\",\"b\"]}", NULL},
        {HEAD "\"kind\":\"chars\",\"ids\":3,\"vocab\":[\"a\",\"b\",\"c\"],\"merges\":[7]}",
         "no merge of two tokens at place 0"},
        {HEAD "\"kind\":\"bpe\",\"ids\":3,\"vocab\":[\"a\",\"b\",\"ab\"],\"merges\":[\"ab\"]}",
         "no merge of two tokens at place 0"},
        {HEAD "\"kind\":\"bpe\",\"ids\":3,\"vocab\":[\"a\",\"b\",\"ab\"],\"merges\":[\"a c\"]}",
         "no merge of two tokens at place 0"},
        {HEAD "\"kind\":\"bpe\",\"ids\":3,\"vocab\":[\"a\",\"b\",\"ab\"],\"merges\":[\"c b\"]}",
         "no merge of two tokens at place 0"},
        {HEAD "\"kind\":\"bpe\",\"ids\":3,\"vocab\":[\"a\",\"b\",\"ab\"],\"merges\":[\" b\"]}",
         "no merge of two tokens at place 0"},
        {HEAD "\"kind\":\"bpe\",\"ids\":3,\"vocab\":[\"a\",\"b\",\"ab\"],\"merges\":[\"a \"]}",
         "no merge of two tokens at place 0"},
        {HEAD "\"kind\":\"bpe\",\"ids\":3,\"vocab\":[\"a\",\"b\",\"ab\"],\"merges\":[\"b a\"]}",
         "no merge of two tokens at place 0"},
        {HEAD "\"kind\":\"bpe\",\"ids\":3,\"vocab\":[\"a\",\"b\",\"ab\"],\"merges\":["
              "\"\xe2\x82\xac b\"]}",
         "no merge of two tokens at place 0"},
        {HEAD "\"kind\":\"bpe\",\"ids\":3,\"vocab\":[\"a\",\"b\",\"ab\"],\"merges\":[\"a "
              "\xe2\x82\xac\"]}",
         "no merge of two tokens at place 0"},
        {HEAD
         "\"kind\":\"bpe\",\"ids\":3,\"vocab\":[\"a\",\"b\",\"ab\"],\"merges\":[\"a b\",\"a b\"]}",
         "no id for the byte 0x00"},
    };
    for (size_t i = 0; i < HELP_COUNT(rows); i++) {
        DltTokenizer t = {.eot = -1};
        DltStatus status = dlt_tokenizer_parse(h->arena, "t.json", rows[i].text,
                                               (int64_t)strlen(rows[i].text), &t, &h->err);
        if (rows[i].part == NULL)
            help_ok(h, status);
        else
            help_refused(h, status, DLT_E_DATA, rows[i].part);
    }
    char *line = dlt_arena_new_bytes(h->arena, 6000, 1); /* longer than any merge */
    memset(line, 'a', 5000);
    line[2500] = ' ';
    char *text = dlt_arena_printf(
        h->arena, HEAD "\"kind\":\"bpe\",\"ids\":1,\"vocab\":[\"a\"],\"merges\":[\"%s\"]}", line);
    DltTokenizer t = {.eot = -1};
    help_refused(h,
                 dlt_tokenizer_parse(h->arena, "t.json", text, (int64_t)strlen(text), &t, &h->err),
                 DLT_E_DATA, "no merge of two tokens at place 0");
}

static void gpt2_files(void **state)
{
    Help *h = *state;
    static const struct {
        const char *vocab, *merges, *part;
    } rows[] = {
        {"", "", "no JSON object of tokens and ids"},
        {"[\"a\"]", "", "no JSON object of tokens and ids"},
        {"{\"a\":\"0\"}", "", "'a' has no id of 0 to 2^24"},
        {"{\"a\":-1}", "", "'a' has no id of 0 to 2^24"},
        {"{\"a\":16777216}", "", "'a' has no id of 0 to 2^24"},
        {"{\" \":0}", "", "' ' is not in GPT-2's alphabet"},
        {"{\"\":0}", "", "'' is not in GPT-2's alphabet"},
        {"{\"a\":0,\"b\":0}", "", "'b' has the id of another token"},
        {"{\"a\":0,\"a\":1}", "", "no JSON object of tokens and ids"},
        {"{\"a\":0,\"b\":1,\"ab\":2}", "#version: 1\na b\nb b\n", "line 3"},
        {"{\"a\":0,\"b\":1,\"ab\":2}", "a c\r\n", "line 1"},
        {"{\"a\":0,\"b\":1,\"ab\":2}", "a b\r\n\r\n\n", "no id for the byte 0x00"},
        {"{\"a\":0,\"<|endoftext|>\":5}", "\n", "no id for the byte 0x00"},
    };
    for (size_t i = 0; i < HELP_COUNT(rows); i++) {
        DltTokenizer t;
        const char *vocab = help_write("enc.json", rows[i].vocab, (int64_t)strlen(rows[i].vocab));
        const char *merges = help_write("v.bpe", rows[i].merges, (int64_t)strlen(rows[i].merges));
        const char *yaml = dlt_arena_printf(h->arena, "{vocab: %s, merges: %s}", vocab, merges);
        help_refused(h, help_tokenizer(h, "gpt2", yaml, &t), DLT_E_DATA, rows[i].part);
    }
    DltTokenizer t;
    help_refused(h, help_tokenizer(h, "gpt2", "{vocab: x}", &t), DLT_E_CONFIG, "merges is missing");
    help_refused(h, help_tokenizer(h, "gpt2", "{merges: x}", &t), DLT_E_CONFIG, "vocab is missing");
    help_refused(h, help_tokenizer(h, "gpt2", "{vocab: /none, merges: /none}", &t), DLT_E_DATA,
                 "/none");
    help_refused(
        h, help_tokenizer(h, "gpt2", "{vocab: tests/golden/gpt2/encoder.json, merges: /none}", &t),
        DLT_E_DATA, "/none");
    help_refused(h, help_tokenizer(h, "bpe", "{file: /none}", &t), DLT_E_DATA, "/none");
    static const char chars[] = HEAD "\"kind\":\"chars\",\"ids\":1,\"vocab\":[\"a\"]}";
    const char *path = help_write("chars.json", chars, sizeof chars - 1);
    help_refused(h, help_tokenizer(h, "bpe", dlt_arena_printf(h->arena, "{file: %s}", path), &t),
                 DLT_E_DATA, "holds a tokenizer of kind chars, not bpe");
    help_ok(h, help_tokenizer(h, "gpt2", "{}", &t)); /* ids alone: nothing can be read or shown */
    DltIds ids = {0};
    DltText text = dlt_text(h->arena);
    help_refused(h, dlt_tokenizer_encode(&t, "t", 0, (const uint8_t *)"a", 1, &ids, &h->err),
                 DLT_E_CONFIG, "encoder.json");
    help_refused(h, dlt_tokenizer_decode(&t, &(int32_t){0}, 1, &text, &h->err), DLT_E_CONFIG,
                 "encoder.json");
    int64_t n;
    assert_null(dlt_tokenizer_bytes(&t, 0, &n));
    help_ok(h, help_tokenizer(h, "bytes", "{}", &t));
    assert_null(dlt_tokenizer_bytes(&t, -1, &n));
    assert_null(dlt_tokenizer_bytes(&t, 256, &n));
    help_ok(h, dlt_tokenizer_decode(&t, (const int32_t[]){104, 999, 105}, 3, &text, &h->err));
    assert_string_equal(text.bytes, "hi");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        help_test(damaged_tokenizers),
        help_test(gpt2_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
