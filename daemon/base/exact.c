/* Elementary functions with the same bits everywhere: see exact.h, whose steps this file follows to
 * the letter. They are frozen: another order of operations is another function. */
#include "base/exact.h"

#include <string.h>

static const double LN2_HIGH = 0x1.62e42feep-1;
static const double LN2_LOW = 0x1.a39ef35793c76p-33;

static double from_bits(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint64_t to_bits(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

double exact_exp(double x)
{
    static const double inverse_factorial[14] = {1.0,
                                                 1.0,
                                                 1.0 / 2,
                                                 1.0 / 6,
                                                 1.0 / 24,
                                                 1.0 / 120,
                                                 1.0 / 720,
                                                 1.0 / 5040,
                                                 1.0 / 40320,
                                                 1.0 / 362880,
                                                 1.0 / 3628800,
                                                 1.0 / 39916800,
                                                 1.0 / 479001600,
                                                 1.0 / 6227020800.0};
    if (!(x == x))
        return x;
    if (x < -700)
        x = -700;
    if (x > 700)
        x = 700;
    double t = x * 0x1.71547652b82fep+0 + 0.5;
    int32_t k = (int32_t)t;
    if ((double)k > t)
        k--;
    double r = (x - (double)k * LN2_HIGH) - (double)k * LN2_LOW;
    double p = inverse_factorial[13];
    for (int n = 12; n >= 0; n--)
        p = p * r + inverse_factorial[n];
    return p * from_bits((uint64_t)(k + 1023) << 52);
}

double exact_log(double x)
{
    if (!(x == x))
        return x;
    if (x < 0x1p-1022)
        return from_bits((uint64_t)0xFFF << 52);
    uint64_t bits = to_bits(x);
    int32_t e = (int32_t)(bits >> 52) - 1023;
    if (e == 1024)
        return x;
    double m = from_bits((bits & 0xFFFFFFFFFFFFFu) | (uint64_t)1023 << 52);
    if (m > 0x1.6a09e667f3bcdp+0) {
        m = m / 2;
        e++;
    }
    double s = (m - 1) / (m + 1);
    double z = s * s;
    double q = 1.0 / 23;
    for (int n = 21; n >= 3; n -= 2)
        q = q * z + 1.0 / n;
    double t = 2 * s;
    return (double)e * LN2_HIGH + ((double)e * LN2_LOW + (t + t * (z * q)));
}

double exact_sqrt(double x)
{
    if (!(x >= 0x1p-1022) || x > 0x1.fffffffffffffp+1023)
        return 0;
    uint64_t bits = to_bits(x);
    int32_t e = (int32_t)(bits >> 52) - 1023;
    uint64_t m = (bits & 0xFFFFFFFFFFFFFu) | (uint64_t)1 << 52;
    if (e & 1) {
        m *= 2;
        e--;
    }
    /* The root of m * 2^54, digit by digit: 54 bits, one more than a double holds. A half never
     * occurs exactly, because the square of 54 bits with the last one set has that bit set too. */
    uint64_t root = 0, rest = 0;
    for (int step = 0; step < 54; step++) {
        rest = rest << 2 | (m >> 52 & 3);
        m <<= 2;
        uint64_t trial = root << 2 | 1;
        root <<= 1;
        if (rest >= trial) {
            rest -= trial;
            root |= 1;
        }
    }
    root = (root >> 1) + (root & 1);
    return (double)root * from_bits((uint64_t)(e / 2 - 52 + 1023) << 52);
}

int64_t exact_round(double x)
{
    if (!(x == x))
        return 0;
    if (x >= 0x1p52)
        return (int64_t)1 << 52;
    if (x <= -0x1p52)
        return -((int64_t)1 << 52);
    int64_t whole = (int64_t)x; /* towards 0 */
    double part = x - (double)whole;
    if (part > 0.5 || (part == 0.5 && (whole & 1)))
        whole++;
    if (part < -0.5 || (part == -0.5 && (whole & 1)))
        whole--;
    return whole;
}
