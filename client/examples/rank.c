/* A training rank: takes batches of a dataset from the node's spdld and prints what each holds.
 * rank DATASET BATCH STEPS [STATE] */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <spdl/client.h>

static void train(const struct spdl_batch *batch)
{
    struct spdl_batch_info info;
    struct spdl_tensor tensor;
    struct spdl_row row;
    spdl_batch_info(batch, &info);
    printf("epoch %" PRIu32 " step %" PRIu64 ": %" PRIu32 " rows, %" PRIu32 " good;", info.epoch,
           info.step, info.rows, info.valid);
    for (uint32_t i = 0; i < info.fields && spdl_batch_tensor(batch, i, &tensor) == 0; i++)
        printf(" %s: %zu bytes;", tensor.name, tensor.bytes); /* tensor.data is read in place */
    for (uint32_t i = 0; i < info.rows && spdl_batch_row(batch, i, &row) == 0; i++)
        printf(" %.*s", (int)row.key_bytes, row.key);
    printf("\n  state %s\n", info.state); /* goes into the trainer's checkpoint */
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        fprintf(stderr, "usage: rank DATASET BATCH STEPS [STATE]\n");
        return 2;
    }
    struct spdl_connect_options options = {.options_bytes = sizeof(options), .reconnect_s = -1};
    struct spdl_connection *connection = NULL;
    struct spdl_stream *stream = NULL;
    if (spdl_connect(&options, &connection) < 0) {
        fprintf(stderr, "rank: %s\n", spdl_connection_error(connection));
        spdl_disconnect(connection);
        return 3;
    }
    struct spdl_open_options open = {.options_bytes = sizeof(open),
                                     .dataset = argv[1],
                                     .batch = strtoull(argv[2], NULL, 10),
                                     .limit = strtoull(argv[3], NULL, 10),
                                     .state = argc > 4 ? argv[4] : NULL};
    int failed = spdl_open(connection, &open, &stream) < 0;
    if (failed)
        fprintf(stderr, "rank: %s\n", spdl_connection_error(connection));
    struct spdl_batch *batch;
    while (stream && spdl_next(stream, -1, &batch) == 0) {
        train(batch);
        spdl_batch_unref(batch);
    }
    if (stream)
        fprintf(stderr, "rank: %s\n", spdl_stream_error(stream)); /* why it ended */
    spdl_close(stream);
    spdl_disconnect(connection);
    return failed;
}
