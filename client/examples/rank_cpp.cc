// The same rank in C++: handles that close themselves. rank_cpp DATASET BATCH STEPS
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string_view>

#include <spdl/client.h>

using Connection = std::unique_ptr<spdl_connection, decltype(&spdl_disconnect)>;
using Stream = std::unique_ptr<spdl_stream, decltype(&spdl_close)>;
using Batch = std::unique_ptr<spdl_batch, decltype(&spdl_batch_unref)>;

int main(int argc, char **argv)
{
    if (argc < 4) {
        std::cerr << "usage: rank_cpp DATASET BATCH STEPS\n";
        return 2;
    }
    spdl_connect_options options{};
    options.options_bytes = sizeof(options);
    options.reconnect_s = -1;
    spdl_connection *raw_connection = nullptr;
    int rc = spdl_connect(&options, &raw_connection);
    Connection connection(raw_connection, spdl_disconnect);
    spdl_stream *raw_stream = nullptr;
    if (rc == 0) {
        spdl_open_options open{};
        open.options_bytes = sizeof(open);
        open.dataset = argv[1];
        open.batch = std::strtoull(argv[2], nullptr, 10);
        open.limit = std::strtoull(argv[3], nullptr, 10);
        rc = spdl_open(connection.get(), &open, &raw_stream);
    }
    if (rc < 0) {
        std::cerr << "rank_cpp: " << spdl_connection_error(connection.get()) << '\n';
        return 3;
    }
    Stream stream(raw_stream, spdl_close);
    for (spdl_batch *next = nullptr; spdl_next(stream.get(), -1, &next) == 0;) {
        Batch batch(next, spdl_batch_unref);
        struct spdl_batch_info info;
        spdl_batch_info(batch.get(), &info);
        std::cout << "epoch " << info.epoch << " step " << info.step << ':';
        spdl_row row;
        for (uint32_t i = 0; i < info.rows && spdl_batch_row(batch.get(), i, &row) == 0; i++)
            std::cout << ' ' << std::string_view(row.key, row.key_bytes);
        std::cout << "\n  state " << info.state << '\n';
    }
    std::cerr << "rank_cpp: " << spdl_stream_error(stream.get()) << '\n';
    return 0;
}
