"""What flow/console-browser checks in Chromium. Each function is a part of it, called with a page that nobody used.

    console-browser.py SCRATCH PORT PROXY-PORT TOKEN-FILE ADMIN-FILE PICTURES-DIRECTORY SERVER-PID
"""
import os
import pathlib
import signal
import subprocess
import sys
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tools"))
from browser import Browser  # noqa: E402

scratch, port, proxy, token_file, admin_file, pictures, server = sys.argv[1:]
ADDRESS = f"http://127.0.0.1:{port}/"
PROXY = f"http://127.0.0.1:{proxy}/"  # node1/ is the console, gone/ is nobody
TOKEN = pathlib.Path(token_file).read_text().strip()
ADMIN = pathlib.Path(admin_file).read_text().strip()
READY = "document.querySelector('#images .strip path') && document.querySelector('#f-reads').textContent !== '–'"
AXE = os.environ.get("GRANARY_AXE")  # a file axe.min.js; without it, the checks below are all

# Text on its ground: every text that is seen has a contrast of 4.5, or 3 where it is large (WCAG 2.2, 1.4.3).
CONTRAST = """(() => {
  const channels = (c) => (c.match(/[\\d.]+/g) ?? []).map(Number);
  const light = (c) => channels(c).slice(0, 3).map((v) => v / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)).reduce((n, v, i) => n + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (e) => { for (; e; e = e.parentElement) {
    const c = getComputedStyle(e).backgroundColor, a = channels(c)[3] ?? 1;
    if (a === 1) return c; } return getComputedStyle(document.documentElement).backgroundColor; };
  const bad = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const e = walk.currentNode.parentElement, style = getComputedStyle(e), box = e.getBoundingClientRect();
    if (!walk.currentNode.data.trim() || !e.checkVisibility({ visibilityProperty: true }) || box.width < 2) continue;
    if (/SCRIPT|NOSCRIPT/.test(e.tagName)) continue;
    const [a, b] = [light(style.color), light(ground(e))].sort((x, y) => y - x);
    const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    const is = (a + 0.05) / (b + 0.05);
    if (is < (large ? 3 : 4.5)) bad.push(`${is.toFixed(2)} ${e.className} '${walk.currentNode.data.trim().slice(0, 40)}'`);
  }
  return bad;
})()"""

# What the markup must have: ids once, labels that lead somewhere, one first heading, levels without gaps, no list with
# other children.
MARKUP = """(() => {
  const bad = [], ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
  ids.filter((id, i) => ids.indexOf(id) !== i).forEach((id) => bad.push(`id ${id} twice`));
  for (const name of ["aria-labelledby", "aria-describedby", "for"])
    document.querySelectorAll(`[${name}]`).forEach((e) => document.getElementById(e.getAttribute(name)) || bad.push(`${name} ${e.getAttribute(name)}`));
  const levels = [...document.querySelectorAll("main h1, header h1, main h2, main h3")].map((e) => Number(e.tagName[1]));
  if (levels.filter((l) => l === 1).length !== 1) bad.push("not one h1");
  levels.forEach((l, i) => i && l > levels[i - 1] + 1 && bad.push(`h${l} after h${levels[i - 1]}`));
  document.querySelectorAll("ul, ol").forEach((list) => [...list.children].some((c) => c.tagName !== "LI") && bad.push(`list ${list.id}`));
  if (!document.documentElement.lang || !document.title) bad.push("no language or title");
  document.querySelectorAll("[style]").forEach((e) => e.matches(".fill") || bad.push(`style of ${e.className}`));
  return bad;
})()"""


def check(true, sentence):
    if not true:
        sys.exit(f"FAILED: {sentence}")


def open_page(browser, width=1440, height=1000, fragment=f"#token={TOKEN}", **media):
    page = browser.page(width, height)
    if media:
        page.media(**media)
    page.go(ADDRESS + fragment)
    return page


