//! Clients behind a CDN, which a proxy must tell apart. Five requests of each source pass.

use super::client::Client;

/// The CDN's only address, in the network that the proxy trusts.
const CDN: &str = "127.9.1.1";

/// The network of the CDN, and the one of a load balancer behind it.
pub const NETWORKS: [&str; 2] = ["127.9.1.0/24", "127.9.3.0/24"];

const LOAD_BALANCER: &str = "127.9.3.1";

/// A client whose packets come from this address.
pub type From<'a> = &'a dyn Fn(&str) -> Client;

/// The number of ten requests that pass, each with the next of these headers in turn. Each invents the other headers of
/// proxies, which a CDN may pass on.
fn passed(client: &mut Client, forwarded: &[&str]) -> usize {
    let mut ask = |number: usize| {
        let (website, method) = (format!("w{number}.example"), format!("M{number}"));
        let mut headers = vec![
            ("Host", "shop.example"),
            ("X-Real-IP", "10.7.7.7"),
            ("X-Forwarded-Host", &website),
            ("X-Forwarded-Method", &method),
            ("X-Slowlane-Source", "10.7.7.8"),
            ("X-Slowlane-Website", &website),
        ];
        // Each part is a header of its own.
        let lists = forwarded[number % forwarded.len()].split('+');
        headers.extend(lists.map(|list| ("X-Forwarded-For", list)));
        client.request("GET", "/", &headers, "").status
    };
    (0..10).filter(|&number| ask(number) == 200).count()
}

/// Each client counts for itself, as the CDN tells them apart. A stranger is one client, whatever it says.
pub fn one_hop(from: From<'_>) {
    let mut stranger = from("127.9.2.1");
    assert_eq!(passed(&mut stranger, &["10.0.0.1", "10.0.0.2", "10.0.0.3, 127.9.1.1"]), 5);
    let mut cdn = from(CDN);
    assert_eq!(passed(&mut cdn, &["10.0.0.1", "10.0.0.2"]), 10, "two clients over one connection");
    assert_eq!(passed(&mut cdn, &["10.0.0.1", "10.0.0.2"]), 0);
    let forged = ["1.1.1.1, 10.0.0.4", "1.1.1.2,10.0.0.4", "1.1.1.3+10.0.0.4"];
    assert_eq!(passed(&mut cdn, &forged), 5, "the last address is the one that the CDN has seen");
}

/// The same through the load balancer, which adds the address of the CDN or of its own client.
pub fn two_hops(from: From<'_>) {
    let mut balancer = from(LOAD_BALANCER);
    assert_eq!(passed(&mut balancer, &["10.1.0.1, 127.9.1.1", "10.1.0.2, 127.9.1.1"]), 10);
    let forged =
        ["1.1.1.1, 10.1.0.3, 127.9.1.1", "1.1.1.2+10.1.0.3, 127.9.1.1", "1.1.1.3,10.1.0.3+127.9.1.1"];
    assert_eq!(passed(&mut balancer, &forged), 5);
    let past_the_cdn = ["10.1.0.4, 127.9.2.2", "10.1.0.5, 127.9.2.2", "10.1.0.6, 127.9.1.1, 127.9.2.2"];
    assert_eq!(passed(&mut balancer, &past_the_cdn), 5, "one client of the load balancer itself");
}
