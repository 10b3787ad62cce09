/* Reads tests/data/order_vectors.txt: a row is the name of its kind and values between blanks. For
 * tests, which run in the root of the tree; whatever is wrong with the file ends the test. */
#ifndef TESTS_LIB_VECTORS_H
#define TESTS_LIB_VECTORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { VECTORS_WORDS_MAX = 32 };

struct vectors {
    FILE *file;
    char *line;
    size_t line_capacity;
    uint32_t line_number;
    uint32_t word_count;                  /* with the kind */
    const char *words[VECTORS_WORDS_MAX]; /* words[0] is the kind; borrowed until the next row */
};

void vectors_open(struct vectors *vectors);
bool vectors_next(struct vectors *vectors); /* the next row of any kind; false at the end */
/* The next row of the kind, with so many values behind its name; false at the end. */
bool vectors_next_of(struct vectors *vectors, const char *kind, uint32_t value_count);
void vectors_close(struct vectors *vectors);

/* Word i as what it stands for. */
uint64_t vectors_u64(const struct vectors *vectors, uint32_t i);
uint32_t vectors_u32(const struct vectors *vectors, uint32_t i);
int64_t vectors_i64(const struct vectors *vectors, uint32_t i);
double vectors_double(const struct vectors *vectors, uint32_t i); /* 16 hexadecimal digits */
/* Hexadecimal digits as bytes; returned owned (free), with a 0 behind them. */
char *vectors_bytes(const struct vectors *vectors, uint32_t i, size_t *ret_bytes);
/* 32 hexadecimal digits. */
void vectors_id(const struct vectors *vectors, uint32_t i, uint64_t *ret_high, uint64_t *ret_low);

#endif
