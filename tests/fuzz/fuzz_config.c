/* A dataset as YAML, as it comes in a message, from made-up bytes. */
#include <errno.h>
#include <stdlib.h>

#include "config/config_load.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const struct config_places nothing; /* the defaults */
    static struct config *config;
    static struct config_dataset dataset;
    static struct config_complaints complaints;
    if (config == NULL && config_load_places(&nothing, &config, &complaints) != 0)
        abort();
    int rc =
        config_dataset_read((const char *)data, bytes, "message", config, &dataset, &complaints);
    if (rc == -EINVAL ? complaints.count == 0 : rc != 0)
        abort();
    return 0;
}
