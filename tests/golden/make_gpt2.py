#!/usr/bin/env python3
"""Writes tests/golden/gpt2/: parts of GPT-2's encoder.json and vocab.bpe, and texts with their ids.

The ids come from the algorithm of openai/gpt-2, src/encoder.py, over the whole published files; the
parts hold all single bytes and every token that a merge of these texts makes, with the published ids.
Files: MIT licence, Copyright 2019 OpenAI. Needs the Python package regex.
usage: make_gpt2.py FOLDER_WITH_THE_TWO_FILES
"""
import json
import sys
import regex

TEXTS = [
    "Hello world",
    "Hello, world!  It's 2024, isn't it?\n\n  They'll've 'd 're\tTab  end ",
    "naïve café über 日本語 русский ελληνικά १२३ Ⅷ½ emoji 😀👍🏽 ﷽",
    "a\u00a0b\u2003\u2003c\u3000\u0085d\r\n\r\n e",
    "<|endoftext|> 'S 'T I'M don’t",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "First Citizen:\nBefore we proceed any further, hear me speak.\n\nAll:\nSpeak, speak.\n",
    "    indented code() { return x_1 += 42; }  // ok\n",
    "".join(chr(c) for c in range(256)),
]


def bytes_to_unicode():
    bs = list(range(33, 127)) + list(range(0xA1, 0xAD)) + list(range(0xAE, 0x100))
    cs, n = bs[:], 0
    for b in range(256):
        if b not in bs:
            bs.append(b)
            cs.append(256 + n)
            n += 1
    return dict(zip(bs, map(chr, cs)))


ALPHABET = bytes_to_unicode()
PATTERN = regex.compile(
    r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+""")


def bpe(word, ranks, used):
    word = list(word)
    while len(word) > 1:
        pair = min(zip(word, word[1:]), key=lambda p: ranks.get(p, 1 << 30))
        if pair not in ranks:
            break
        used.add(pair)
        out, i = [], 0
        while i < len(word):
            if i + 1 < len(word) and (word[i], word[i + 1]) == pair:
                out.append(word[i] + word[i + 1])
                i += 2
            else:
                out.append(word[i])
                i += 1
        word = out
    return word


def encode(text, encoder, ranks, used):
    ids = []
    for piece in PATTERN.findall(text):
        piece = "".join(ALPHABET[b] for b in piece.encode("utf-8"))
        ids += [encoder[t] for t in bpe(piece, ranks, used)]
    return ids


def main():
    folder = sys.argv[1]
    encoder = json.load(open(folder + "/encoder.json", encoding="utf-8"))
    lines = open(folder + "/vocab.bpe", encoding="utf-8").read().split("\n")[1:-1]
    ranks = {tuple(line.split()): i for i, line in enumerate(lines)}
    used, cases = set(), []
    for text in TEXTS:
        ids = encode(text, encoder, ranks, used)
        cases.append({"hex": text.encode("utf-8").hex(), "ids": ids})
    if len(sys.argv) > 2:  # the ids of a whole file, for a check by hand
        print(*encode(open(sys.argv[2], encoding="utf-8").read(), encoder, ranks, set()))
        return
    merges = [line for line in lines if tuple(line.split()) in used]
    tokens = set(ALPHABET.values()) | {line.replace(" ", "") for line in merges} | {"<|endoftext|>"}
    part = {t: i for t, i in encoder.items() if t in tokens}
    out = "tests/golden/gpt2/"
    json.dump(part, open(out + "encoder.json", "w"), indent=0)
    open(out + "vocab.bpe", "w", encoding="utf-8").write("#version: 0.2\n" + "\n".join(merges) + "\n")
    with open(out + "ids.txt", "w") as f:
        f.write("# text as hex, then its ids; made by tests/golden/make_gpt2.py\n")
        for c in cases:
            f.write(c["hex"] + " " + " ".join(map(str, c["ids"])) + "\n")


main()
