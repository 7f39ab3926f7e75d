//! Examples that tell requests apart by what they ask for: a login path, an API key, a daily quota, a page of your own.

use super::stage::{Stage, in_each_haproxy};
use crate::support::eventually;

/// Eleven attempts from one source, in spellings that an application may take for the same path.
#[test]
fn the_eleventh_login_is_refused_and_nothing_else() {
    in_each_haproxy("login", |mut stage| {
        stage.start();
        let mut client = stage.client();
        let mut ask = |method: &str, path: &str| client.request(method, path, &[], "");
        for _ in 0..5 {
            assert_eq!(ask("POST", "/login").status, 200);
        }
        for path in ["//login", "/LOGIN", "/%6cogin", "/login?user=1", "/api/session"] {
            assert_eq!(ask("POST", path).status, 200, "{path}");
        }
        let refused = ask("POST", "/login");
        assert_eq!(refused.status, 429);
        assert!(refused.header("retry-after").unwrap().parse::<u32>().unwrap() <= 10, "{refused:?}");
        for path in ["//login", "/LOGIN", "/%6cogin", "/login/of-a-new-name", "/api/session"] {
            assert_eq!(ask("POST", path).status, 429, "{path}");
        }
        for (method, path) in [("GET", "/login"), ("POST", "/comment"), ("PUT", "/login")] {
            assert_eq!(ask(method, path).status, 200, "{method} {path}");
        }
        // The map has the whole names.
        for path in ["/logi", "/logout", "/api/sessio", "/api/orders"] {
            assert_eq!(ask("POST", path).status, 200, "{path}");
        }
        assert_eq!(stage.client_from("127.9.0.1").request("POST", "/login", &[], "").status, 200);
    });
}

/// Ten attempts, in spellings that some application takes for the login.
#[test]
fn no_spelling_of_a_login_gets_past_its_slo() {
    in_each_haproxy("login", |mut stage| {
        stage.start();
        let ask = |method: &str, path: &str| stage.client().request(method, path, &[], "").status;
        for path in ["/;a/login", "/login;a", "/api;a=b/session", "/%2flogin", "/;/%4c%4f%47%49%4e"] {
            assert_eq!([ask("POST", path), ask("POST", path)], [200; 2], "{path}");
        }
        let long = format!("/login/{}", "x".repeat(12_000));
        for path in ["/login", "/;a/login", "/login;a", "/api;a=b/session", &long] {
            assert_eq!(ask("POST", path), 429, "{path}");
        }
        assert_eq!(stage.app.count(), 10);
        for method in ["post", "Post", "BREW"] {
            assert_eq!(ask(method, "/login"), 405, "{method}");
        }
        let dots = ["/./login", "/x/../login", "/x/%2e%2e/login", "/x/..;a/login", "/.;a/login", "/login/.."];
        let unreadable = ["/login/%zz", "/login%", "/%6", "/\\login", "/x\\..\\login", "/%5clogin"];
        for path in dots.into_iter().chain(unreadable) {
            assert_eq!(ask("POST", path), 400, "{path}");
        }
        assert_eq!(stage.app.count(), 10, "the application sees none of them");
        for path in ["/.well-known/login", "/a..b/c.html", "/...", "/100%25"] {
            assert_eq!(ask("GET", path), 200, "{path}");
        }
    });
}

/// A customer's keys count by method, from any address; without a known key, each source has little.
fn each_key_has_its_own(stage: &Stage) {
    let (mut one, mut other) = (stage.client_from("127.9.0.1"), stage.client_from("127.9.0.2"));
    let acme = [("X-Api-Key", "secret-of-acme")];
    let mut passed = 0;
    for _ in 0..30 {
        for client in [&mut one, &mut other] {
            passed += u32::from(client.request("GET", "/", &acme, "").status == 200);
        }
    }
    // 20 at once, and 10 a second while they were asked.
    assert!((20..60).contains(&passed), "{passed}");
    assert_eq!(stage.verdicts(6001, "pass"), f64::from(passed));
    assert_eq!(stage.verdicts(6001, "deny"), f64::from(60 - passed));
    assert_eq!(one.request("POST", "/", &acme, "").status, 200, "another method has its own bucket");
    let globex = [("X-Api-Key", "secret-of-globex")];
    assert_eq!(one.request("GET", "/", &globex, "").status, 200, "another key has its own bucket");

    // Made-up keys are counted with their source.
    for (number, status) in [200; 5].into_iter().chain([429; 5]).enumerate() {
        let key = [("X-Api-Key", &*format!("guess-{number}"))];
        assert_eq!(one.request("GET", "/", &key, "").status, status, "guess {number}");
    }
    assert_eq!(other.request("GET", "/", &[], "").status, 200);

    // Each method has its bucket, so a client must not invent methods.
    let before = stage.app.count();
    for method in ["BREW", "GETX", "M-SEARCH"] {
        assert_eq!(stage.client().request(method, "/", &globex, "").status, 405, "{method}");
    }
    assert_eq!(stage.app.count(), before);
}

#[test]
fn each_api_key_has_its_own_slo_in_haproxy() {
    in_each_haproxy("api-key", |mut stage| {
        stage.start();
        each_key_has_its_own(&stage);
        let before = stage.app.count();
        let two = [("X-Api-Key", "secret-of-acme"), ("X-Api-Key", "secret-of-globex")];
        assert_eq!(stage.client().request("GET", "/", &two, "").status, 400, "which one counts?");
        assert_eq!(stage.app.count(), before);
    });
}