def end(page, complaints=()):
    """No complaint but those expected; nothing was asked of another place."""
    left = [c for c in page.complaints if not any(word in c for word in complaints)]
    check(not left, f"the browser complains: {left}")
    elsewhere = [url for url in page.requests if not url.startswith((ADDRESS, PROXY, "about:"))]
    check(not elsewhere, f"the page asks elsewhere: {elsewhere}")
    check(not any(TOKEN in url or ADMIN in url for url in page.requests), "a token is in an address")
    page.close()


def figures_come(browser):
    page = open_page(browser)
    page.wait(READY)
    check("token" not in page.run("location.href"), "the token stays in the address bar")
    check(page.run("document.querySelectorAll('#images > li').length") >= 3, "images are missing")
    check(page.run("document.querySelectorAll('#hops li').length") == 4, "hops: no proxy is there, so four")
    page.wait("document.querySelector('#health').textContent.includes('Healthy')")
    before = page.run("document.querySelector('#uptime').textContent")
    page.wait(f"document.querySelector('#uptime').textContent !== {before!r}")  # it asks again
    rows = page.run("window.row = document.querySelector('#images > li'); true")
    page.wait("performance.getEntriesByName(new URL('api/status', location).href).length >= 3")
    check(rows and page.run("window.row.isConnected"), "rows are made anew each second")
    end(page)


def a_name_is_no_markup(browser):
    added = subprocess.run(["curl", "-sS", "-G", "-X", "PUT", "--unix-socket", f"{scratch}/nbd.sock.control", "--data-urlencode",
                            f"image={scratch}/store/small:v1", "http://granary/exports/%3Cb%3Ebold%20%26%20%3Ci%3E"],
                           check=True, capture_output=True, text=True).stdout
    check('"ok":true' in added, f"an export of an odd name: {added}")
    page = open_page(browser)
    page.wait(READY)
    page.wait("[...document.querySelectorAll('.title')].some((e) => e.firstChild?.data === '<b>bold & <i>')")
    check(page.run("document.querySelectorAll('main b').length") == 0, "a name became markup")
    end(page)


# Every text that the server may have from elsewhere, as an attacker would have it: names of images and files, addresses,
# errors. Words that the page knows stay.
HOSTILE = """(() => {
  const asked = window.fetch, known = ["health", "hop", "strip", "state", "fence", "reading", "writing", "digest"];
  const bad = `<img src=x onerror="window.owned=1"><script>window.owned=1</script>'"><b>`;
  const spoil = (key, value) => (typeof value === "string" && !known.includes(key) ? value + bad : value);
  window.fetch = async (...args) => {
    const status = await (await asked(...args)).json();
    status.health_reason = "reason";
    status.waiting_exports = [{ name: "waits" }];
    status.l2 = [{ url: "proxy", state: "down", requests: 1, bytes: 1, failures: 1, wrong: 0 }];
    status.l2_lists = [{ list: "list", proxies: 1, failing_s: 9, error: "no file" }];
    status.keepers = [{ device: "device", state: "missing", pid: 1, reconnects: 1, report_age_s: 95, failed_s: 9, error: "refused" }];
    status.following = [{ name: "follows", image: "image", digest: null, versions: 1, switches: 1, behind_s: 9, reason: "no room", report_age_s: 95 }];
    status.stores.forEach((store) => { store.error = "no answer"; });
    status.slow_reads = [{ offset: 1, len: 1, ago_ms: 1, took_us: 5, index_us: 1, disk_us: 1, queued_us: 1, store_us: 2, export: "slow",
      what: "file", from: "server", failed: false }];
    return new Response(JSON.stringify(status, spoil), { headers: { "Content-Type": "application/json" } });
  };
})()"""


