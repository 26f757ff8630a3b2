/* The split form of a chunk of erofs' metadata, in which a name more or less changes little. In a directory's block an
 * entry states the offset of its name, so a name more changes all offsets, and moves names from each block to the next.
 * In the split form entries state the lengths of names, and those of all such blocks follow each other:
 *
 *   chunk:  | entries | names, zeros | inodes ... | entries | names, zeros | ...
 *   split:  | heads | entries ... | names ... | inodes ...
 *
 * The head of a block has the number of entries and the end of the names, 2 bytes each; 0 and 0: it is no list.
 *
 * Inodes stay, but so do the tails of directories after them: there, entries state the lengths of the names before
 * them, apart from the first, which gives the number of entries. What is taken for a list may be anything, since sums
 * undo differences of whatever they are. Whether it is taken for one must come out the same on the way back. In blocks
 * of lists the heads say so. In the others nothing may be changed that was looked at or will be: an inode is looked at
 * only behind the tail before, whether that was changed or not, and a tail's first offset is never changed.
 */
#include "format/format_internal.h"

#include <sys/stat.h>

#include "base/compiler.h"
#include "base/le.h"

/* of erofs (docs/reference/format-erofs.md) */
enum { BLOCK = 4096, ENTRY = 12, NAME_OFFSET = 8, RESERVED = 11, INODE = 64, INODE_UNIT = 32 };
enum { EXTENDED = 1, EXTENDED_INLINE = 5 }; /* an inode's first two bytes */
enum { HEAD = 4 };                          /* bytes for each block */

/* Return how many entries there are, if these bytes are a list of names; else 0. */
static uint32_t count_entries(const uint8_t *list, uint32_t len)
{
    const uint32_t first = len >= ENTRY ? le16_get(list + NAME_OFFSET) : 0;
    return first % ENTRY || first > len ? 0 : first / ENTRY;
}

/* ------------------------------------------------------------------ tails */

/* Change count offsets, the first of which stays. */
typedef void change_tail(uint8_t *list, uint32_t count);

static void tail_to_lengths(uint8_t *list, uint32_t count)
{
    for (uint8_t *entry = list + (count - 1) * ENTRY; entry > list; entry -= ENTRY)
        le16_put(entry + NAME_OFFSET,
                 (uint16_t)(le16_get(entry + NAME_OFFSET) - le16_get(entry - ENTRY + NAME_OFFSET)));
}

static void tail_to_offsets(uint8_t *list, uint32_t count)
{
    for (uint8_t *entry = list + ENTRY; entry < list + count * ENTRY; entry += ENTRY)
        le16_put(entry + NAME_OFFSET,
                 (uint16_t)(le16_get(entry + NAME_OFFSET) + le16_get(entry - ENTRY + NAME_OFFSET)));
}

/* Return the length of the tail that an inode's directory has in its block, and in *out_at where it begins; 0: it is
 * none. */
static uint32_t find_tail(const uint8_t *block, uint32_t inode, uint32_t *out_at)
{
    const uint8_t *p = block + inode;
    const uint32_t attributes = le16_get(p + 2), tail = le32_get(p + 8) % BLOCK;
    if (le16_get(p) != EXTENDED_INLINE || !S_ISDIR(le16_get(p + 4)))
        return 0;
    *out_at = inode + INODE + (attributes ? 12 + 4 * (attributes - 1) : 0);
    return *out_at + tail <= BLOCK ? tail : 0;
}

/* Change the tails in a block of inodes. */
static void change_tails(uint8_t *block, change_tail *change)
{
    for (uint32_t at = 0, tail_at; at + INODE <= BLOCK; at += INODE_UNIT) {
        const uint32_t tail = find_tail(block, at, &tail_at), count = tail ? count_entries(block + tail_at, tail) : 0;
        if (!tail)
            continue;
        if (count)
            change(block + tail_at, count);
        at = (tail_at + tail - 1) / INODE_UNIT * INODE_UNIT; /* the next unit is behind the tail */
    }
}

/* ------------------------------------------------------------------ blocks */

/* Where the next bytes of each kind are in the split form. */
struct split {
    uint8_t *head, *entries, *names, *others;
};

/* Return the number of entries of a block that begins with a list of names; 0: it begins with an inode or whatever. */
static uint32_t block_entries(const uint8_t *block)
{
    const uint16_t format = le16_get(block);
    const bool list = format != EXTENDED && format != EXTENDED_INLINE && !block[RESERVED];
    return list ? count_entries(block, BLOCK) : 0;
}

/* Return where zeros begin that reach to the end of a block. */
static uint32_t names_end(const uint8_t *block, uint32_t count)
{
    uint32_t end = BLOCK;
    while (end > count * ENTRY && !block[end - 1])
        end--;
    return end;
}

