/* Which loops this CPU can run: see transform_resize.h. */
#include "transform/transform_resize.h"

const struct resize_kernels *transform_resize_choice(unsigned index)
{
    const struct resize_kernels *list[4] = {0};
    unsigned count = 0;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx2"))
        list[count++] = &transform_resize_avx512;
    if (__builtin_cpu_supports("avx2"))
        list[count++] = &transform_resize_avx2;
#endif
    list[count++] = &transform_resize_portable;
    return index < count ? list[index] : NULL;
}
