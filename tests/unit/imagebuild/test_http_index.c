/* Index pages: what nginx and Apache write, and what nobody should. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "imagebuild/source/http_index.h"

static int note(void *arg, const struct http_index_entry *e)
{
    if (e->exact)
        return bytes_printf(arg, "%.*s%s=%llu@%lld|", (int)e->name_len, e->name, e->directory ? "/" : "",
                            (unsigned long long)e->size, (long long)e->mtime);
    return bytes_printf(arg, "%.*s%s|", (int)e->name_len, e->name, e->directory ? "/" : "");
}

static void assert_index(const char *page, const char *expected)
{
    CLEANUP_BYTES text = BYTES_INIT(1 << 16);
    int rc = http_index_decode(page, strlen(page), "http://host:80/a%20b/", note, &text);
    if (rc)
        fail_msg("%s: %s", page, error_text());
    assert_string_equal(bytes_string(&text), expected);
}

static void assert_no_index(const char *page)
{
    CLEANUP_BYTES text = BYTES_INIT(1 << 16);
    if (http_index_decode(page, strlen(page), "http://host:80/a%20b/", note, &text) != -EBADMSG)
        fail_msg("taken as an index: %s", page);
    assert_non_null(strstr(error_text(), "no index page"));
}

#define HTML(links) "<html><head><title>Index of /a b/</title></head><body>" links "</body></html>"

static void test_http_index__nginx_html(void **state)
{
    assert_index(HTML("<pre><a href=\"../\">../</a>\r\n<a href=\"d%20e/\">d e/</a> 21-Oct-2015 07:28 -\r\n"
                      "<a href=\"x%26y%3F%23\">x</a>  21-Oct-2015 07:28 123\r\n<a href=\"%FF\">.</a></pre>"),
                 "d e/|x&y?#|\xff|");
}

static void test_http_index__apache_html(void **state)
{
    assert_index(HTML("<table><tr><th><a href=\"?C=N;O=D\">Name</a></th></tr><tr><td><a href=\"/\">Parent</a></td>"
                      "<td><A class='x' HREF = 'f&amp;g&#38;&#x26;'><img></A></td><td><a href='f&amp;g&#38;&#x26;'>f"
                      "</a></td><td><a href=\"sub/\">s</a></td></tr></table>"),
                 "f&g&&|sub/|");
}

static void test_http_index__only_children_are_taken(void **state)
{
    assert_index(
        HTML("<a href='/a%20b/in'>1</a><a href='http://host:80/a%20b/too/'>2</a><a href='./three'>3</a>"
             "<a href='/other/x'>4</a><a href='http://host:81/a%20b/x'>5</a><a href='http://evil/a%20b/x'>6</a>"
             "<a href='//host/a%20b/x'>7</a><a href='x/y'>8</a><a href='..%2Fx'>9</a><a href='%2e%2e'>10</a>"
             "<a href='.'>11</a><a href=''>12</a><a href='a%00b'>13</a><a href='%zz'>14</a>"
             "<a href='javascript:x'>15</a><a href='x?y'>16</a><a href='#z'>17</a><a href='%2e/'>18</a>"
             "<a href=unquoted>19</a><a name='x'>20</a><a href='/a%20b/'>21</a><a href='last'>22</a>"),
        "in|too/|three|last|");
    assert_index(HTML("<a title='>' href='x'></a><a data-href='no'></a><a href='cut"), "x|");
}

/* At 64 KiB there is no room for what ends the string. */
static void test_http_index__links_that_are_too_long_are_ignored(void **state)
{
    for (size_t len = (64 << 10) - 1; len <= (64 << 10) + 1; len++) {
        CLEANUP_BYTES page = BYTES_INIT(1 << 20);
        uint8_t *link;
        assert_int_equal(bytes_printf(&page, "<title>Index of /a b/</title><a href='/"), 0);
        assert_int_equal(bytes_reserve(&page, len - 1, &link), 0);
        memset(link, 'x', len - 1);
        page.len += len - 1;
        assert_int_equal(bytes_printf(&page, "'>x</a><a href='y'>y</a>"), 0);
        assert_index(bytes_string(&page), "y|");
    }
}

static void test_http_index__nginx_json(void **state)
{
    assert_index(
        "[\n{ \"name\":\"d\", \"type\":\"directory\", \"mtime\":\"Wed, 21 Oct 2015 07:28:00 GMT\" },\n"
        "{ \"name\":\"f\\u00fc \\\"\\ud83d\\ude00\", \"type\":\"file\", \"mtime\":\"Wed, 21 Oct 2015 07:28:00 "
        "GMT\", \"size\":123 },{ \"name\":\"\xff\", \"type\":\"file\", \"mtime\":\"yesterday\", \"size\":1 },\n"
        "{ \"name\":\"s\", \"type\":\"other\", \"mtime\":\"Wed, 21 Oct 2015 07:28:00 GMT\" }\n]\n",
        "d/=0@1445412480|f\xc3\xbc \"\xf0\x9f\x98\x80=123@1445412480|\xff|");
    assert_index(
        "[{\"type\":\"file\",\"name\":\"..\"},{\"type\":\"file\",\"name\":\"a/b\"},{\"type\":\"file\"},"
        "{\"name\":\"a\\u0000\",\"type\":\"file\"},{\"type\":\"file\",\"name\":\"x\",\"size\":-1,\"more\":null}]",
        "x|");
    assert_index(" []", "");
}

static void test_http_index__other_pages_are_refused(void **state)
{
    assert_no_index("");
    assert_no_index("<html><head><title>Welcome</title></head><a href='x'>x</a></html>");
    assert_no_index("{\"name\":\"x\"}");
    assert_no_index("[");
    assert_no_index("[{\"name\":{\"x\":1}}]");
    assert_no_index("[{\"name\":\"x\\ud800\"}]");
    assert_no_index("[{\"name\":\"x\"}] more");
    assert_no_index("[{\"name\":\"x\" \"type\":\"file\"}]");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_http_index__nginx_html),
        cmocka_unit_test(test_http_index__apache_html),
        cmocka_unit_test(test_http_index__links_that_are_too_long_are_ignored),
        cmocka_unit_test(test_http_index__nginx_json),
        cmocka_unit_test(test_http_index__only_children_are_taken),
        cmocka_unit_test(test_http_index__other_pages_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
