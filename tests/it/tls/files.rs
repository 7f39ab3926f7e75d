//! The files of TLS: read at the start, again when they change, and refused with a remedy.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use super::{POLICY, Secured};
use crate::cli::ran;
use crate::support::eventually;
use crate::support::slowlane::Slowlane;
use crate::support::spop::Line;
use crate::support::tls::{Authority, der, shown, tunnel};

/// Replaces a file by a rename, as editors do.
fn replace(path: &Path, with: &Path) {
    let new = path.with_extension("new");
    fs::copy(with, &new).unwrap();
    fs::rename(new, path).unwrap();
}

#[test]
fn an_edited_certificate_is_shown_to_new_connections() {
    let secured = Secured::start("", "");
    let (slowlane, client) = (&secured.slowlane, secured.authority.client(None));
    let first = der(&secured.pair.cert);
    assert_eq!(shown(slowlane.spop, &client), first);
    let loaded = slowlane.metric("slowlane_tls_loaded_timestamp_seconds", "listener=\"spop\"");
    let expiry = slowlane.metric("slowlane_tls_expiry_timestamp_seconds", "listener=\"spop\"");
    assert!((expiry - loaded - 365.0 * 86_400.0).abs() < 3_600.0, "{loaded} {expiry}");
    let mut open = Line::greeted(tunnel(slowlane.spop, &client));

    let new = secured.authority.pair("new");
    replace(&secured.pair.cert, &new.cert);
    // Until its key follows, the previous pair is shown.
    eventually("the half is noticed", || {
        (slowlane.metric("slowlane_tls_refused", "listener=\"spop\"") == 1.0).then_some(())
    });
    assert_eq!(shown(slowlane.spop, &client), first);
    replace(&secured.pair.key, &new.key);
    let new = der(&new.cert);
    eventually("the new one is shown", || (shown(slowlane.spop, &client) == new).then_some(()));
    eventually("for nginx, too", || (shown(slowlane.http, &client) == new).then_some(()));
    assert_eq!(slowlane.metric("slowlane_tls_refused", ""), 0.0);
    assert_eq!(open.ask(1, "192.0.2.1", "free.example").variable("verdict"), Some("pass"));

    let log = slowlane.process.log();
    let warnings: Vec<_> = log.iter().filter(|line| line.contains("[spop.tls] files not reloaded")).collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(
        warnings[0].contains("server.key: the key does not belong to the certificate in "),
        "{warnings:?}"
    );
}

#[test]
fn another_authority_of_clients_holds_for_new_connections() {
    let (clients, others) = (Authority::new("clients"), Authority::new("others"));
    let secured = Secured::for_clients_of(&clients, "");
    let [old, new] =
        [&clients, &others].map(|authority| secured.authority.client(Some(&authority.pair("own"))));
    let greets = |client| {
        let mut line = Line::silent(tunnel(secured.slowlane.spop, client));
        line.try_say(&crate::support::spop::hello()).is_ok()
            && line.hear() == crate::support::spop::Heard::Hello
    };
    assert!(greets(&old) && !greets(&new));
    replace(&clients.cert(), &others.cert());
    eventually("the others are let in", || greets(&new).then_some(()));
    // Nobody resumes what an earlier authority has allowed.
    assert!(!greets(&old));
}

/// Kubernetes keeps the files behind a link to a folder, and replaces the link.
#[test]
fn files_behind_a_replaced_link_are_read_again() {
    let (authority, folder) = (Authority::new("servers"), tempfile::tempdir().unwrap());
    let version = |name: &str| {
        let pair = authority.pair(name);
        let dir = folder.path().join(name);
        fs::create_dir(&dir).unwrap();
        fs::copy(&pair.cert, dir.join("tls.crt")).unwrap();
        fs::copy(&pair.key, dir.join("tls.key")).unwrap();
        der(&pair.cert)
    };
    let (one, two) = (version("one"), version("two"));
    let path = |name: &str| folder.path().join(name);
    symlink("one", path("..data")).unwrap();
    for name in ["tls.crt", "tls.key"] {
        symlink(format!("..data/{name}"), path(name)).unwrap();
    }
    let lines =
        format!("cert = \"{}\"\nkey = \"{}\"\n", path("tls.crt").display(), path("tls.key").display());
    let slowlane = Slowlane::with_config(POLICY, &format!("[http.tls]\n{lines}"));
    let client = authority.client(None);
    assert_eq!(shown(slowlane.http, &client), one);
    symlink("two", path("..new")).unwrap();
    fs::rename(path("..new"), path("..data")).unwrap();
    eventually("the new one is shown", || (shown(slowlane.http, &client) == two).then_some(()));
    let log = slowlane.process.log().join("\n");
    assert!(!log.contains("not reloaded"), "{log}");
}

