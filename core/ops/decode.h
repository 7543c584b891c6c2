/* Attention of one new token a sample, for generation: what the tokens before it left is in a cache.
 *   attention_step: qkv f32 [B, 1, (Hq + 2 Hkv) D] laid out as in ops/attention.h, cache f32
 *     [B, T, 2 Hkv D] (mutated: a row holds the keys, then the values of a token), place i32[1]
 *     -> o f32 [B, 1, Hq D]
 *     cache[b, place] = keys and values of qkv[b]; o[b] = attention of its queries over the rows that
 *     query `place` sees, as attention_fwd says for a causal one.
 * What many tokens before it leave can be had in one pass: attention_pairs gives the rows of all L tokens of
 * a window, under the cache's name.
 * A graph is built for decoding when DltBuild.place is set: then it is [B, 1] tokens, whose position is
 * `place`, of a context of DltBuild.context tokens. */
#ifndef DLT_DECODE_H
#define DLT_DECODE_H

#include "ops/attention.h"

#define DLT_NOT_CAUSAL "%s: sees tokens behind its own (causal: false), so it cannot generate text"

/* The cache is a state of its own, not among the weights. Only causal attention can be decoded. */
DltTensor *dlt_attention_step(DltBuild *b, DltTensor *qkv, const DltAttention *attr);

/* Filling: keys and values of qkv [B, L, (Hq + 2 Hkv) D] as a state [B, L, 2 Hkv D] that has the name of the
 * cache in a graph for decoding. */
void dlt_attention_pairs(DltBuild *b, DltTensor *qkv, const DltAttention *attr);

#endif
