/* A fuzz target without its fuzzer, for trees that gcc builds: the corpus, and a fixed number of inputs made of it by
 * flipped bits, changed bytes, cut and repeated parts. The same inputs in every run; `./test --part fuzz` looks for new
 * ones.
 */
#include "fuzz/fuzz.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"

enum { MUTANTS = 2000, CHANGES_MAX = 4, INPUT_MAX = 64 << 10 };

static uint64_t state = 0x9e3779b97f4a7c15;

static size_t draw(size_t below)
{
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (size_t)(state >> 11) % below;
}

/* From an allocation of its own length, so that the address sanitizer sees a read beyond it. */
static void run(const uint8_t *data, size_t len)
{
    uint8_t *exact = malloc(len ? len : 1);
    FUZZ_CHECK(exact);
    memcpy(exact, data, len);
    LLVMFuzzerTestOneInput(exact, len);
    free(exact);
}

static void change(uint8_t *data, size_t *len)
{
    size_t at = draw(*len), part = 1 + draw(*len - at);
    switch (draw(5)) {
    case 0:
        data[at] ^= (uint8_t)(1u << draw(8));
        break;
    case 1:
        data[at] = (uint8_t)draw(256);
        break;
    case 2:
        memset(data + at, draw(2) ? 0xff : 0, GR_MIN(part, 8u));
        break;
    case 3:
        memmove(data + at, data + at + part, *len - at - part);
        *len -= part;
        break;
    default:
        part = GR_MIN(part, INPUT_MAX - *len);
        memmove(data + at + part, data + at, *len - at);
        *len += part;
    }
}

static void mutate(const uint8_t *seed, size_t seed_len)
{
    static uint8_t data[INPUT_MAX];
    size_t len = seed_len;
    memcpy(data, seed, len);
    for (size_t i = 0, n = 1 + draw(CHANGES_MAX); i < n && len; i++)
        change(data, &len);
    run(data, len);
}

int main(int argc, char **argv)
{
    static uint8_t seeds[256][INPUT_MAX];
    size_t lens[256], count = 1; /* the first is empty: most targets make something of it */
    struct dirent **entries = NULL;
    lens[0] = 0;
    FUZZ_CHECK(argc == 2);
    int found = scandir(argv[1], &entries, NULL, alphasort);
    for (int i = 0; i < found; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", argv[1], entries[i]->d_name);
        bool hidden = entries[i]->d_name[0] == '.';
        free(entries[i]);
        if (hidden)
            continue;
        FUZZ_CHECK(count < GR_ARRAY_SIZE(lens));
        FILE *f = fopen(path, "rb");
        FUZZ_CHECK(f);
        lens[count] = fread(seeds[count], 1, INPUT_MAX, f);
        FUZZ_CHECK(fgetc(f) == EOF && !ferror(f)); /* not cut at INPUT_MAX */
        fclose(f);
        count++;
    }
    free(entries);
    if (count == 1) {
        fprintf(stderr, "%s: no corpus\n", argv[1]);
        return 1;
    }
    for (size_t i = 0; i < count; i++)
        run(seeds[i], lens[i]);
    for (size_t i = 0; i < MUTANTS; i++) {
        size_t seed = 1 + draw(count - 1); /* nothing can be changed in the empty one */
        mutate(seeds[seed], lens[seed]);
    }
    printf("%zu inputs of the corpus, %d made of them\n", count - 1, MUTANTS);
    return 0;
}
