/* Operands of products on matrix tiles, packed in units of 32 rows (A) or columns (B) by 32 terms of bf16: two tiles. */
#ifndef DLT_OPERAND_H
#define DLT_OPERAND_H

#include "cpu/dnnl/amx.h"

enum { DLT_OPERAND_UNIT = 2 * DLT_AMX_TILE /* elements of a packed unit */ };

/* An operand of sums over k: its rows (A) or columns (B) and its terms. */
typedef struct DltOperand {
    const uint16_t *x;
    int64_t
        row; /* in memory, from one row or column to the next (along), or from one term to the next */
    int64_t size, k; /* rows or columns, and terms */
    bool along;      /* terms are neighbours in memory */
    bool is_a;
} DltOperand;

/* The unit from row or column `at` and term `k` on, zeros for what is missing. */
void dlt_operand_pack(const DltOperand *o, int64_t at, int64_t k, uint16_t *out);
/* Asks the caches for what that unit will be made of. */
void dlt_operand_ask(const DltOperand *o, int64_t at, int64_t k);

#endif