/* Write the heads, and find where the rest goes. */
static struct split begin_split(const uint8_t *plain, size_t len, uint8_t *out)
{
    struct split s = {.head = out, .entries = out + len / BLOCK * HEAD};
    size_t entries = 0, names = 0;
    for (size_t i = 0; i < len / BLOCK; i++) {
        const uint32_t count = block_entries(plain + i * BLOCK), end = count ? names_end(plain + i * BLOCK, count) : 0;
        le16_put(out + i * HEAD, (uint16_t)count);
        le16_put(out + i * HEAD + 2, (uint16_t)end);
        entries += (size_t)count * ENTRY;
        names += end - count * ENTRY;
    }
    s.names = s.entries + entries;
    s.others = s.names + names;
    return s;
}

static void put_others(struct split *s, const uint8_t *bytes, size_t len)
{
    memcpy(s->others, bytes, len);
    if (len == BLOCK)
        change_tails(s->others, tail_to_lengths);
    s->others += len;
}

static void split_block(struct split *s, const uint8_t *block)
{
    const uint32_t count = le16_get(s->head), end = le16_get(s->head + 2);
    s->head += HEAD;
    if (!count) {
        put_others(s, block, BLOCK);
        return;
    }
    for (uint32_t i = 0; i < count; i++, s->entries += ENTRY) {
        const uint8_t *entry = block + i * ENTRY;
        const uint32_t next = i + 1 < count ? le16_get(entry + ENTRY + NAME_OFFSET) : end;
        memcpy(s->entries, entry, ENTRY);
        le16_put(s->entries + NAME_OFFSET, (uint16_t)(next - le16_get(entry + NAME_OFFSET)));
    }
    memcpy(s->names, block + count * ENTRY, end - count * ENTRY);
    s->names += end - count * ENTRY;
}

size_t chunk_split_max(size_t len)
{
    return len + len / BLOCK * HEAD;
}

size_t chunk_split(const uint8_t *plain, size_t len, uint8_t *out)
{
    struct split s = begin_split(plain, len, out);
    for (size_t i = 0; i < len / BLOCK; i++)
        split_block(&s, plain + i * BLOCK);
    put_others(&s, plain + len / BLOCK * BLOCK, len % BLOCK);
    return (size_t)(s.others - out);
}

/* ------------------------------------------------------------------ and back */

/* Find where everything is. Return whether all of it fits. */
static bool begin_join(const uint8_t *split, size_t split_len, size_t len, struct split *out)
{
    const size_t blocks = len / BLOCK;
    size_t entries = 0, names = 0, others = len % BLOCK;
    if (split_len < blocks * HEAD)
        return false;
    for (size_t i = 0; i < blocks; i++) {
        const uint32_t count = le16_get(split + i * HEAD), end = le16_get(split + i * HEAD + 2);
        if (count * ENTRY > end || end > BLOCK || (!count && end))
            return false;
        entries += (size_t)count * ENTRY;
        names += end - count * ENTRY;
        others += count ? 0 : BLOCK;
    }
    uint8_t *p = (uint8_t *)split; /* only read */
    *out = (struct split){p, p + blocks * HEAD, p + blocks * HEAD + entries, p + blocks * HEAD + entries + names};
    return split_len == blocks * HEAD + entries + names + others;
}

static void join_block(struct split *s, uint8_t *block)
{
    const uint32_t count = le16_get(s->head), end = le16_get(s->head + 2);
    s->head += HEAD;
    if (!count) {
        memcpy(block, s->others, BLOCK);
        change_tails(block, tail_to_offsets);
        s->others += BLOCK;
        return;
    }
    memcpy(block, s->entries, count * ENTRY);
    memcpy(block + count * ENTRY, s->names, end - count * ENTRY);
    memset(block + end, 0, BLOCK - end);
    uint16_t offset = (uint16_t)(count * ENTRY);
    for (uint32_t i = 0; i < count; i++, s->entries += ENTRY) {
        le16_put(block + i * ENTRY + NAME_OFFSET, offset);
        offset = (uint16_t)(offset + le16_get(s->entries + NAME_OFFSET));
    }
    s->names += end - count * ENTRY;
}

bool chunk_join(const uint8_t *split, size_t split_len, uint8_t *plain, size_t len)
{
    struct split s;
    if (!begin_join(split, split_len, len, &s))
        return false;
    for (size_t i = 0; i < len / BLOCK; i++)
        join_block(&s, plain + i * BLOCK);
    memcpy(plain + len / BLOCK * BLOCK, s.others, len % BLOCK);
    return true;
}
