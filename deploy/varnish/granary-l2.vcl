# A shared cache proxy for Granary (l2=URL): Varnish in front of a store in a bucket. docs/operations/shared-cache.md has
# the whole story, and says what nginx does better. Edit what is marked <--, and start for example
#
#   varnishd -f granary-l2.vcl -a :8080 -s granary=file,/var/lib/varnish/granary,400G
#
# Only packs and index nodes pass: they never change, and their readers check every byte. The proxy sends no
# credentials: the bucket has to let its address read.
vcl 4.1;

backend store {
    .host = "BUCKET.s3.eu-central-1.amazonaws.com"; # <-- without TLS, which Varnish does not have
    .port = "80";                                   # <--
    # Granary turns to the store when nothing comes for 5 s. Be sooner, so that it hears why.
    .connect_timeout = 2s;
    .first_byte_timeout = 4s;
    .between_bytes_timeout = 4s;
}

acl readers { # <-- who may reach it may read what it holds
    "10.0.0.0"/8;
    "127.0.0.1";
}

sub vcl_recv {
    if (client.ip !~ readers) {
        return (synth(403));
    }
    if (req.method != "GET") {
        return (synth(405));
    }
    if (req.url !~ "/(packs|indexes)/[0-9a-f][0-9a-f]/[0-9a-f]+$") {
        return (synth(404));
    }
    set req.http.Host = "BUCKET.s3.eu-central-1.amazonaws.com"; # <--
    unset req.http.Cookie;
    unset req.http.Granary-Chunks; # for nodes; a bucket takes no header of 8 KiB
    unset req.http.Granary-Proof;
    unset req.http.Authorization;
    return (hash); # a range, too: the whole object is fetched and kept, and the range is sent as soon as it is there
}

sub vcl_backend_response {
    if (beresp.status != 200) { # a 404 that it kept would hide a pack that was put back
        set beresp.uncacheable = true;
        set beresp.ttl = 0s;
        return (deliver);
    }
    unset beresp.http.Set-Cookie;
    unset beresp.http.Vary;
    set beresp.do_stream = true;
    set beresp.ttl = 3650d;
    return (deliver);
}
