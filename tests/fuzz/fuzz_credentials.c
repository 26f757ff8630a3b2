/* Credentials that decode can stand in a header, and nothing is left behind by those that do not. */
#include "fuzz/fuzz.h"

#include <errno.h>
#include <string.h>

#include "net/aws/aws_internal.h"

static void check(int rc, struct credentials *c)
{
    FUZZ_CHECK(rc == 0 || rc == -EIO || rc == -EINVAL);
    FUZZ_CHECK((rc == 0) == (c->access_key != NULL) && (rc == 0) == (c->secret_key != NULL));
    FUZZ_CHECK(rc == 0 || !c->session_token);
    if (!rc)
        FUZZ_CHECK(*c->access_key && !strpbrk(c->access_key, "\r\n ") && *c->secret_key &&
                   !strpbrk(c->secret_key, "\r\n ") && (!c->session_token || !strpbrk(c->session_token, "\r\n ")));
    credentials_release(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct credentials c;
    int rc = credentials_decode_json("a service", data, len, &c);
    check(rc, &c);
    rc = credentials_decode_sts("a service", data, len, &c);
    check(rc, &c);
    return 0;
}
