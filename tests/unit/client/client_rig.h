/* What the tests of the client library share: a folder, a fake daemon in it, a connection and a
 * stream. */
#ifndef TESTS_CLIENT_RIG_H
#define TESTS_CLIENT_RIG_H

#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "spdl/client.h"
#include "tests/lib/fake_daemon.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define RIG_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define RIG_SANITIZED 1
#endif
#endif
#ifndef RIG_SANITIZED
#define RIG_SANITIZED 0
#endif

struct rig {
    char folder[64], socket[96];
    struct fake_daemon fake;
    struct spdl_connection *connection;
    struct spdl_stream *stream;
    uint64_t next; /* number of the batch that must come next, from epoch 0 step 0 */
};

static inline void rig_init(struct rig *rig)
{
    memset(rig, 0, sizeof(*rig));
    snprintf(rig->folder, sizeof(rig->folder), "/tmp/spdl-test-XXXXXX");
    assert_non_null(mkdtemp(rig->folder));
    snprintf(rig->socket, sizeof(rig->socket), "%s/s", rig->folder);
    fake_init(&rig->fake, rig->socket);
}

static inline void rig_fini(struct rig *rig)
{
    spdl_close(rig->stream);
    spdl_disconnect(rig->connection);
    fake_fini(&rig->fake);
    rmdir(rig->folder);
}

static inline int rig_connect(struct rig *rig, double reconnect_s)
{
    struct spdl_connect_options options = {
        .options_bytes = sizeof(options), .socket = rig->socket, .reconnect_s = reconnect_s};
    return spdl_connect(&options, &rig->connection);
}

static inline int rig_open(struct rig *rig, uint64_t limit)
{
    struct spdl_open_options options = {.options_bytes = sizeof(options),
                                        .dataset = "photos",
                                        .batch = FAKE_ROWS,
                                        .has_seed = 1,
                                        .seed = 31,
                                        .limit = limit};
    return spdl_open(rig->connection, &options, &rig->stream);
}

/* A running fake, connected and open. */
static inline void rig_up(struct rig *rig, double reconnect_s, uint64_t limit)
{
    rig_init(rig);
    fake_start(&rig->fake);
    assert_int_equal(rig_connect(rig, reconnect_s), 0);
    assert_int_equal(rig_open(rig, limit), 0);
}

/* Everything in the batch is what batch number rig->next must be. */
static inline void rig_check(struct rig *rig, const struct spdl_batch *batch)
{
    struct spdl_batch_info info;
    spdl_batch_info(batch, &info);
    uint64_t n = rig->next++;
    uint32_t epoch = (uint32_t)(n / FAKE_STEPS);
    uint64_t step = n % FAKE_STEPS;
    assert_int_equal(info.epoch, epoch);
    assert_int_equal(info.step, step);
    assert_int_equal(info.sequence, n);
    assert_int_equal(info.rows, FAKE_ROWS);
    assert_int_equal(info.fields, 2);
    char state[64];
    snprintf(state, sizeof(state), "fake:%u:%u", (unsigned)((n + 1) / FAKE_STEPS),
             (unsigned)((n + 1) % FAKE_STEPS));
    assert_string_equal(info.state, state);
    struct spdl_tensor image;
    assert_int_equal(spdl_batch_find(batch, "image", &image), 0);
    const uint8_t *bytes = image.data;
    for (uint32_t r = 0; r < FAKE_ROWS; r++) {
        for (uint32_t i = 0; i < FAKE_IMAGE_BYTES; i++)
            assert_int_equal(bytes[r * FAKE_IMAGE_BYTES + i], fake_byte(epoch, step, r, i));
        struct spdl_row row;
        char key[64];
        int key_bytes = snprintf(key, sizeof(key), "k/%u-%u-%u", epoch, (unsigned)step, r);
        assert_int_equal(spdl_batch_row(batch, r, &row), 0);
        assert_int_equal(row.key_bytes, key_bytes);
        assert_memory_equal(row.key, key, (size_t)key_bytes);
    }
}

/* The next batch within 10 s, checked and given back. */
static inline void rig_take(struct rig *rig)
{
    struct spdl_batch *batch;
    int rc = spdl_next(rig->stream, 10.0, &batch);
    if (rc != 0)
        fail_msg("batch %llu: %d: %s", (unsigned long long)rig->next, rc,
                 spdl_stream_error(rig->stream));
    rig_check(rig, batch);
    spdl_batch_unref(batch);
}

static inline double rig_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static inline int rig_fd_count(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    assert_non_null(folder);
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

/* How many mappings of memory files this process has. */
static inline int rig_map_count(void)
{
    char line[512];
    int count = 0;
    FILE *file = fopen("/proc/self/maps", "r");
    assert_non_null(file);
    while (file && fgets(line, sizeof(line), file))
        count += strstr(line, "memfd:") != NULL;
    if (file)
        fclose(file);
    return count;
}

#endif
