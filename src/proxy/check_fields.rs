//! The fields of a check over HTTP, from its headers and its path.

use crate::http::{HttpHead, StatusCode};
use crate::proxy::nginx::{CHECK, CHECK_200, CheckOptions};
use slowlane_core::base::{FIELDS_MAX, Field, Network, Value, is_same_name, peer};
use slowlane_core::policy::first_segment;

/// The prefix of headers that carry fields. The rest of the header's name is the field's name.
pub(super) const FIELD_PREFIX: &str = "x-slowlane-";

/// Whether answers have a header with this name after the prefix `x-slowlane-`. Such a name is never a field, because a
/// proxy may copy the header into its next check.
fn is_answer(name: &[u8]) -> bool {
    matches!(name, b"verdict" | b"slo" | b"delay" | b"remaining" | b"ticket")
}

const SOURCE: &[u8] = b"source";
const PAGE: &[u8] = b"page";
const PAGE_BYTES_MAX: usize = 64;
const SOURCE_HEADER: &str = "x-slowlane-source";

/// The maximum number of hops that are examined. If all of them are trusted, the last hop is taken as the client.
const HOPS_MAX: usize = 32;

pub(super) const FORWARDED_FOR: &str = "x-forwarded-for";
const FORWARDED_HOST: &str = "x-forwarded-host";
const FORWARDED_METHOD: &str = "x-forwarded-method";
const FORWARDED_URI: &str = "x-forwarded-uri";

/// The fields in the headers: `X-Slowlane-Api-Key: k` is the field `api_key`. There are at most [`FIELDS_MAX`] of them.
///
/// Empty headers are skipped. If two headers have the same name, the first is used. All values are text; the policy
/// parses addresses.
///
/// `deny=429` means a proxy like Traefik or Caddy. Its headers `X-Forwarded-For`, `-Host`, `-Method` and `-Uri` fill
/// the fields `source`, `website`, `method` and `page`. The path that a proxy like Envoy appends to `/check` also fills
/// the field `page`. An `X-Slowlane-` header takes precedence over these.
pub fn fields<'a>(head: &HttpHead<'a>, options: CheckOptions) -> impl Iterator<Item = Field<'a>> {
    let forwarded = (options.deny == StatusCode::TOO_MANY_REQUESTS).then(|| forwarded(head));
    let appended = appended(head.path).and_then(|path| unless_named(head, PAGE, page(path)));
    named(head).chain(forwarded.into_iter().flatten()).chain(appended).take(FIELDS_MAX)
}

/// The path of the client's request that a proxy has appended to the path of a check.
fn appended(path: &[u8]) -> Option<&[u8]> {
    let after = |check| path.strip_prefix(check).filter(|rest: &&[u8]| rest.starts_with(b"/"));
    after(CHECK_200).or_else(|| after(CHECK))
}

/// The beginning of the first segment of a path, as the files for HAProxy and nginx send it. The rest of the path may hold
/// secrets, and fields are logged.
pub(super) fn page(path: &[u8]) -> &[u8] {
    let segment = first_segment(path);
    &segment[..segment.len().min(PAGE_BYTES_MAX)]
}

fn named<'a>(head: &HttpHead<'a>) -> impl Iterator<Item = Field<'a>> + use<'a> {
    head.headers().filter_map(|(name, value)| {
        let name = name.strip_prefix(FIELD_PREFIX.as_bytes())?;
        (!value.is_empty() && !is_answer(name)).then_some(Field { name, value: Value::Text(value) })
    })
}

fn forwarded<'a>(head: &HttpHead<'a>) -> impl Iterator<Item = Field<'a>> {
    let forwarded: [(&[u8], _); 4] = [
        (SOURCE, forwarded_source(head)),
        (b"website", head.header(FORWARDED_HOST)),
        (b"method", head.header(FORWARDED_METHOD)),
        (PAGE, head.header(FORWARDED_URI).map(page)),
    ];
    forwarded.into_iter().filter_map(move |(name, value)| unless_named(head, name, value?))
}

/// A field, unless its value is empty or an `X-Slowlane-` header sets the field.
fn unless_named<'a>(head: &HttpHead<'a>, name: &'static [u8], value: &'a [u8]) -> Option<Field<'a>> {
    let is_named = || named(head).any(|field| is_same_name(field.name, name));
    (!value.is_empty() && !is_named()).then_some(Field { name, value: Value::Text(value) })
}

/// The last address of the last `X-Forwarded-For`, which the querying proxy added. Clients can forge earlier addresses.
fn forwarded_source<'a>(head: &HttpHead<'a>) -> Option<&'a [u8]> {
    let last = head.all(FORWARDED_FOR).next_back()?;
    last.rsplit(|&byte| byte == b',').next().map(<[u8]>::trim_ascii)
}