def nothing_said_is_markup(browser):
    page = browser.page(1440, 1000)
    page.before(HOSTILE)
    page.go(f"{ADDRESS}#token={TOKEN}")
    page.wait(READY)
    page.run("document.querySelector('[aria-label^=\"Act on faces\"]').click()")
    text = page.run("document.body.textContent")
    for word in ("faces", "waits", "proxy", "list", "no file", "no answer", "file", "reason", "slow", "server", "device", "refused"):
        check(f"{word}<img src=x" in text, f"{word} is not shown as it is")
    check(page.run("document.querySelectorAll('main img, dialog img, body script, main b').length") == 0, "a text became markup")
    check(page.run("window.owned === undefined"), "a script of a name ran")
    end(page)


def rows_have_one_key_each(browser):
    """Equal keys are rows of their own, which stay; a row that goes moves no other, and takes no focus with it."""
    page = open_page(browser)
    page.wait(READY)
    rows = page.run("""import('./draw.js').then(({ element, sync }) => {
        const list = document.querySelector('#slow'), set = (keys) => sync(list, keys, (key) => key, () => element("button"), () => {});
        set(["a", "a", "b", "c"]);
        const [first, , , last] = list.children, c = list.children[3];
        document.querySelector('#slow-s').hidden = false;
        c.focus();
        let moves = 0;
        list.insertBefore = (...args) => { moves++; return Element.prototype.insertBefore.apply(list, args); };
        for (let i = 0; i < 5; i++) set(["a", "a", "b", "c"]);
        set(["a", "b", "c"]);
        const kept = list.children.length === 3 && list.firstElementChild === first && list.lastElementChild === last;
        delete list.insertBefore;
        set(["c", "a", "b"]);
        return [kept, moves, document.activeElement === c];
    })""")
    check(rows == [True, 0, True], f"rows: {rows}")
    end(page)


def the_token_is_asked_for(browser):
    page = open_page(browser, fragment="")
    page.wait("document.querySelector('#gate').open")
    check(page.run("document.activeElement.id") == "gate-token", "the field has no focus")
    page.type("a-wrong-token-of-sufficient-length")
    page.press("Enter")
    page.wait("document.querySelector('#gate').open && !document.querySelector('#gate-wrong').hidden")
    check(page.run("document.querySelector('#gate-token').value") == "", "the wrong token stays in the field")
    page.type(TOKEN)
    page.press("Enter")
    page.wait(READY)
    end(page, ["401"])


def keys_suffice(browser):
    """From the first to the last control by Tab, each one seen; an action by keys alone, and its end is said."""
    page = open_page(browser)
    page.wait(READY)
    seen = []
    for _ in range(40):
        page.press("Tab")
        at = page.run("""(() => { const e = document.activeElement, s = getComputedStyle(e), b = e.getBoundingClientRect();
            return [e.id || e.getAttribute('aria-label') || e.className || e.tagName, s.outlineStyle !== 'none' && b.width > 4] })()""")
        if at[0] in [name for name, _ in seen] or at[0] == "BODY":
            break
        seen.append(at)
    names = [name for name, _ in seen]
    check(names[:3] == ["skip", "unlock", "filter"], f"the order of Tab: {names}")
    check(sum(name.startswith("Act on ") for name in names) >= 3, f"not each image's button: {names}")
    check(all(shown for _, shown in seen), f"a focus that is not seen: {seen}")
    page.run("document.querySelector('[aria-label=\"Act on small\"]').focus()")
    page.press("Enter")
    page.wait("document.querySelector('#act').open")
    page.press("Escape")
    page.wait("!document.querySelector('#act').open")
    check(page.run("document.activeElement.getAttribute('aria-label')") == "Act on small", "the focus does not come back")
    page.press("Enter")
    page.wait("document.querySelector('#act').open && document.activeElement.closest('#act-choices')")
    page.press("Enter")  # Warm, the first
    page.wait("document.querySelector('#gate').open")
    page.type(ADMIN)
    page.press("Escape")
    page.wait("!document.querySelector('#gate').open")
    check(page.run("document.querySelector('#jobs-s').hidden"), "it acts after Escape")
    page.press("Enter")
    page.wait("document.querySelector('#act').open && document.activeElement.closest('#act-choices')")
    page.press("Enter")
    page.wait("document.querySelector('#gate').open")
    page.type("a-wrong-token-of-sufficient-length–")
    page.press("Enter")
    page.wait("!document.querySelector('#gate-wrong').hidden")
    page.type(ADMIN)
    page.press("Enter")
    page.wait("document.querySelector('#jobs').textContent.includes('done: ')")
    page.wait("document.querySelector('#said').textContent.startsWith('Warm small: done')")
    end(page, ["401"])


