/* Two addressing styles:
 *
 *   path:          https://s3.REGION.amazonaws.com/BUCKET
 *   virtual-host:  https://BUCKET.s3.REGION.amazonaws.com
 *
 * AWS wants the second, most other servers want or allow the first. A bucket name with dots matches no TLS wildcard, so
 * it needs the first.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/config.h"
#include "base/error.h"
#include "base/text.h"
#include "net/aws/aws_internal.h"

#define LOWER_AND_DIGITS "abcdefghijklmnopqrstuvwxyz0123456789"
#define UPPER "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

enum style { AUTO, PATH, VIRTUAL };

static const char *first_env(const char *a, const char *b)
{
    const char *value = text_of_environment(a);
    return value ? value : text_of_environment(b);
}

/* Check a bucket's name. Other servers allow more than AWS does; refused is what could change the URL's meaning. */
static int check_bucket(const char *bucket)
{
    size_t len = bucket ? strlen(bucket) : 0;
    if (len && len < 256 && strspn(bucket, LOWER_AND_DIGITS UPPER "._-") == len && strcmp(bucket, ".") &&
        strcmp(bucket, ".."))
        return 0;
    return error_set(-EINVAL, "S3: '%.100s' is no valid bucket name", bucket ? bucket : "");
}

/* Set the region: the server's word, the configuration, the environment, the profile, else us-east-1. */
static int set_region(struct s3_address *a, const char *region, const struct aws_profile *profile)
{
    if (!region)
        region = first_env("AWS_REGION", "AWS_DEFAULT_REGION");
    if (!region)
        region = profile->region;
    a->region_known = region;
    if (!region)
        region = "us-east-1";
    if (strspn(region, LOWER_AND_DIGITS "-_") != strlen(region) || strlen(region) > 60)
        return error_set(-EINVAL, "S3: '%.60s' is no region; check AWS_REGION", region);
    a->region = strdup(region);
    return a->region ? 0 : error_no_memory();
}

static int find_style(const struct aws_profile *profile, enum style *out)
{
    const char *set = text_of_environment("AWS_S3_ADDRESSING_STYLE");
    if (!set)
        set = profile->addressing_style ? profile->addressing_style : "auto";
    *out = strcmp(set, "path") == 0 ? PATH : strcmp(set, "virtual") == 0 ? VIRTUAL : AUTO;
    if (*out != AUTO || strcmp(set, "auto") == 0)
        return 0;
    return error_set(-EINVAL,
                     "S3: the addressing style '%.40s' is none of path, virtual and auto; check "
                     "AWS_S3_ADDRESSING_STYLE",
                     set);
}

/* Make the bucket's address. `scheme` is the length of "https://" in the endpoint. */
static int set_base(struct s3_address *a, const char *bucket, size_t scheme, bool virtual_host)
{
    int n = virtual_host ? asprintf(&a->base, "%.*s%s.%s", (int)scheme, a->endpoint, bucket, a->endpoint + scheme)
                         : asprintf(&a->base, "%s/%s", a->endpoint, bucket);
    if (n >= 0)
        return 0;
    a->base = NULL;
    return error_no_memory();
}

/* Use the endpoint that the user gave: scheme and host, perhaps port and path, nothing else. */
static int set_given_endpoint(struct s3_address *a, const char *bucket, const char *endpoint, enum style style)
{
    size_t scheme = strncmp(endpoint, "http://", 7) == 0 ? 7 : strncmp(endpoint, "https://", 8) == 0 ? 8 : 0;
    if (!scheme || !endpoint[scheme] || endpoint[scheme] == '/' || http_port_missing(endpoint))
        return error_set(-EINVAL, "S3 endpoint '%.200s': it must look like https://host or http://host:port",
                         strchr(endpoint, '@') ? "(not shown)" : endpoint);
    if (endpoint[scheme + strcspn(endpoint + scheme, "@?# ")])
        return error_set(-EINVAL, "S3 endpoint: it must hold neither credentials nor '?', '#' or spaces; give keys by "
                                  "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY");
    size_t len = strlen(endpoint);
    while (endpoint[len - 1] == '/')
        len--;
    a->given = true;
    a->endpoint = strndup(endpoint, len);
    return a->endpoint ? set_base(a, bucket, scheme, style == VIRTUAL) : error_no_memory();
}

/* set_region() keeps regions short enough. */
static void write_aws_endpoint(const char *region, char out[S3_ENDPOINT_MAX])
{
    const char *domain = strncmp(region, "cn-", 3) ? "amazonaws.com" : "amazonaws.com.cn";
    snprintf(out, S3_ENDPOINT_MAX, "https://s3.%s.%s", region, domain);
}

static int set_aws_endpoint(struct s3_address *a, const char *bucket, enum style style)
{
    a->endpoint = malloc(S3_ENDPOINT_MAX);
    if (!a->endpoint)
        return error_no_memory();
    write_aws_endpoint(a->region, a->endpoint);
    return set_base(a, bucket, strlen("https://"), style == AUTO ? !strchr(bucket, '.') : style == VIRTUAL);
}

int s3_configured(const char *bucket, const char *key, const char **out)
{
    const struct config *file;
    int rc = config_get(&file);
    const struct config_entry *e = rc ? NULL : config_for_bucket(file, bucket, key);
    *out = e ? e->value : NULL;
    return rc;
}

/* The first of the caller's, the environment's and the configuration file's endpoint. NULL: AWS. */
static int find_endpoint(const struct s3_config *config, const char **out)
{
    *out =
        config->endpoint && *config->endpoint ? config->endpoint : first_env("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL");
    return *out ? 0 : s3_configured(config->bucket, "endpoint", out);
}

int s3_address_make(const struct s3_config *config, const char *region, struct s3_address **out)
{
    CLEANUP(cleanup_s3_address) struct s3_address *a = calloc(1, sizeof *a);
    struct aws_profile profile CLEANUP(aws_profile_release) = {0};
    const char *profile_name = NULL, *endpoint = NULL;
    enum style style = AUTO;
    int rc = a ? check_bucket(config->bucket) : error_no_memory();
    if (!rc)
        rc = s3_configured(config->bucket, "profile", &profile_name);
    if (!rc)
        rc = find_endpoint(config, &endpoint);
    if (!rc)
        rc = aws_profile_load(profile_name, &profile);
    if (!rc)
        rc = find_style(&profile, &style);
    if (!rc)
        rc = set_region(a, region ? region : config->region, &profile);
    if (!rc)
        rc = endpoint ? set_given_endpoint(a, config->bucket, endpoint, style)
                      : set_aws_endpoint(a, config->bucket, style);
    if (rc)
        return rc;
    *out = steal_ptr(&a);
    return 0;
}

int s3_standard_endpoint(char out[S3_ENDPOINT_MAX])
{
    CLEANUP(cleanup_s3_address) struct s3_address *a = calloc(1, sizeof *a);
    struct aws_profile profile CLEANUP(aws_profile_release) = {0};
    const char *name = NULL;
    int rc = a ? s3_configured("", "profile", &name) : error_no_memory();
    if (!rc)
        rc = aws_profile_load(name, &profile);
    if (!rc)
        rc = set_region(a, NULL, &profile);
    if (!rc)
        write_aws_endpoint(a->region, out);
    return rc;
}

void s3_address_free(struct s3_address *a)
{
    if (!a)
        return;
    free(a->region);
    free(a->endpoint);
    free(a->base);
    free(a);
}