/// The field `source` of a client behind trusted proxies. `None` without such proxies, or without an address.
///
/// The first hop is `X-Slowlane-Source`, the peer of the querying proxy. The next hops are the entries of
/// `X-Forwarded-For`, from the right: each proxy has added its own peer to that header. The client is the first hop
/// that is not in a trusted network, or else the last hop. The client may have written all later hops.
///
/// Without `X-Slowlane-Source`, the querying proxy must have added an entry, as with `deny=429`: otherwise the client
/// may have written the last entry.
pub fn client<'a>(head: &HttpHead<'a>, options: CheckOptions, trusted: &[Network]) -> Option<Field<'a>> {
    if trusted.is_empty() {
        return None;
    }
    let sent = head.header(SOURCE_HEADER).filter(|value| !value.is_empty());
    let has_hops = sent.is_some() || options.deny == StatusCode::TOO_MANY_REQUESTS;
    let hops = head.all(FORWARDED_FOR).rev().flat_map(|list| list.rsplit(|&byte| byte == b','));
    let hops = hops.map(<[u8]>::trim_ascii).filter(|hop| has_hops && !hop.is_empty());
    let mut hops = sent.into_iter().chain(hops).take(HOPS_MAX);
    let is_trusted =
        |hop: &[u8]| peer(hop).is_some_and(|address| trusted.iter().any(|network| network.contains(address)));
    let mut client = hops.next()?;
    while is_trusted(client) {
        match hops.next() {
            Some(hop) => client = hop,
            None => break,
        }
    }
    Some(Field { name: SOURCE, value: Value::Text(client) })
}

