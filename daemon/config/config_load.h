/* Loading: files into a struct config. config_load is this with the system's places. */
#ifndef SPDLD_CONFIG_LOAD_H
#define SPDLD_CONFIG_LOAD_H

#include "config/config.h"

struct config_places {
    const char *file;   /* settings and datasets; NULL: none */
    int file_required;  /* else it may be missing */
    const char *folder; /* of files *.yaml with datasets; NULL: none; may be missing */
    const char *const *sets;
    uint32_t set_count;
};

int config_load_places(const struct config_places *places, struct config **ret_config,
                       struct config_complaints *ret_complaints);

#endif
