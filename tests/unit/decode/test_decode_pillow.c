/* Every kind of PNG, WebP, BMP, GIF and PNM against Pillow: the files and the right pixels come
 * from picture_reference.py. Skipped where Pillow is missing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "decode/decode.h"
#include "tests/lib/codecs.h"

static const char SCRIPT[] = "tests/unit/decode/picture_reference.py";
enum { SKIPPED = 77, CASES_MIN = 200 };

struct sample {
    char name[64];
    int width, height, orientation, slack;
    size_t bytes;
    uint8_t *file, *wanted;
};

static FILE *stream;

static uint8_t *read_bytes(size_t count)
{
    uint8_t *bytes = malloc(count);
    if (bytes == NULL || fread(bytes, 1, count, stream) != count)
        fail_msg("the script's output ends early");
    return bytes;
}

static bool read_sample(struct sample *sample)
{
    char line[160];
    if (fgets(line, sizeof line, stream) == NULL)
        return false;
    if (sscanf(line, "%63s %d %d %d %zu %d", sample->name, &sample->width, &sample->height,
               &sample->orientation, &sample->bytes, &sample->slack) != 6)
        fail_msg("a line of the script makes no sense: %s", line);
    sample->file = read_bytes(sample->bytes);
    sample->wanted = read_bytes((size_t)sample->width * (size_t)sample->height * 3);
    return true;
}

static void compare(const struct sample *sample, const struct decode_pixels *pixels)
{
    for (int y = 0; y < sample->height; y++)
        for (int x = 0; x < sample->width; x++)
            for (int c = 0; c < 3; c++) {
                int value = pixels->base[(size_t)(pixels->region_y + y) * pixels->stride +
                                         (size_t)(pixels->region_x + x) * 4 + (size_t)c];
                int wanted = sample->wanted[3 * (y * sample->width + x) + c];
                if (abs(value - wanted) > sample->slack)
                    fail_msg("%s %d x %d: pixel %d,%d channel %d is %d, wanted %d", sample->name,
                             sample->width, sample->height, x, y, c, value, wanted);
            }
}

static void decode_sample(const struct sample *sample)
{
    struct decode_packet packet = {sample->file, sample->bytes};
    struct decode_fault fault = {0};
    struct decode_head head;
    struct decode_pixels pixels;
    const struct decode_ops *ops = decode_probe(&packet, &fault);
    if (ops == NULL)
        fail_msg("%s: %s", sample->name, fault.message);
    size_t i = 0;
    while (decode_table[i] != NULL && decode_table[i] != ops)
        i++;
    if (decode_table[i] == NULL)
        abort();
    struct decode_region region = {0, 0, sample->width, sample->height};
    if (decode_table[i]->head(codec_contexts[i], &packet, UINT64_MAX, &head, &fault) !=
        SPDL_CLASS_OK)
        fail_msg("%s: %s", sample->name, fault.message);
    if (head.width != sample->width || head.height != sample->height ||
        head.orientation != sample->orientation)
        fail_msg("%s: %d x %d, orientation %d", sample->name, head.width, head.height,
                 head.orientation);
    if (decode_table[i]->decode(codec_contexts[i], &packet, &region, false, &pixels, &fault) !=
        SPDL_CLASS_OK)
        fail_msg("%s: %s", sample->name, fault.message);
    compare(sample, &pixels);
}

static void test_against_pillow(void **state)
{
    (void)state;
    struct sample sample;
    int count = 0;
    for (; read_sample(&sample); count++) {
        decode_sample(&sample);
        free(sample.file);
        free(sample.wanted);
    }
    assert_true(count >= CASES_MIN);
}

/* Its output is the stream. */
static pid_t start_script(void)
{
    int pipe_fds[2];
    if (pipe(pipe_fds) != 0)
        abort();
    pid_t pid = fork();
    if (pid == 0) {
        dup2(pipe_fds[1], STDOUT_FILENO);
        close(pipe_fds[0]);
        close(pipe_fds[1]);
        execl("/usr/bin/python3", "python3", SCRIPT, (char *)NULL);
        _exit(SKIPPED);
    }
    close(pipe_fds[1]);
    stream = fdopen(pipe_fds[0], "r");
    if (pid < 0 || stream == NULL)
        abort();
    return pid;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_pillow)};
    pid_t pid = start_script();
    int first = fgetc(stream), status = 0, failed = 0;
    if (first != EOF) {
        ungetc(first, stream);
        failed = cmocka_run_group_tests(tests, codecs_open, codecs_close);
    }
    fclose(stream);
    if (waitpid(pid, &status, 0) != pid)
        return 1;
    if (first == EOF && WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED) {
        puts("python3-pil is missing");
        return SKIPPED;
    }
    return failed != 0 || status != 0;
}
