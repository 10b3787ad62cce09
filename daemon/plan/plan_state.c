/* States as text: "spdl1." and base64url (RFC 4648, no padding) of 64 bytes. In and out: a place in
 * a job. A state comes from a trainer's checkpoint or from its socket and is hostile until it is
 * decoded. Pure, any thread. docs/order.md has the layout. */
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>
#include <xxhash.h>

#include "plan/plan.h"

enum {
    STATE_BYTES = 64,
    STATE_CHECKED_BYTES = 60, /* before the checksum */
    STATE_PREFIX_BYTES = 6,
    STATE_BODY_CHARS = 86, /* 64 bytes are 21 groups of three and one byte */
    STATE_TEXT_CHARS = STATE_PREFIX_BYTES + STATE_BODY_CHARS
};
_Static_assert((int)STATE_TEXT_CHARS < (int)PLAN_STATE_TEXT_BYTES,
               "a state with its final 0 must fit");

static const char state_prefix[] = "spdl1.";
static const char state_alphabet[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

static void state_put(uint8_t *bytes, uint64_t value, size_t count)
{
    for (size_t i = 0; i < count; i++)
        bytes[i] = (uint8_t)(value >> (8 * i));
}

static uint64_t state_get(const uint8_t *bytes, size_t count)
{
    uint64_t value = 0;
    for (size_t i = 0; i < count; i++)
        value |= (uint64_t)bytes[i] << (8 * i);
    return value;
}

/* The 16 bytes of an id are in the order of its hexadecimal digits. */
static void state_put_reversed(uint8_t *bytes, uint64_t value)
{
    for (size_t i = 0; i < 8; i++)
        bytes[i] = (uint8_t)(value >> (56 - 8 * i));
}

static uint64_t state_get_reversed(const uint8_t *bytes)
{
    uint64_t value = 0;
    for (size_t i = 0; i < 8; i++)
        value = value << 8 | bytes[i];
    return value;
}

static uint32_t state_checksum(const uint8_t *bytes)
{
    return (uint32_t)XXH3_64bits(bytes, STATE_CHECKED_BYTES);
}

void plan_state_encode(const struct plan_state *state, char text[PLAN_STATE_TEXT_BYTES])
{
    uint8_t bytes[STATE_BYTES];
    state_put(bytes, state->format, 4);
    state_put(bytes + 4, state->decode_version, 4);
    state_put_reversed(bytes + 8, state->plan_id.high);
    state_put_reversed(bytes + 16, state->plan_id.low);
    state_put(bytes + 24, state->seed, 8);
    state_put(bytes + 32, state->epoch, 4);
    state_put(bytes + 36, state->position, 8);
    state_put(bytes + 44, state->step, 8);
    state_put(bytes + 52, state->batch, 8);
    state_put(bytes + STATE_CHECKED_BYTES, state_checksum(bytes), 4);

    memcpy(text, state_prefix, STATE_PREFIX_BYTES);
    char *out = text + STATE_PREFIX_BYTES;
    uint32_t bits = 0;
    unsigned bit_count = 0;
    for (size_t i = 0; i < STATE_BYTES; i++) {
        bits = (bits << 8 | bytes[i]) & 0xFFFF;
        bit_count += 8;
        while (bit_count >= 6) {
            bit_count -= 6;
            *out++ = state_alphabet[bits >> bit_count & 63];
        }
    }
    *out++ = state_alphabet[bits << (6 - bit_count) & 63]; /* 64 bytes leave two bits */
    *out = '\0';
}

/* Value of a character of the alphabet, -1 for any other byte. */
static int state_char_value(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    if (c == '-')
        return 62;
    return c == '_' ? 63 : -1;
}

/* Exactly STATE_BODY_CHARS characters to STATE_BYTES bytes; false when one is not of the alphabet
 * or a bit behind the last byte is set. */
static bool state_unpack(const char *body, uint8_t bytes[STATE_BYTES])
{
    uint32_t bits = 0;
    unsigned bit_count = 0;
    size_t used = 0;
    for (size_t i = 0; i < STATE_BODY_CHARS; i++) {
        int value = state_char_value(body[i]);
        if (value < 0)
            return false;
        bits = (bits << 6 | (uint32_t)value) & 0xFFFF;
        bit_count += 6;
        if (bit_count >= 8) {
            bit_count -= 8;
            bytes[used++] = (uint8_t)(bits >> bit_count);
        }
    }
    return (bits & ((1U << bit_count) - 1)) == 0;
}

/* Length of "spdl", a number from 2 to 999 without leading zero, and "."; 0 where the text does not
 * begin so. */
static size_t state_later_prefix(const char *text, size_t bytes)
{
    if (bytes < STATE_PREFIX_BYTES || memcmp(text, "spdl", 4) != 0)
        return 0;
    size_t i = 4;
    while (i < bytes && i < 7 && text[i] >= '0' && text[i] <= '9')
        i++;
    if (i == 4 || i == bytes || text[i] != '.' || text[4] == '0')
        return 0;
    return i + 1;
}

static int state_check_text(const char *text, size_t bytes, struct err *reterr)
{
    size_t later = state_later_prefix(text, bytes);
    if (later == 0)
        return err_set(reterr, -EINVAL,
                       "this is not a state: a state begins with \"%s\" and has %d characters",
                       state_prefix, (int)STATE_TEXT_CHARS);
    if (memcmp(text, state_prefix, STATE_PREFIX_BYTES) != 0)
        return err_set(reterr, -ENOTSUP,
                       "the state is of format %.*s and this version reads format %d; "
                       "use the version that wrote it, or a later one",
                       (int)(later - 5), text + 4, (int)PLAN_STATE_FORMAT);
    if (bytes != STATE_TEXT_CHARS)
        return err_set(
            reterr, -EINVAL, "the state is damaged: it has %zu characters and must have %d%s",
            bytes, (int)STATE_TEXT_CHARS,
            bytes < STATE_TEXT_CHARS ? " (was it cut?)" : " (is there a blank behind it?)");
    return 0;
}

static int state_check_values(const struct plan_state *state, struct err *reterr)
{
    if (state->format > PLAN_STATE_FORMAT)
        return err_set(reterr, -ENOTSUP,
                       "the state is of format %" PRIu32 " and this version reads format %d; "
                       "use the version that wrote it, or a later one",
                       state->format, (int)PLAN_STATE_FORMAT);
    if (state->format < PLAN_STATE_FORMAT)
        return err_set(reterr, -EINVAL, "the state is damaged: there is no format %" PRIu32,
                       state->format);
    if (state->batch == 0)
        return err_set(reterr, -EINVAL, "the state is damaged: its batch size is 0");
    if (state->step > state->position)
        return err_set(reterr, -EINVAL,
                       "the state is damaged: step %" PRIu64 " cannot be at position %" PRIu64,
                       state->step, state->position);
    return 0;
}

int plan_state_decode(const char *text, size_t bytes, struct plan_state *ret_state,
                      struct err *reterr)
{
    int rc = state_check_text(text, bytes, reterr);
    if (rc < 0)
        return rc;
    uint8_t raw[STATE_BYTES];
    if (!state_unpack(text + STATE_PREFIX_BYTES, raw))
        return err_set(reterr, -EINVAL,
                       "the state is damaged: it has a character that no state has there");
    if (state_get(raw + STATE_CHECKED_BYTES, 4) != state_checksum(raw))
        return err_set(reterr, -EINVAL, "the state is damaged: its checksum does not fit");
    const struct plan_state state = {
        .format = (uint32_t)state_get(raw, 4),
        .decode_version = (uint32_t)state_get(raw + 4, 4),
        .plan_id = {.high = state_get_reversed(raw + 8), .low = state_get_reversed(raw + 16)},
        .seed = state_get(raw + 24, 8),
        .epoch = (uint32_t)state_get(raw + 32, 4),
        .position = state_get(raw + 36, 8),
        .step = state_get(raw + 44, 8),
        .batch = state_get(raw + 52, 8),
    };
    rc = state_check_values(&state, reterr);
    if (rc == 0)
        *ret_state = state;
    return rc;
}