def eviction_asks_first(browser):
    page = open_page(browser)
    page.wait(READY)
    page.run("document.querySelector('[aria-label=\"Act on small\"]').click()")
    page.run("[...document.querySelectorAll('#act-choices button')].find((b) => b.textContent.startsWith('Evict')).click()")
    page.wait("document.querySelector('#sure').open")
    check(page.run("document.activeElement.textContent") == "Cancel", "Enter would evict")
    page.press("Enter")
    page.wait("!document.querySelector('#sure').open")
    check(page.run("document.querySelector('#jobs-s').hidden"), "it evicts after Cancel")
    end(page)


def check_reader(page, what, wanted):
    """Contrast, markup, names and roles, as a screen reader gets them; axe's rules."""
    bad = page.run(CONTRAST) + page.run(MARKUP)
    check(not bad, f"{what}: {bad}")
    tree = page.tree()
    nameless = [role for role, name, _ in tree if not name and role in
                ("button", "textbox", "searchbox", "image", "img", "link", "dialog", "alertdialog", "progressbar", "region")]
    check(not nameless, f"{what}: no name: {nameless}")
    roles = {"image" if role == "img" else role for role, _, _ in tree}
    check(wanted <= roles, f"{what}: no {wanted - roles}")
    if AXE:
        page.run(pathlib.Path(AXE).read_text() + ";0")
        found = page.run("axe.run().then((r) => r.violations.map((v) => `${v.id}: ${v.nodes.map((n) => n.html)}`))")
        check(not found, f"axe, {what}: {found}")


def a_reader_hears_it(browser):
    for scheme in ("light", "dark"):
        page = open_page(browser, prefers_color_scheme=scheme)
        page.wait(READY)
        check_reader(page, f"the page, {scheme}", {"banner", "main", "heading", "list", "image", "searchbox", "status"})
        page.run("document.querySelector('#unlock').click()")
        page.wait("document.querySelector('#act').open")
        check_reader(page, f"a dialog, {scheme}", {"dialog", "button"})
        end(page)


def many_nodes(browser):
    page = browser.page(1280, 800)
    page.go(f"{PROXY}node1/nodes.html#nodes=/gone/,/node1/,https://evil.example/,/.//evil.example/,http://&token={TOKEN}")
    page.wait("document.querySelectorAll('#nodes > li').length === 3")
    page.wait("document.querySelector('#health').textContent.includes('2 without an answer')")
    page.wait("!/^0 B|–/.test(document.querySelector('#f-read').textContent)")
    links = page.run("[...document.querySelectorAll('#nodes a')].map((a) => a.host)")
    check(set(links) == {PROXY.split("/")[2]}, f"a node leads to another host: {links}")
    words = page.run("[...document.querySelectorAll('#nodes .health')].map((e) => e.textContent)")
    check(words == ["No answer", "No answer", "healthy"], f"nodes, the worst first: {words}")
    check("token" not in page.run("location.href + document.querySelector('#nodes').outerHTML"), "the token is in the page")
    check_reader(page, "nodes", {"banner", "main", "heading", "list", "link", "status"})
    page.run("document.querySelector('#nodes a[href$=\"/node1/\"]').click()")
    page.wait(READY)
    check(page.run("location.pathname") == "/node1/", "the link leads elsewhere")
    end(page, ["502", "404"])


