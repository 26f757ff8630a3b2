/* fake_image DIR NAME SEED: an image NAME of known bytes in the file store DIR; the bytes go to
 * standard output. For flow tests of readers that want no build in between. Chunks of 128 KiB, every fifth a hole. */
#include "fake/image_fake.h"

#include <stdio.h>
#include <stdlib.h>

enum { CHUNK = 128 << 10, CHUNKS = 100 };

static bool every_fifth(uint64_t chunk)
{
    return chunk % 5 == 3;
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: fake_image DIR NAME SEED\n");
        return 2;
    }
    struct store_fake *fake = store_fake_new();
    struct image_fake img = {.seed = strtoull(argv[3], NULL, 10),
                             .size = (uint64_t)CHUNKS * CHUNK + 8192,
                             .chunk_size = CHUNK,
                             .hole = every_fifth};
    uint8_t *plain = malloc(img.size);
    if (!fake || !plain)
        return 1;
    image_fake_put(&img, fake, argv[2]);
    image_fake_save(fake, argv[1]);
    image_fake_bytes(&img, 0, plain, img.size);
    size_t written = fwrite(plain, 1, img.size, stdout);
    free(plain);
    image_fake_release(&img);
    store_fake_free(fake);
    return written == img.size && fflush(stdout) == 0 ? 0 : 1;
}
