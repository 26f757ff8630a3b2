/* jansson's functions accept NULL for a value that could not be allocated: json_pack then fails in turn,
 * json_object_set_new leaves the member out. So nothing here checks for memory; json_dumps and control_job_send report
 * a missing object.
 */
#include "server/control_internal.h"

#include <string.h>

#include "format/json_name.h"

json_t *control_json_integer(uint64_t n)
{
    return json_integer((json_int_t)n);
}

json_t *control_json_digest(const struct digest *digest)
{
    char hex[DIGEST_HEX_SIZE];
    return json_sprintf("sha256:%s", digest_hex(digest, hex));
}

json_t *control_json_export(const struct stack_export *export)
{
    const char *name = stack_export_name(export);
    json_t *object = json_object();
    json_name_set(object, "export", name, strlen(name));
    json_object_set_new(object, "digest", control_json_digest(image_digest(stack_export_image(export))));
    return object;
}

void control_json_add(json_t *object, const struct control_sum *sums, size_t n)
{
    for (size_t i = 0; i < n; i++)
        json_object_set_new(object, sums[i].key, control_json_integer(sums[i].value));
}
