/* Exponential, logarithm, square root and rounding with the same bits on every CPU and every C
 * library: decisions (which crop a sample shows) hang on them. Only IEEE double operations + - * /
 * in the order written here, each rounded to nearest even, never fused (-ffp-contract=off). Within
 * 2 units in the last place of the true value. Pure, any thread. */
#ifndef SPDLD_BASE_EXACT_H
#define SPDLD_BASE_EXACT_H

#include <stdint.h>

/* e to the power x. Every step is one double operation:
 *   1. x below -700 counts as -700, above 700 as 700; not-a-number is given back.
 *   2. k = floor(x * INV_LN2 + 0.5), with INV_LN2 = 0x1.71547652b82fep+0.
 *   3. r = (x - k * LN2_HIGH) - k * LN2_LOW, with LN2_HIGH = 0x1.62e42feep-1 (so that the product
 * is exact) and LN2_LOW = 0x1.a39ef35793c76p-33.
 *   4. p = 1 / 13!; then for n = 12, 11, … 0: p = p * r + 1 / n!, where 1 / n! is the double
 * quotient of 1 by the exact factorial.
 *   5. The result is p * 2^k (exact). */
double exact_exp(double x);

/* Natural logarithm of a normal positive x; 0 and below give -infinity, not-a-number itself, and
 * infinity itself. Subnormal x counts as 0. Every step is one double operation:
 *   1. x = m * 2^e with 1 <= m < 2; if m > 0x1.6a09e667f3bcdp+0 (the root of 2): m = m / 2, e = e
 * + 1.
 *   2. s = (m - 1) / (m + 1); z = s * s.
 *   3. q = 1 / 23 (double quotient); then for n = 21, 19, … 3: q = q * z + 1 / n.
 *   4. t = 2 * s; the result is e * LN2_HIGH + (e * LN2_LOW + (t + t * (z * q))). */
double exact_log(double x);

/* Square root of x, correctly rounded to nearest even as IEEE 754 demands (Python's math.sqrt). x
 * must be 0, or normal, positive and finite; all else gives 0. */
double exact_sqrt(double x);

/* Nearest integer, halves to the even one: Python's round(). Clipped to +-2^52; not-a-number gives
 * 0. */
int64_t exact_round(double x);

#endif
