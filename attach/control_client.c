#include "attach/control_client.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdio.h>

#include "base/cleanup.h"
#include "base/error.h"

enum { CONTROL_TIMEOUT_S = 10 };

DEFINE_CLEANUP(curl, CURL *, curl_easy_cleanup)

static size_t collect(char *data, size_t size, size_t count, void *arg)
{
    return bytes_append(arg, data, size * count) ? 0 : size * count;
}

int control_get(const char *socket, const char *path, struct bytes *out)
{
    char url[256], reason[CURL_ERROR_SIZE] = "";
    snprintf(url, sizeof url, "http://granary%s", path);
    CLEANUP(cleanup_curl) CURL *curl = curl_easy_init();
    if (!curl)
        return error_set(-ENOMEM, "out of memory");
    curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, socket);
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_PROXY, "");
    curl_easy_setopt(curl, CURLOPT_TIMEOUT, (long)CONTROL_TIMEOUT_S);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, reason);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, collect);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, out);
    CURLcode code = curl_easy_perform(curl);
    long status = 0;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    if (code == CURLE_COULDNT_CONNECT)
        return error_set(-ECONNREFUSED, "no server answers on the control socket %s", socket);
    if (code || status != 200)
        return error_set(-EIO, "the server on the control socket %s gives no answer to %s: %s", socket, path,
                         code ? (*reason ? reason : curl_easy_strerror(code)) : "unexpected HTTP status");
    return 0;
}
