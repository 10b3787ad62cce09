/* Seeded pseudo-random numbers for tests: the same on every machine. */
#ifndef SPDL_TESTS_CHANCE_H
#define SPDL_TESTS_CHANCE_H

#include <stdint.h>

/* The next 31 bits; *state is the seed at first. */
static inline int chance_next(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (int)((z ^ (z >> 31)) >> 33);
}

/* 0 … below - 1. */
static inline int chance_below(uint64_t *state, int below)
{
    return chance_next(state) % below;
}

#endif
