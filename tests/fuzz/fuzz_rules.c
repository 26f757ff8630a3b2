/* A pattern that is taken matches some path within bounded time, alone or as a rule; one that is refused has a
 * sentence. Input: pattern, NUL, path. */
#include "fuzz/fuzz.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "imagebuild/source/rules.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    const char *pattern = (const char *)data, *end = memchr(data, 0, len);
    CLEANUP(cleanup_rules) struct rules *rules = NULL;
    if (!end || len > 2000)
        return 0;
    size_t pattern_len = (size_t)(end - pattern), path_len = len - pattern_len - 1;
    if (!memchr(pattern, '/', pattern_len) && !glob_fault(pattern, pattern_len))
        (void)glob_match(pattern, pattern_len, end + 1, path_len);
    FUZZ_CHECK(!rules_new(&rules));
    int rc = rules_add(rules, false, pattern);
    FUZZ_CHECK(!rc || (rc == -EINVAL && *error_text()));
    if (rc)
        return 0;
    bool file = rules_take(rules, end + 1, path_len, false), directory = rules_take(rules, end + 1, path_len, true);
    FUZZ_CHECK(file || !directory); /* what leaves out a file leaves out a directory too */
    return 0;
}
