/* Rows of test vectors: see vectors.h. */
#include "tests/lib/vectors.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char vectors_path[] = "tests/data/order_vectors.txt";

static _Noreturn void vectors_fail(const struct vectors *vectors, const char *what)
{
    fprintf(stderr, "%s:%" PRIu32 ": %s\n", vectors_path, vectors->line_number, what);
    exit(1);
}

void vectors_open(struct vectors *vectors)
{
    *vectors = (struct vectors){.file = fopen(vectors_path, "re")};
    if (!vectors->file)
        vectors_fail(vectors, "cannot be opened: tests run in the root of the tree");
}

bool vectors_next(struct vectors *vectors)
{
    ssize_t bytes;
    do {
        bytes = getline(&vectors->line, &vectors->line_capacity, vectors->file);
        vectors->line_number++;
    } while (bytes > 0 && vectors->line[0] == '#');
    if (bytes <= 0)
        return false;
    if (vectors->line[bytes - 1] != '\n')
        vectors_fail(vectors, "the last line is cut");
    vectors->line[bytes - 1] = '\0';
    vectors->word_count = 0;
    for (char *at = vectors->line; at;) {
        if (vectors->word_count == VECTORS_WORDS_MAX)
            vectors_fail(vectors, "too many words");
        char *blank = strchr(at, ' ');
        if (blank)
            *blank++ = '\0';
        vectors->words[vectors->word_count++] = at;
        at = blank;
    }
    return true;
}

bool vectors_next_of(struct vectors *vectors, const char *kind, uint32_t value_count)
{
    while (vectors_next(vectors)) {
        if (strcmp(vectors->words[0], kind) != 0)
            continue;
        if (vectors->word_count != value_count + 1)
            vectors_fail(vectors, "another number of values than the test expects");
        return true;
    }
    return false;
}

void vectors_close(struct vectors *vectors)
{
    free(vectors->line);
    fclose(vectors->file);
}

static const char *vectors_word(const struct vectors *vectors, uint32_t i)
{
    if (i >= vectors->word_count)
        vectors_fail(vectors, "a value is missing");
    return vectors->words[i];
}

uint64_t vectors_u64(const struct vectors *vectors, uint32_t i)
{
    const char *word = vectors_word(vectors, i);
    char *end;
    errno = 0;
    uint64_t value = strtoull(word, &end, 10);
    if (errno != 0 || end == word || *end != '\0' || *word == '-')
        vectors_fail(vectors, "no number");
    return value;
}

uint32_t vectors_u32(const struct vectors *vectors, uint32_t i)
{
    uint64_t value = vectors_u64(vectors, i);
    if (value > UINT32_MAX)
        vectors_fail(vectors, "a number is too large");
    return (uint32_t)value;
}

int64_t vectors_i64(const struct vectors *vectors, uint32_t i)
{
    const char *word = vectors_word(vectors, i);
    char *end;
    errno = 0;
    int64_t value = strtoll(word, &end, 10);
    if (errno != 0 || end == word || *end != '\0')
        vectors_fail(vectors, "no number");
    return value;
}

static uint64_t vectors_digits(const struct vectors *vectors, const char *word)
{
    uint64_t value = 0;
    for (size_t i = 0; i < 16; i++) {
        const char *digit = word[i] != '\0' ? strchr("0123456789abcdef", word[i]) : NULL;
        if (!digit)
            vectors_fail(vectors, "16 hexadecimal digits were expected");
        value = value << 4 | (uint64_t)(*digit <= '9' ? *digit - '0' : *digit - 'a' + 10);
    }
    return value;
}

double vectors_double(const struct vectors *vectors, uint32_t i)
{
    uint64_t bits = vectors_digits(vectors, vectors_word(vectors, i));
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

void vectors_id(const struct vectors *vectors, uint32_t i, uint64_t *ret_high, uint64_t *ret_low)
{
    const char *word = vectors_word(vectors, i);
    *ret_high = vectors_digits(vectors, word);
    *ret_low = vectors_digits(vectors, word + 16);
}

char *vectors_bytes(const struct vectors *vectors, uint32_t i, size_t *ret_bytes)
{
    const char *word = vectors_word(vectors, i);
    size_t count = strlen(word) / 2;
    char *bytes = malloc(count + 1);
    if (!bytes)
        vectors_fail(vectors, "no memory");
    for (size_t at = 0; at < count; at++) {
        char digits[3] = {word[2 * at], word[2 * at + 1], '\0'};
        char *end;
        bytes[at] = (char)strtoul(digits, &end, 16);
        if (end != digits + 2)
            vectors_fail(vectors, "no hexadecimal digit");
    }
    bytes[count] = '\0';
    *ret_bytes = count;
    return bytes;
}