/// The same as [`fields`], with the source that [`client`] has found.
pub fn fields_of<'a>(
    head: &HttpHead<'a>,
    options: CheckOptions,
    source: Field<'a>,
) -> impl Iterator<Item = Field<'a>> {
    let others = fields(head, options).filter(|field| field.name != SOURCE);
    [source].into_iter().chain(others).take(FIELDS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::nginx::tests::{head, options};
    use slowlane_core::base::Request;

    fn request(head: &HttpHead<'static>, options: CheckOptions) -> Request<'static> {
        let mut request = Request::new();
        fields(head, options).for_each(|Field { name, value }| request.push(name, value));
        request
    }

    fn source(query: &str, sent: Option<&str>, lists: &[&str]) -> Option<String> {
        let trusted = ["10.0.0.0/8", "2001:db8:cd::/48"].map(|network| network.parse().unwrap());
        let sent = sent.into_iter().map(|source| ("X-Slowlane-Source", source));
        let headers: Vec<_> = sent.chain(lists.iter().map(|list| ("X-Forwarded-For", *list))).collect();
        let (head, options) = (head(&format!("/check{query}"), &headers), options(query.strip_prefix('?')));
        let source = client(&head, options, &trusted)?;
        let mut request = Request::new();
        fields_of(&head, options, source).for_each(|Field { name, value }| request.push(name, value));
        assert_eq!(fields_of(&head, options, source).filter(|field| field.name == SOURCE).count(), 1);
        match request.get(SOURCE)? {
            Value::Text(text) => Some(String::from_utf8_lossy(text).into_owned()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_client_is_the_first_hop_from_the_right_that_is_not_trusted() {
        let nginx = |sent, lists: &[&str]| source("", Some(sent), lists);
        let is = |address: &str| Some(address.to_owned());
        assert_eq!(
            nginx("192.0.2.1", &["198.51.100.7"]),
            is("192.0.2.1"),
            "its peer is no proxy: it may lie"
        );
        assert_eq!(nginx("10.0.0.1", &["192.0.2.1"]), is("192.0.2.1"));
        assert_eq!(
            nginx("10.0.0.1", &["198.51.100.7, 192.0.2.1, 10.2.3.4"]),
            is("192.0.2.1"),
            "a forged one"
        );
        assert_eq!(
            nginx("10.0.0.1", &["198.51.100.7", "192.0.2.1,10.2.3.4"]),
            is("192.0.2.1"),
            "two headers"
        );
        assert_eq!(nginx("::ffff:10.0.0.1", &["192.0.2.1"]), is("192.0.2.1"));
        assert_eq!(nginx("2001:db8:cd::1", &["[2001:db8::7]:4711"]), is("[2001:db8::7]:4711"));
        assert_eq!(nginx("10.0.0.1:443", &[" 192.0.2.1:80 ,\t[2001:db8:cd::2]:80,,"]), is("192.0.2.1:80"));
        assert_eq!(nginx("10.0.0.1", &[]), is("10.0.0.1"), "a request of the proxy itself");
        assert_eq!(nginx("10.0.0.1", &["10.0.0.3, 10.0.0.2", ""]), is("10.0.0.3"), "a client inside");
        for garbage in ["unknown", "_hidden", "-", "192.0.2.1;x", "10.0.0.1 10.0.0.2"] {
            let list = format!("198.51.100.7, {garbage}, 10.0.0.2");
            assert_eq!(nginx("10.0.0.1", &[&list]), is(garbage), "it hides no other");
        }
        assert_eq!(nginx("unix:", &["192.0.2.1"]), is("unix:"));
    }

    #[test]
    fn without_a_source_the_list_counts_only_if_the_proxy_has_added_to_it() {
        for query in ["?deny=429", "?hold=off&deny=429"] {
            let traefik = |lists: &[&str]| source(query, None, lists);
            assert_eq!(traefik(&["198.51.100.7, 192.0.2.1, 10.0.0.2"]).unwrap(), "192.0.2.1");
            assert_eq!(traefik(&["198.51.100.7, 192.0.2.1"]).unwrap(), "192.0.2.1");
            assert_eq!(traefik(&[]), None);
        }
        assert_eq!(source("", None, &["192.0.2.1, 10.0.0.2"]), None, "it may be the client's");
        assert_eq!(source("/cart", None, &["192.0.2.1"]), None);
        assert_eq!(client(&head("/check", &[("X-Slowlane-Source", "10.0.0.1")]), options(None), &[]), None);
    }

    #[test]
    fn a_list_of_ten_thousand_hops_costs_no_more_than_a_few() {
        let inside = vec!["10.0.0.9"; 5_000].join(",");
        assert_eq!(source("", Some("10.0.0.1"), &[&format!("192.0.2.1,{inside}")]).unwrap(), "10.0.0.9");
        let mut hops: Vec<String> = (1..HOPS_MAX).map(|hop| format!("10.0.0.{hop}")).collect();
        hops[0] = "192.0.2.1".to_owned();
        assert_eq!(
            source("", Some("10.0.0.1"), &[&hops.join(",")]).unwrap(),
            "192.0.2.1",
            "the last of {HOPS_MAX}"
        );
        let short = vec!["1"; 10_000].join(",");
        assert_eq!(source("", Some("10.0.0.1"), &[&short]).unwrap(), "1");
    }

    #[test]
    fn headers_are_fields_and_an_empty_one_is_none() {
        let head = head(
            "/check",
            &[
                ("x-slowlane-source", "192.0.2.1"),
                ("x-slowlane-website", "shop.example"),
                ("x-slowlane-owner", ""),
                ("x-slowlane-verdict", "pass"),
                ("x-forwarded-method", "POST"),
                ("cookie", "a=b"),
            ],
        );
        let request = request(&head, options(None));
        assert_eq!(request.get(b"source"), Some(Value::Text(b"192.0.2.1")));
        assert_eq!(request.get(b"website"), Some(Value::Text(b"shop.example")));
        for field in [&b"owner"[..], b"verdict", b"method", b"cookie"] {
            assert_eq!(request.get(field), None);
        }
    }

    #[test]
    fn a_proxy_that_names_no_fields_is_understood() {
        let head = head(
            "/check",
            &[
                ("x-forwarded-for", "203.0.113.9, 2001:db8::1"),
                ("x-forwarded-host", "Shop.Example.:8443"),
                ("x-forwarded-method", "PUT"),
                ("x-slowlane-method", "GET"),
                ("x-forwarded-uri", "/shop/shoes?size=42"),
            ],
        );
        let asked = options(Some("deny=429"));
        let request = request(&head, asked);
        assert_eq!(request.get(b"source"), Some(Value::Text(b"2001:db8::1")));
        assert_eq!(request.get(b"website"), Some(Value::Text(b"Shop.Example.:8443")));
        assert_eq!(request.get(b"method"), Some(Value::Text(b"GET")), "an explicit header overrides");
        assert_eq!(request.get(b"page"), Some(Value::Text(b"/shop")));
    }

    #[test]
    fn the_path_that_a_proxy_appends_is_the_page() {
        let page = |path, headers: &[(&str, &str)]| {
            let head = head(path, headers);
            match request(&head, CheckOptions::appended(path.as_bytes())).get(b"page") {
                Some(Value::Text(page)) => Some(String::from_utf8(page.to_vec()).unwrap()),
                _ => None,
            }
        };
        for (path, appended) in [
            ("/check", None),
            ("/check/", Some("/")),
            ("/check/shop/shoes", Some("/shop")),
            ("/check/200", Some("/200")),
            ("/check/200/", Some("/")),
            ("/check/200/shop/shoes", Some("/shop")),
            ("/check/2000", Some("/2000")),
        ] {
            assert_eq!(page(path, &[]).as_deref(), appended, "{path}");
        }
        let long = format!("/check/200/{}", "x".repeat(8_000));
        assert_eq!(page(&long, &[]).unwrap().len(), PAGE_BYTES_MAX);
        assert_eq!(page("/check/200/shop", &[("x-slowlane-page", "own")]).as_deref(), Some("own"));
        assert_eq!(page("/check/200/shop", &[("x-forwarded-uri", "/other")]).as_deref(), Some("/shop"));
    }

    #[test]
    fn of_two_lists_of_addresses_the_proxys_own_counts() {
        let forwarded = [("x-forwarded-for", "6.6.6.6"), ("x-forwarded-for", "7.7.7.7, 192.0.2.1")];
        let request = request(&head("/check", &forwarded), options(Some("deny=429")));
        assert_eq!(request.get(b"source"), Some(Value::Text(b"192.0.2.1")));
    }
}
