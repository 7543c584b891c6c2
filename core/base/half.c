/* Small floats by one rounding and one widening function over a table row of each format: OCP 8-bit
 * formats (E4M3, E5M2), IEEE binary16; bf16 is the upper half of a float. Round to nearest even.
 * The 8-bit formats saturate as PTX cvt.rn.satfinite does, infinity included. */
#include "base/half.h"
#include <math.h>
#include <stdbool.h>
#include <string.h>

typedef struct Format {
    int man_bits, bias;
    uint32_t sign;     /* the sign's bit */
    uint32_t max;      /* pattern of the largest finite number */
    uint32_t overflow; /* pattern for what rounds beyond it */
    uint32_t nan;
    bool has_inf; /* the pattern behind max is infinity */
} Format;

static const Format f16 = {10, 15, 0x8000, 0x7BFF, 0x7C00, 0x7E00, true};
static const Format e4m3 = {3, 7, 0x80, 0x7E, 0x7E, 0x7F, false};
static const Format e5m2 = {2, 15, 0x80, 0x7B, 0x7B, 0x7F, true};

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* x / 2^shift to nearest even, 1 <= shift <= 31. */
static uint32_t shift_round(uint32_t x, int shift)
{
    return (x + (1u << (shift - 1)) - 1 + (x >> shift & 1)) >> shift;
}

static uint32_t narrow(const Format *f, float x)
{
    uint32_t bits = bits_of(x), magnitude = bits & 0x7FFFFFFFu;
    uint32_t sign = bits >> 31 != 0 ? f->sign : 0;
    if (magnitude > 0x7F800000u) return sign | f->nan;
    int lost = 23 - f->man_bits;                        /* mantissa bits that go */
    int below = 128 - f->bias - (int)(magnitude >> 23); /* > 0: subnormal, by so many binades */
    uint32_t rounded;
    if (below <= 0) {
        rounded = shift_round(magnitude - ((uint32_t)(127 - f->bias) << 23), lost);
    } else if (lost + below <= 24) {
        rounded = shift_round((magnitude & 0x7FFFFFu) | 0x800000u, lost + below);
    } else {
        rounded = 0;
    }
    return sign | (rounded > f->max ? f->overflow : rounded);
}

static float widen(const Format *f, uint32_t h)
{
    uint32_t sign = (h & f->sign) != 0 ? 0x80000000u : 0;
    uint32_t magnitude = h & (f->sign - 1);
    if (magnitude > f->max) {
        bool inf = f->has_inf && magnitude == f->max + 1;
        return float_of(sign | (inf ? 0x7F800000u : 0x7FC00000u));
    }
    if (magnitude >> f->man_bits == 0) {
        float value = ldexpf((float)magnitude, 1 - f->bias - f->man_bits);
        return sign != 0 ? -value : value;
    }
    uint32_t exponent_shift = (uint32_t)(127 - f->bias) << 23;
    return float_of(sign | ((magnitude << (23 - f->man_bits)) + exponent_shift));
}

uint16_t dlt_bf16_from(float x)
{
    uint32_t bits = bits_of(x);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

float dlt_bf16_to(uint16_t h)
{
    return float_of((uint32_t)h << 16);
}

uint16_t dlt_f16_from(float x)
{
    return (uint16_t)narrow(&f16, x);
}

float dlt_f16_to(uint16_t h)
{
    return widen(&f16, h);
}

uint8_t dlt_f8e4m3_from(float x)
{
    return (uint8_t)narrow(&e4m3, x);
}

float dlt_f8e4m3_to(uint8_t h)
{
    return widen(&e4m3, h);
}

uint8_t dlt_f8e5m2_from(float x)
{
    return (uint8_t)narrow(&e5m2, x);
}

float dlt_f8e5m2_to(uint8_t h)
{
    return widen(&e5m2, h);
}
