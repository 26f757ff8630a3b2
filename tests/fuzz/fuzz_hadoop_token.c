/* Hadoop's file of tokens. */
#include "fuzz/fuzz.h"

#include <errno.h>
#include <string.h>

#include "net/hdfs/webhdfs_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static const char *const services[] = {"nn1:9870", "[::1]:9870"};
    char *token = NULL;
    int rc = hadoop_token_decode(data, len, services, 2, &token);
    FUZZ_CHECK(rc == 0 || rc == -EBADMSG || rc == -ENOENT);
    FUZZ_CHECK((rc == 0) == (token != NULL));
    /* it goes into an address as it is */
    FUZZ_CHECK(!token || token[strspn(token, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")] == 0);
    free(token);
    return 0;
}
