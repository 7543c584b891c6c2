/* Reports and how they are printed, byte for byte (DESIGN.md, section 8). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/err.h"

static DltErr err;
static char printed[1 << 16];

static int start(void **state)
{
    (void)state;
    dlt_err_init(&err);
    return 0;
}

static const char *print(void)
{
    FILE *out = fmemopen(printed, sizeof printed, "w");
    assert_non_null(out);
    dlt_err_print(&err, out);
    fclose(out);
    return printed;
}

static void two_errors_as_designed(void **state)
{
    (void)state;
    DltMark key = {"configs/gpt2.yaml", 21, 9, 5, "        hiden: 3072"};
    DltMark value = {"configs/gpt2.yaml", 34, 11, 7, "      lr: -0.0003"};
    DltStatus status = dlt_err_at(&err, DLT_E_CONFIG, key, "unknown key '%s'", "hiden");
    assert_int_equal(status, DLT_E_CONFIG);
    dlt_err_at(&err, DLT_E_CONFIG, value, "-0.0003 is out of range (0, 10]");
    assert_string_equal(print(), "configs/gpt2.yaml:21:9: error: unknown key 'hiden'\n"
                                 "   21 |         hiden: 3072\n"
                                 "      |         ^~~~~\n"
                                 "configs/gpt2.yaml:34:11: error: -0.0003 is out of range (0, 10]\n"
                                 "   34 |       lr: -0.0003\n"
                                 "      |           ^~~~~~~\n"
                                 "2 errors; nothing was allocated\n");
}

static void places_of_every_kind(void **state)
{
    (void)state;
    dlt_err(&err, DLT_E_DEVICE, "no card");
    dlt_err_at(&err, DLT_E_DATA, (DltMark){.file = "x.bin"}, "cut off");
    dlt_err_note(&err, (DltMark){"c.yaml", 2, 1, 1, NULL}, "named here");
    assert_int_equal(dlt_err_status(&err), DLT_E_DEVICE);
    assert_string_equal(print(),
                        "error: no card\nx.bin: error: cut off\nc.yaml:2:1: note: named here\n");
}

/* The caret stands under the character, whatever the line holds before it. */
static void carets_respect_tabs_and_utf8(void **state)
{
    (void)state;
    dlt_err_at(&err, DLT_E_CONFIG, (DltMark){"c", 1, 5, 2, "\tä\tbcd"}, "x");
    dlt_err_at(&err, DLT_E_DATA, (DltMark){"c", 2, 9, 1, "short"}, "y");
    assert_string_equal(print(), "c:1:5: error: x\n    1 | \tä\tbcd\n      | \t \t ^~\n"
                                 "c:2:9: error: y\n    2 | short\n      |      ^\n");
}

static void long_lines_are_cut_around_the_caret(void **state)
{
    (void)state;
    char line[1001];
    memset(line, 'a', 1000);
    line[1000] = '\0';
    line[699] = 'B';
    dlt_err_at(&err, DLT_E_CONFIG, (DltMark){"c", 1, 700, 1, line}, "x");
    const char *text = print(), *source = strstr(text, "    1 | "),
               *caret = strstr(text, "      | ");
    assert_non_null(source);
    assert_non_null(caret);
    assert_true(caret - source < 200);
    assert_int_equal(source[strcspn(caret, "^")], 'B');
}

static void user_bytes_cannot_drive_the_terminal(void **state)
{
    (void)state;
    dlt_err_at(&err, DLT_E_CONFIG, (DltMark){"a\x1b[31m", 1, 1, 1, "\x1b]0;x\x07"},
               "'\x1b[2J' \xc2\x9b \xff \xc3( \xe4 ä \xe2\x82\xac");
    assert_string_equal(print(), "a?[31m:1:1: error: '?[2J' ?? ? ?( ? ä \xe2\x82\xac\n"
                                 "    1 | ?]0;x?\n      | ^\n");
}

static void further_reports_are_counted(void **state)
{
    (void)state;
    for (int i = 0; i < DLT_ERR_MAX + 5; i++) {
        dlt_err(&err, DLT_E_CONFIG, "number %d", i);
        if (i > DLT_ERR_MAX) dlt_err_note(&err, DLT_NO_MARK, "about %d", i);
    }
    assert_int_equal(err.n, DLT_ERR_MAX);
    assert_int_equal(err.n_dropped, 5);
    assert_non_null(strstr(
        print(), "error: number 19\n25 errors, the first 20 shown; nothing was allocated\n"));
}

static void long_texts_end_in_dots(void **state)
{
    (void)state;
    dlt_err(&err, DLT_E_DATA, "%*d", 5000, 1);
    assert_int_equal(strlen(err.report[0].text), DLT_ERR_TEXT - 1);
    assert_string_equal(err.report[0].text + DLT_ERR_TEXT - 4, "...");
    assert_int_equal(dlt_err(NULL, DLT_E_DATA, "nobody listens"), DLT_E_DATA);
    dlt_err_init(&err);
    assert_int_equal(dlt_err_status(&err), DLT_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(two_errors_as_designed, start),
        cmocka_unit_test_setup(places_of_every_kind, start),
        cmocka_unit_test_setup(carets_respect_tabs_and_utf8, start),
        cmocka_unit_test_setup(long_lines_are_cut_around_the_caret, start),
        cmocka_unit_test_setup(user_bytes_cannot_drive_the_terminal, start),
        cmocka_unit_test_setup(further_reports_are_counted, start),
        cmocka_unit_test_setup(long_texts_end_in_dots, start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
