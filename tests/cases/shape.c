/* Ops that move data, embedding and dropout. */
#include "cases.h"
#include "ops/dropout.h"
#include "ops/shape_ops.h"
#include "ops/step.h"

#define PERM(...) ATTR(DltTranspose, .perm = {__VA_ARGS__})

static const Case rows[] = {
    {OP(reshape), .why = "split", .in = {X(4, 6)}, ATTR(DltReshape, {3, {2, 3, 4}})},
    {OP(concat), .why = "last axis", .in = {X(3, 5), X(3, 2)}, ATTR(DltConcat, 1)},
    {OP(concat), .why = "first axis", .in = {X(1, 5), X(3, 5), X(2, 5)}, ATTR(DltConcat, 0)},
    {OP(concat), .why = "channels", .in = {X(2, 3, 2, 2), X(2, 5, 2, 2)}, ATTR(DltConcat, 1)},
    {OP(concat), .why = "eight inputs",
     .in = {X(2, 1), X(2, 2), X(2, 3), X(2, 1), X(2, 1), X(2, 4), X(2, 1), X(2, 2)},
     ATTR(DltConcat, 1)},
    {OP(slice), .why = "middle of the last axis", .in = {X(3, 9)}, ATTR(DltSlice, 1, 2, 5, 9)},
    {OP(slice), .why = "first rows", .in = {X(5, 3)}, ATTR(DltSlice, 0, 0, 2, 5)},
    {OP(slice), .why = "last channel", .in = {X(2, 3, 2, 2)}, ATTR(DltSlice, 1, 2, 1, 3)},
    {OP(slice), .why = "everything", .in = {X(3, 4)}, ATTR(DltSlice, 1, 0, 4, 4)},
    {OP(transpose), .why = "matrix", .in = {X(5, 7)}, PERM(1, 0)},
    {OP(transpose), .why = "heads", .in = {X(2, 5, 3, 4)}, PERM(0, 2, 1, 3)},
    {OP(transpose), .why = "cycle", .in = {X(2, 3, 4)}, PERM(2, 0, 1)},
    {OP(transpose), .why = "identity", .in = {X(2, 1, 3)}, PERM(0, 1, 2)},
    {OP(transpose), .why = "six axes", .in = {X(2, 1, 3, 2, 1, 2)}, PERM(5, 3, 1, 0, 4, 2)},
    {OP(expand), .why = "samples", .in = {X(1, 3, 5)}, ATTR(DltReshape, {3, {4, 3, 5}})},
    {OP(expand), .why = "last axis", .in = {X(3, 1)}, ATTR(DltReshape, {2, {3, 7}})},
    {OP(expand), .why = "outer and inner", .in = {X(1, 3, 1, 2)},
     ATTR(DltReshape, {4, {2, 3, 5, 2}})},
    {OP(embedding_fwd), .why = "repeated ids", .in = {C_BELOW(7, ID, 3, 5), W(7, 33)},
     ATTR(DltEmbedding, 7)},
    {OP(embedding_fwd), .why = "many ids, few words", .in = {C_BELOW(5, ID, 3, 211), W(5, 40)},
     ATTR(DltEmbedding, 5)},
    {OP(embedding_fwd), .why = "many ids, odd width", .in = {C_BELOW(300, ID, 2, 150), W(300, 33)},
     ATTR(DltEmbedding, 300)},
    {OP(embedding_bwd), .why = "many ids, another gradient", .forward_only = true,
     .in = {X(260, 24), C_BELOW(40, ID, 260), C(NORMAL, 40, 24)}, ATTR(DltEmbedding, 40)},
    {OP(embedding_bwd), .why = "another gradient", .forward_only = true,
     .in = {X(9, 5), C_BELOW(7, ID, 9), C(NORMAL, 7, 5)}, ATTR(DltEmbedding, 7)},
    {OP(embedding_fwd), .why = "more words than ids", .in = {C_BELOW(50, ID, 4), W(50, 1)},
     ATTR(DltEmbedding, 50)},
    {OP(dropout), .why = "p 0.25", .in = {X(5, 37), CASE_STEP}, ATTR(DltDropout, 0.25F, 3)},
    {OP(dropout), .why = "p 0.9 of an image", .in = {X(2, 3, 5, 5), CASE_STEP},
     ATTR(DltDropout, 0.9F, 0)},
};
CASE_LIST(shape);