#[test]
fn a_broken_file_leaves_the_previous_one_in_force_and_sighup_reads_again() {
    let secured = Secured::start("", "");
    let (slowlane, client) = (&secured.slowlane, secured.authority.client(None));
    let first = der(&secured.pair.cert);
    let whole = fs::read(&secured.pair.cert).unwrap();
    fs::write(&secured.pair.cert, &whole[..whole.len() / 2]).unwrap();
    let refused = || slowlane.metric("slowlane_tls_refused", "listener=\"http\"");
    eventually("it is refused", || (refused() == 1.0).then_some(()));
    assert_eq!(shown(slowlane.http, &client), first);
    fs::remove_file(&secured.pair.cert).unwrap();
    slowlane.process.signal("HUP");
    eventually("it is refused again", || {
        slowlane.process.log().join("\n").contains("No such file").then_some(())
    });
    fs::write(&secured.pair.cert, whole).unwrap();
    eventually("it is read again", || (refused() == 0.0).then_some(()));
    let reads =
        || slowlane.process.log().iter().filter(|line| line.contains("[http.tls] files reloaded")).count();
    eventually("the log says so", || (reads() == 1).then_some(()));
    slowlane.process.signal("HUP");
    eventually("SIGHUP reads unchanged files, too", || (reads() == 2).then_some(()));
    assert_eq!(shown(slowlane.http, &client), first);
}

/// What `check` and `run` say of a config with these files in `[spop.tls]`.
fn outcome(folder: &Path, cert: &Path, key: &Path, client_ca: Option<&Path>) -> (i32, String) {
    let ca = client_ca.map(|path| format!("client_ca = \"{}\"\n", path.display())).unwrap_or_default();
    let text = format!("[spop.tls]\ncert = \"{}\"\nkey = \"{}\"\n{ca}", cert.display(), key.display());
    let config = folder.join("slowlane.toml");
    fs::write(&config, text).unwrap();
    let path = config.to_str().unwrap();
    let checked = ran(&["check", "--config", path]);
    let problems = checked.problems.join("\n");
    if checked.code == 1 {
        let served = ran(&["run", "--config", path]);
        assert_eq!((served.code, served.problems.len()), (1, 1), "{:?}", served.problems);
        // The start names the file, and `check` the line of the config as well.
        let (_, outcome) = problems.split_once(": ").unwrap();
        assert_eq!(outcome, served.problems[0]);
    }
    (checked.code, problems.replace(&format!("{}/", folder.display()), ""))
}

