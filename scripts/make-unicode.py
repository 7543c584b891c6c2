#!/usr/bin/python3
"""Writes datasets/unicode_tables.h: ranges of letters (L*), numbers (N*) and white space.

The data are those of the Unicode Character Database as Python's unicodedata module carries them;
white space is the property White_Space, which the module does not have: the list is PropList.txt's.
usage: scripts/make-unicode.py > datasets/unicode_tables.h
"""
import unicodedata

SPACE = [(0x09, 0x0D), (0x20, 0x20), (0x85, 0x85), (0xA0, 0xA0), (0x1680, 0x1680),
         (0x2000, 0x200A), (0x2028, 0x2029), (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000)]


def ranges(first):
    out = []
    for c in range(0x110000):
        if unicodedata.category(chr(c))[0] != first:
            continue
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def table(name, rows):
    print("static const DltCodeRange %s[] = {" % name)
    line = "   "
    for a, b in rows:
        item = " {0x%X, 0x%X}," % (a, b)
        if len(line) + len(item) > 99:
            print(line)
            line = "   "
        line += item
    print(line.rstrip(",") + "};\n" if line.strip() else "};\n")


print("""/* Code points of letters, numbers and white space, as ranges in order: Unicode %s.
 * Made by scripts/make-unicode.py; do not edit. Data: Unicode Character Database, Copyright 1991-2021
 * Unicode, Inc., used under the Unicode License (https://www.unicode.org/license.txt). */
#ifndef DLT_UNICODE_TABLES_H
#define DLT_UNICODE_TABLES_H

#include <stdint.h>

typedef struct DltCodeRange {
    uint32_t first, last;
} DltCodeRange;

/* clang-format off */""" % unicodedata.unidata_version)
table("dlt_letter_ranges", ranges("L"))
table("dlt_number_ranges", ranges("N"))
table("dlt_space_ranges", SPACE)
print("/* clang-format on */\n\n#endif")