def it_is_quiet(browser):
    """Only what changes rarely is said, and what moves is still where that is asked for."""
    page = open_page(browser, prefers_reduced_motion="reduce")
    page.wait(READY)
    live = page.run("[...document.querySelectorAll('[aria-live], [role=status], [role=alert]')].map((e) => e.id)")
    check(sorted(live) == ["gate-wrong", "said"], f"live regions: {live}")
    page.wait("performance.getEntriesByName(new URL('api/status', location).href).length >= 4")
    check(page.run("document.querySelector('#said').textContent") == "", "it talks though nothing happened")
    moving = page.run("""[...document.querySelectorAll('*')].map((e) => getComputedStyle(e))
        .filter((s) => s.transitionDuration !== '0s' && s.transitionProperty !== 'none').length""")
    check(not moving, f"{moving} elements move")
    end(page)


def it_fits(browser):
    for width in (320, 390, 768, 1024, 1440, 2560):
        page = open_page(browser, width, 800)
        page.wait(READY)
        wide = page.run("document.documentElement.scrollWidth")
        check(wide <= width, f"at {width} points it is {wide} wide")
        small = page.run("""[...document.querySelectorAll('button, input')].filter((e) => e.checkVisibility())
            .filter((e) => { const b = e.getBoundingClientRect(); return b.width < 24 || b.height < 24 }).map((e) => e.id || e.className)""")
        check(not small, f"at {width} points too small for a finger: {small}")
        end(page)


def speed(browser):
    """Not asserted, since machines differ: printed, for docs/internals/console.md."""
    page = open_page(browser)
    page.wait(READY)
    page.call("Performance.enable")

    def busy():
        metrics = {m["name"]: m["value"] for m in page.call("Performance.getMetrics")["metrics"]}
        return metrics["TaskDuration"], metrics["JSHeapUsedSize"]
    before, _ = busy()
    page.run("new Promise((wake) => setTimeout(wake, 5000))")
    after, heap = busy()
    loaded = page.run("performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd")
    print(f"page: shown after {loaded:.0f} ms, {1000 * (after - before) / 5:.1f} ms a second, heap {heap / 1048576:.1f} MiB")
    end(page)


def take_pictures(browser):
    sizes = {"console-light": (1440, 1080, "light"), "console-dark": (1440, 1080, "dark"), "console-narrow": (390, 844, "light")}
    for name, (width, height, scheme) in sizes.items():
        page = open_page(browser, width, height, prefers_color_scheme=scheme)
        page.wait(READY)
        page.run("new Promise((wake) => setTimeout(wake, 12000))")  # figures of ten seconds, and a line of them
        page.picture(f"{pictures}/{name}.png")
        check(os.path.getsize(f"{pictures}/{name}.png") > 20000, f"hardly anything is on {name}")
        end(page)


def a_server_that_is_gone(browser):
    page = open_page(browser)
    page.wait(READY)
    os.kill(int(server), signal.SIGTERM)
    page.wait("document.querySelector('#health').textContent.includes('No answer') && document.body.className === 'stale'")
    page.wait("document.querySelector('#said').textContent.startsWith('The server does not answer.')")
    check(page.run("document.querySelectorAll('#images > li').length") >= 3, "what was there is gone from the page")
    end(page, ["Failed to load resource", "ERR_"])


browser = Browser(scratch)
try:
    urllib.request.urlopen(ADDRESS, timeout=60).close()
    for part in (take_pictures, figures_come, a_name_is_no_markup, nothing_said_is_markup, rows_have_one_key_each, the_token_is_asked_for, keys_suffice, eviction_asks_first, a_reader_hears_it,
                 many_nodes, it_is_quiet, it_fits, speed, a_server_that_is_gone):
        print(f"== {part.__name__.replace('_', ' ')}", flush=True)
        part(browser)
finally:
    browser.close()