/// An application may read all of a header of which a proxy reads the last part.
#[test]
fn a_key_with_a_comma_is_one_key() {
    in_each_haproxy("api-key", |mut stage| {
        stage.start();
        let key = [("X-Api-Key", "a-guess, secret-of-acme")];
        assert_eq!(stage.client().request("GET", "/", &key, "").status, 200);
        assert_eq!([stage.verdicts(3001, "pass"), stage.verdicts(6001, "pass")], [1.0, 0.0]);
    });
}

#[test]
fn each_api_key_has_its_own_slo_in_nginx() {
    each_key_has_its_own(&Stage::play("api-key", "nginx"));
    let stage = Stage::play("api-key", "nginx");
    let unfit = stage.client().request("GET", "/", &[("X-Api-Key", "secret\u{1}")], "");
    assert_eq!((unfit.status, stage.judged()), (403, 0.0), "no header can carry it");
    let two = [("X-Api-Key", "secret-of-acme"), ("X-Api-Key", "secret-of-globex")];
    assert_eq!(stage.client().request("GET", "/two", &two, "").status, 200);
    let seen = stage.app.saw("/two").headers.into_iter().filter(|header| header.starts_with("x-api-key"));
    assert_eq!(seen.count(), 1, "the application gets only the key that was counted");
}

/// A thousand requests of a customer, with either of its keys, from any address.
#[test]
fn a_customer_has_its_daily_quota() {
    in_each_haproxy("daily-quota", |mut stage| {
        stage.start_slowlane_at_noon();
        stage.start_proxy("haproxy");
        let keys = ["secret-of-acme", "second-secret-of-acme"];
        let mut clients = ["127.9.0.1", "127.9.0.2"].map(|source| stage.client_from(source));
        let mut ask = |number: usize| {
            let key = [("X-Api-Key", keys[number % 2])];
            clients[number / 2 % 2].request("GET", "/", &key, "")
        };
        for number in 0..1000 {
            assert_eq!(ask(number).status, 200, "request {number}");
        }
        for number in 0..4 {
            let refused = ask(number);
            assert_eq!(refused.status, 429);
            let left: u32 = refused.header("retry-after").unwrap().parse().unwrap();
            assert!((1..=43_200).contains(&left), "{left} s to midnight");
        }
        let status = |key| stage.client().request("GET", "/", &[("X-Api-Key", key)], "").status;
        assert_eq!([status("secret-of-globex"), status("a-guess")], [200, 401]);
        assert_eq!(status("secret-of-acme, secret-of-globex"), 401, "this is no key");
        let two = [("X-Api-Key", "secret-of-acme"), ("X-Api-Key", "secret-of-globex")];
        assert_eq!(stage.client().request("GET", "/", &two, "").status, 400, "whose quota?");
    });
}

#[test]
fn a_dry_run_delays_nobody_and_counts() {
    in_each_haproxy("dry-run", |mut stage| {
        stage.start();
        let mut client = stage.client();
        assert!((0..20).all(|_| client.request("GET", "/", &[], "").status == 200));
        assert_eq!(stage.verdicts(3001, "pass"), 20.0);
        let shadow = |verdict| stage.metric("slowlane_shadow_verdicts_total", verdict);
        assert_eq!(shadow("verdict=\"deny\"") + shadow("verdict=\"delay\""), 15.0);

        // The README's last step: the same SLO in force.
        stage.edit("maps/slo.map", "rate=6/m dry_run=yes", "rate=6/m");
        eventually("it is in force", || (client.request("GET", "/", &[], "").status == 429).then_some(()));
    });
}

#[test]
fn a_refusal_is_a_page_or_a_problem_of_your_own_in_haproxy() {
    in_each_haproxy("own-page", |mut stage| {
        stage.start();
        let mut client = stage.client();
        assert!((0..5).all(|_| client.request("GET", "/", &[], "").body == "ok\n"));
        let page = client.request("GET", "/", &[], "");
        assert_eq!((page.status, page.header("content-type")), (503, Some("text/html; charset=utf-8")));
        assert!(page.body.contains("Please try again") && page.header("retry-after").is_some(), "{page:?}");
        let problem = client.request("GET", "/api/orders", &[], "");
        assert_eq!((problem.status, problem.header("content-type")), (429, Some("application/problem+json")));
        assert!(problem.body.contains("Too Many Requests") && problem.header("retry-after").is_some());
        assert_eq!(stage.app.count(), 5);
    });
}

#[test]
fn a_refusal_is_a_page_of_your_own_in_nginx() {
    let stage = Stage::play("own-page", "nginx");
    let mut client = stage.client();
    assert!((0..5).all(|_| client.request("GET", "/", &[], "").body == "ok\n"));
    let page = client.request("GET", "/", &[], "");
    assert_eq!((page.status, page.header("content-type")), (503, Some("text/html")));
    assert!(page.body.contains("Please try again") && page.header("retry-after").is_some(), "{page:?}");
    assert_eq!(client.request("GET", "/busy.html", &[], "").status, 404, "nobody can ask for it");
    assert_eq!(stage.app.count(), 5);
}

/// An error page of an error page: the refusal of nginx itself would lead to itself.
#[test]
fn a_forbidden_location_is_not_a_loop_in_nginx() {
    let mut stage = Stage::set("own-page");
    stage.edit(
        "nginx.conf",
        "        location / {",
        "        location /private { deny all; }\n        location / {",
    );
    stage.start_slowlane();
    stage.start_proxy("nginx");
    assert_eq!(stage.client().request("GET", "/private", &[], "").status, 403);
}
