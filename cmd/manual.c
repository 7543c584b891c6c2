/* `dltrain explain --man` and `--bash`: the manual page and the shell's completion. */
#include "cmd/manual.h"

#include "config/types.h"

const DltField *dlt_section_fields(const char *name)
{
    for (const DltSection *s = dlt_sections; s->name; s++)
        if (strcmp(s->name, name) == 0) return s->fields;
    return NULL;
}

/* ---- man ----------------------------------------------------------------------------------- */

/* Text in which troff sees no commands: backslashes and dashes escaped, a first dot or quote hidden. */
static void roff(const char *text)
{
    if (*text == '.' || *text == '\'') fputs("\\&", stdout);
    for (const char *c = text; *c; c++) {
        if (*c == '\\')
            fputs("\\e", stdout);
        else if (*c == '-')
            fputs("\\-", stdout);
        else
            putchar(*c);
    }
}

static void item(const char *bold, const char *plain)
{
    fputs(".TP\n\\fB", stdout);
    roff(bold);
    fputs("\\fR ", stdout);
    roff(plain ? plain : "");
    putchar('\n');
}

static void line(const char *text)
{
    roff(text && text[0] ? text : "\\ ");
    putchar('\n');
}

static void table(const DltField *fields)
{
    for (const DltField *f = fields; f && f->key; f++) {
        char expects[DLT_EXPECTS_TEXT], range[DLT_RANGE_TEXT], text[DLT_EXPECTS_TEXT + 256];
        dlt_field_range(f, range);
        snprintf(text, sizeof text, "%s%s%s%s%s", dlt_field_expects(f, expects),
                 range[0] ? ", " : "", range, f->def ? ", default " : "", f->def ? f->def : "");
        item(f->key, text);
        if (f->required) fputs("Required. ", stdout);
        line(f->help);
    }
}

static void heading(const char *macro, const char *text)
{
    printf(".%s \"", macro);
    roff(text);
    puts("\"");
}

static void man_commands(void)
{
    heading("SH", "COMMANDS");
    for (int i = 0; dlt_commands[i]; i++) {
        item(dlt_commands[i]->name, dlt_commands[i]->words);
        line(dlt_commands[i]->help);
        fputs(".br\nOptions:", stdout);
        for (const DltField *f = dlt_options; f->key; f++) {
            char name[64];
            if (dlt_command_takes(dlt_commands[i], f->key)) {
                putchar(' ');
                roff(dlt_option_name(f, name));
            }
        }
        putchar('\n');
    }
    heading("SH", "OPTIONS");
    for (const DltField *f = dlt_options; f->key; f++) {
        char name[64];
        item(dlt_option_name(f, name), f->unit);
        line(f->help);
    }
}

static void man_config(void)
{
    heading("SH", "CONFIG");
    line("One YAML file is one run. Its keys, section by section:");
    for (const DltSection *s = dlt_sections; s->name; s++) {
        heading("SS", s->name);
        line(s->help);
        table(s->fields);
    }
    for (int k = 0; k < DLT_N_REGISTRY; k++) {
        DltRegistryRow row;
        char title[128];
        snprintf(title, sizeof title, "%s (%s)", dlt_registries[k].path, dlt_registries[k].plural);
        heading("SH", title);
        for (int i = 0; dlt_registries[k].row(i, &row); i++) {
            heading("SS", row.name);
            line(row.help);
            table(row.fields);
        }
    }
}

DltStatus dlt_manual_man(const DltArgs *args, DltErr *err)
{
    (void)args, (void)err;
    printf(".TH DLTRAIN 1 \"\" \"dltrain %s\"\n", dlt_version());
    puts(".SH NAME\ndltrain \\- train neural networks from one YAML file");
    puts(".SH SYNOPSIS\n\\fBdltrain\\fR \\fICOMMAND\\fR [\\fIoptions\\fR] [\\fIkey=value\\fR...]");
    heading("SH", "DESCRIPTION");
    line("Checks a config, plans memory, trains on the CPU or an NVIDIA GPU, evaluates, and writes "
         "checkpoints that hold everything a run needs to go on or to be evaluated from the one "
         "file. Words of the form path=value after the config override its keys; the end of a path "
         "is enough where it is unambiguous (lr=3e-4).");
    man_commands();
    man_config();
    heading("SH", "EXIT STATUS");
    for (const DltExitCode *e = dlt_exit_codes; e->text; e++) {
        item(e->code, "");
        line(e->text);
    }
    return DLT_OK;
}

/* ---- bash ---------------------------------------------------------------------------------- */

static void keys_of(const char *path, const DltField *fields)
{
    for (const DltField *f = fields; f && f->key; f++)
        printf(" %s%s%s", path, path[0] ? "." : "", f->key);
}

/* Paths that may stand before '='. Layers and blocks are lists, so their keys have no fixed path. */
static void all_keys(void)
{
    static const int with_path[] = {DLT_REG_LOSS, DLT_REG_OPTIM};
    for (const DltSection *s = dlt_sections; s->name; s++)
        if (!strstr(s->name, "NAME") && !strstr(s->name, "model"))
            keys_of(s->fields == dlt_section_fields("config") ? "" : s->name, s->fields);
    for (size_t k = 0; k < sizeof with_path / sizeof with_path[0]; k++) {
        const DltRegistry *reg = &dlt_registries[with_path[k]];
        DltRegistryRow row;
        for (int i = 0; reg->row(i, &row); i++) {
            char path[128];
            snprintf(path, sizeof path, "%s.%s", reg->path, row.name);
            keys_of(path, row.fields);
        }
    }
}

static void all_names(void)
{
    DltRegistryRow row;
    for (const DltSection *s = dlt_sections; s->name; s++)
        printf(" %s", s->name);
    for (int k = 0; k < DLT_N_REGISTRY; k++)
        for (int i = 0; dlt_registries[k].row(i, &row); i++)
            printf(" %s", row.name);
}

DltStatus dlt_manual_bash(const DltArgs *args, DltErr *err)
{
    (void)args, (void)err;
    puts("# bash completion of dltrain\n_dltrain()\n{\n"
         "    local cur=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]} options=\n"
         "    COMPREPLY=()\n    case $command in");
    for (int i = 0; dlt_commands[i]; i++) {
        printf("    %s) options='", dlt_commands[i]->name);
        for (const DltField *f = dlt_options; f->key; f++) {
            char name[64];
            if (dlt_command_takes(dlt_commands[i], f->key)) printf(" %s", dlt_option_name(f, name));
        }
        puts("' ;;");
    }
    puts("    esac\n    if [ \"$COMP_CWORD\" -eq 1 ]; then");
    fputs("        COMPREPLY=($(compgen -W '", stdout);
    for (int i = 0; dlt_commands[i]; i++)
        printf(" %s", dlt_commands[i]->name);
    puts("' -- \"$cur\"))\n    elif [[ $cur == -* ]]; then\n"
         "        COMPREPLY=($(compgen -W \"$options\" -- \"$cur\"))\n"
         "    elif [ \"$command\" = explain ]; then");
    fputs("        COMPREPLY=($(compgen -W '", stdout);
    all_names();
    puts("' -- \"$cur\"))\n    else\n        COMPREPLY=($(compgen -f -- \"$cur\"))\n"
         "        if [ \"$COMP_CWORD\" -gt 2 ]; then");
    fputs("            COMPREPLY+=($(compgen -S = -W '", stdout);
    all_keys();
    puts("' -- \"$cur\"))\n            compopt -o nospace 2>/dev/null\n        fi\n    fi\n}\n"
         "complete -F _dltrain dltrain");
    return DLT_OK;
}