#[test]
fn files_that_cannot_be_used_are_told_with_a_remedy() {
    let (authority, other) = (Authority::new("servers"), Authority::new("others"));
    let (good, foreign) = (authority.pair("good"), other.pair("foreign"));
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        // Otherwise a key that others may read is a warning.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    };
    let empty = file("empty.pem", b"");
    let damaged = file("damaged.pem", b"-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n");
    let no_der = file("no-der.pem", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    let bad_key = file("bad.key", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n");
    let long = file("long.pem", &[b'x'; (1 << 20) + 1]);
    let [pkcs8, traditional] = [("pkcs8", &["pkey"][..]), ("traditional", &["ec"])].map(|(name, command)| {
        let path = folder.path().join(format!("{name}.key"));
        let args = ["-aes256", "-passout", "pass:secret", "-in", good.key.to_str().unwrap(), "-out"];
        let status =
            std::process::Command::new("openssl").args(command).args(args).arg(&path).output().unwrap();
        assert!(status.status.success(), "{status:?}");
        path
    });
    let encrypted = "the key is encrypted, and slowlane cannot ask for its passphrase; use `openssl pkey` \
                     to write the key without a passphrase";
    let pem = "expected PEM that begins with -----BEGIN CERTIFICATE-----";
    let missing = folder.path().join("missing.pem");
    let good_cert = good.cert.display();
    for (cert, key, ca, line, expected) in [
        (&missing, &good.key, None, 2, "missing.pem: No such file or directory (os error 2); slowlane must be able to read the file".to_owned()),
        (&empty, &good.key, None, 2, format!("empty.pem: the file has no certificate; {pem}")),
        (&good.key, &good.key, None, 2, format!("{}: the file has no certificate; {pem}", good.key.display())),
        (&damaged, &good.key, None, 2, "damaged.pem: expected PEM, but a line is damaged".into()),
        (&no_der, &good.key, None, 2, "no-der.pem: the certificate cannot be used: ".into()),
        (&long, &good.key, None, 2, "long.pem: expected a file of at most 1024 KiB".into()),
        (&folder.path().to_owned(), &good.key, None, 2, ": expected a file of at most 1024 KiB".into()),
        (&good.cert, &empty, None, 3, "empty.pem: the file has no private key; expected PEM like -----BEGIN PRIVATE KEY-----".into()),
        (&good.cert, &bad_key, None, 3, "bad.key: the key cannot be used; expected RSA of 2048 bits or more, ECDSA P-256 or P-384, or Ed25519".into()),
        (&good.cert, &pkcs8, None, 3, format!("pkcs8.key: {encrypted}")),
        (&good.cert, &traditional, None, 3, format!("traditional.key: {encrypted}")),
        (&good.cert, &foreign.key, None, 3, format!("{}: the key does not belong to the certificate in {good_cert}", foreign.key.display())),
        (&good.cert, &good.key, Some(&empty), 4, "empty.pem: the file has no certificate; expected the certificates of the CAs to trust".into()),
        (&good.cert, &good.key, Some(&missing), 4, "missing.pem: No such file or directory (os error 2); slowlane must be able to read the file".into()),
    ] {
        let (code, outcome) = outcome(folder.path(), cert, key, ca.map(|path: &std::path::PathBuf| path.as_path()));
        let outcome = outcome.replace(&folder.path().display().to_string(), "");
        assert!(code == 1 && outcome.starts_with(&format!("slowlane.toml:{line}: [spop.tls] {expected}")), "{outcome}");
    }
    assert_eq!(outcome(folder.path(), &good.cert, &good.key, Some(&other.cert())), (0, String::new()));
}

#[test]
fn an_expired_certificate_is_a_warning() {
    let (authority, folder) = (Authority::new("servers"), tempfile::tempdir().unwrap());
    let old = authority.expired_pair("old");
    let (code, warning) = outcome(folder.path(), &old.cert, &old.key, None);
    assert_eq!(code, 0);
    assert!(warning.contains("old.pem: the certificate expired on 20"), "{warning}");
    let slowlane = Slowlane::with_config(POLICY, &format!("[spop.tls]\n{}", old.lines()));
    assert!(slowlane.process.log().join("\n").contains("the certificate expired on 20"));
}

#[test]
fn half_of_a_pair_is_a_mistake() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("slowlane.toml");
    for (text, expected) in [
        ("[spop.tls]\ncert = \"a.pem\"\n", ":2: [spop.tls] has cert but no key: set both"),
        ("[http.tls]\nkey = \"a.key\"\n", ":2: [http.tls] has key but no cert: set both"),
        ("[admin.tls]\nclient_ca = \"a.pem\"\n", ":2: [admin.tls] has client_ca but no cert: set both"),
        ("[cluster]\ncert = \"a.pem\"\n", ":2: [cluster] has cert but no key: set both"),
        (
            "[http.tls]\ncertificate = \"a.pem\"\n",
            ":2: unknown field `certificate`, expected one of `cert`, `key`, `client_ca`",
        ),
    ] {
        let mut file = fs::File::create(&config).unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let checked = ran(&["check", "--config", config.to_str().unwrap()]);
        assert_eq!(checked.problems, [format!("{}{expected}", config.display())]);
    }
}
