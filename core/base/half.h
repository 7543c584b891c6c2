/* 16- and 8-bit floats as bit patterns, round to nearest even. */
#ifndef DLT_HALF_H
#define DLT_HALF_H
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
uint16_t dlt_bf16_from(float x);
float dlt_bf16_to(uint16_t h);
uint16_t dlt_f16_from(float x); /* overflow gives infinity, subnormals kept */
float dlt_f16_to(uint16_t h);
uint8_t dlt_f8e4m3_from(float x); /* saturates at 448, infinity too; NaN kept */
float dlt_f8e4m3_to(uint8_t h);
uint8_t dlt_f8e5m2_from(float x); /* saturates at 57344, infinity too; NaN kept */
float dlt_f8e5m2_to(uint8_t h);
#ifdef __cplusplus
}
#endif

#endif
