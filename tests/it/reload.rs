//! Hot reloads after edits by editors, `cp` and Kubernetes.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::support::client::{self, Client};
use crate::support::eventually;
use crate::support::process::Process;
use crate::support::slowlane::{BINARY, Slowlane};

/// The time without changes before an edit is read.
const SETTLE: Duration = Duration::from_millis(100);

const SLO_MAP: &str =
    "0 burst=1000000 rate=5000/s\n1001 burst=9 rate=9/s\n2001 burst=9 rate=9/s\n2002 burst=9 rate=9/s\n";

fn slowlane() -> Slowlane {
    Slowlane::with_policy(&[("slo.map", SLO_MAP), ("website.map", "shop.example 2001\n")])
}

/// The SLO of `shop.example`.
fn slo(slowlane: &Slowlane) -> String {
    let answer = client::get(slowlane.http, "/check?hold=off", &[("X-Slowlane-Website", "shop.example")]);
    answer.header("x-slowlane-slo").unwrap().to_owned()
}

fn serves(slowlane: &Slowlane, expected: &str) {
    eventually(&format!("SLO {expected} is served"), || (slo(slowlane) == expected).then_some(()));
}

fn reloads(slowlane: &Slowlane, result: &str) -> f64 {
    slowlane.metric("slowlane_policy_reloads_total", &format!("result=\"{result}\""))
}

fn refused(slowlane: &Slowlane) {
    eventually("the edit is refused", || (reloads(slowlane, "refused") >= 1.0).then_some(()));
}

/// Root can read any file, so this only shows that a change of permissions is noticed.
#[test]
fn a_file_whose_permissions_are_mended_is_read_again() {
    let slowlane = slowlane();
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o640);
    fs::set_permissions(slowlane.policy().join("slo.map"), permissions).unwrap();
    eventually("it was read again", || (reloads(&slowlane, "done") == 1.0).then_some(()));
}

/// Replaces a file by a rename, as editors do.
fn rename_over(path: &Path, text: &str) {
    let new = path.with_extension("map~");
    fs::write(&new, text).unwrap();
    fs::rename(new, path).unwrap();
}

/// Replaces a link by a rename.
fn link_over(target: &str, path: &Path) {
    let new = path.with_file_name("link~");
    symlink(target, &new).unwrap();
    fs::rename(new, path).unwrap();
}

#[test]
fn a_file_that_is_written_in_place_is_read_again() {
    let slowlane = slowlane();
    assert_eq!(slo(&slowlane), "2001");
    for expected in ["2002", "2001", "0"] {
        fs::write(slowlane.policy().join("website.map"), format!("shop.example {expected}\n")).unwrap();
        serves(&slowlane, expected);
    }
    fs::write(slowlane.policy().join("website.map"), "").unwrap();
    fs::write(slowlane.policy().join("source.map"), "0.0.0.0/0 2002\n").unwrap();
    let asked = || client::get(slowlane.http, "/check?hold=off", &[("X-Slowlane-Source", "192.0.2.1")]);
    eventually("a map that is new is read", || {
        (asked().header("x-slowlane-slo") == Some("2002")).then_some(())
    });
    assert_eq!(reloads(&slowlane, "refused"), 0.0);
}

#[test]
fn a_file_that_is_written_in_many_steps_is_read_to_its_end() {
    let slowlane = slowlane();
    let mut file = OpenOptions::new().append(true).open(slowlane.policy().join("website.map")).unwrap();
    for number in 0..100 {
        writeln!(file, "w{number}.example 2002").unwrap();
        thread::sleep(Duration::from_millis(3));
    }
    let asked = || client::get(slowlane.http, "/check?hold=off", &[("X-Slowlane-Website", "w99.example")]);
    eventually("the last line is served", || {
        (asked().header("x-slowlane-slo") == Some("2002")).then_some(())
    });
}

#[test]
fn a_file_that_another_is_renamed_over_is_read_again() {
    let slowlane = slowlane();
    for expected in ["2002", "2001", "2002"] {
        rename_over(&slowlane.policy().join("website.map"), &format!("shop.example {expected}\n"));
        serves(&slowlane, expected);
    }
    rename_over(
        &slowlane.policy().join("slo.map"),
        "0 burst=1 rate=1/s\n2002 burst=1 rate=1/s law=adaptive\n",
    );
    eventually("slo.map is read again", || (reloads(&slowlane, "done") == 4.0).then_some(()));
    assert_eq!(slo(&slowlane), "2002");
}

/// The kubelet writes a version to a new directory, swaps the link, adds and removes links of files, and removes the old
/// version.
#[test]
fn a_volume_of_kubernetes_is_read_again_whenever_its_link_is_swapped() {
    let slowlane = slowlane();
    let dir = slowlane.policy();
    let version = |name: &str, slo: &str| {
        fs::create_dir(dir.join(name)).unwrap();
        fs::write(dir.join(name).join("slo.map"), SLO_MAP).unwrap();
        fs::write(dir.join(name).join("website.map"), format!("shop.example {slo}\n")).unwrap();
    };
    // slo.map -> ..data/slo.map, ..data -> ..1, and so for every file.
    version("..1", "2002");
    symlink("..1", dir.join("..data")).unwrap();
    link_over("..data/slo.map", &dir.join("slo.map"));
    link_over("..data/website.map", &dir.join("website.map"));
    serves(&slowlane, "2002");
    for (old, new, expected) in [("..1", "..2", "2001"), ("..2", "..3", "0"), ("..3", "..4", "2002")] {
        version(new, expected);
        link_over(new, &dir.join("..data"));
        fs::remove_dir_all(dir.join(old)).unwrap();
        serves(&slowlane, expected);
    }
    let source = || {
        let answer = client::get(slowlane.http, "/check?hold=off", &[("X-Slowlane-Source", "192.0.2.1")]);
        answer.header("x-slowlane-slo").unwrap().to_owned()
    };
    version("..5", "2002");
    fs::write(dir.join("..5/source.map"), "0.0.0.0/0 1001\n").unwrap();
    link_over("..5", &dir.join("..data"));
    symlink("..data/source.map", dir.join("source.map")).unwrap();
    fs::remove_dir_all(dir.join("..4")).unwrap();
    eventually("a new file is read", || (source() == "1001").then_some(()));
    version("..6", "2001");
    link_over("..6", &dir.join("..data"));
    fs::remove_file(dir.join("source.map")).unwrap();
    fs::remove_dir_all(dir.join("..5")).unwrap();
    serves(&slowlane, "2001");
    eventually("a removed file is empty", || (source() == "0").then_some(()));
    assert_eq!(reloads(&slowlane, "refused"), 0.0);
}

#[test]
fn a_directory_that_is_a_link_is_read_again_when_the_link_is_swapped() {
    let slowlane = slowlane();
    let dir = slowlane.policy();
    let version = |name: &str| slowlane.folder().join(name);
    fs::create_dir(version("v2")).unwrap();
    fs::write(version("v2").join("slo.map"), SLO_MAP).unwrap();
    fs::write(version("v2").join("website.map"), "shop.example 2002\n").unwrap();
    fs::rename(&dir, version("v1")).unwrap();
    symlink("v1", &dir).unwrap();
    link_over("v2", &dir);
    serves(&slowlane, "2002");
    link_over("v1", &dir);
    serves(&slowlane, "2001");
    fs::write(version("v1").join("website.map"), "shop.example 0\n").unwrap();
    serves(&slowlane, "0");
}

#[test]
fn a_directory_that_another_is_renamed_over_is_read_and_watched() {
    let slowlane = slowlane();
    let (dir, old, new) = (slowlane.policy(), slowlane.folder().join("old"), slowlane.folder().join("new"));
    fs::create_dir(&new).unwrap();
    fs::write(new.join("slo.map"), SLO_MAP).unwrap();
    fs::write(new.join("website.map"), "shop.example 2002\n").unwrap();
    fs::rename(&dir, &old).unwrap();
    fs::rename(&new, &dir).unwrap();
    serves(&slowlane, "2002");
    fs::write(old.join("website.map"), "shop.example 0\n").unwrap();
    fs::write(dir.join("website.map"), "shop.example 2001\n").unwrap();
    serves(&slowlane, "2001");
}

#[test]
fn a_map_in_a_folder_that_is_made_later_is_noticed() {
    let config = "[[policy.lookups]]\nfields = [\"website\"]\nmap = \"keys/website.map\"\nmatch = \"str\"\n";
    let slowlane = Slowlane::with_config(&[("slo.map", SLO_MAP)], config);
    assert_eq!(slo(&slowlane), "0");
    fs::create_dir(slowlane.policy().join("keys")).unwrap();
    // The folder may or may not be watched by now.
    thread::sleep(2 * SETTLE);
    fs::write(slowlane.policy().join("keys/website.map"), "shop.example 2002\n").unwrap();
    serves(&slowlane, "2002");
}

#[test]
fn at_sighup_an_edited_config_file_is_told_to_need_a_restart() {
    let mut slowlane = slowlane();
    let config = slowlane.folder().join("slowlane.toml");
    let asked = |slowlane: &Slowlane, count: f64| {
        slowlane.process.signal("HUP");
        eventually("it was read", || (reloads(slowlane, "done") == count).then_some(()));
    };
    asked(&slowlane, 1.0);
    assert!(!slowlane.process.log().join("\n").contains("slowlane.toml"), "nothing has changed");
    fs::write(&config, "[table]\nsize = 10\n").unwrap();
    asked(&slowlane, 2.0);
    slowlane.process.logged("slowlane.toml has changed: `slowlane upgrade` puts it in force");
    fs::write(&config, "[table]\nsize = many\n").unwrap();
    asked(&slowlane, 3.0);
    slowlane.process.logged("slowlane.toml:2: ");
    assert_eq!(slo(&slowlane), "2001");
}

/// One who adds a lookup to the config, and its map to the policy, is not told to add the lookup.
#[test]
fn an_edited_config_file_is_told_to_need_an_upgrade_in_the_log_and_on_the_page() {
    let mut slowlane = slowlane();
    let config = slowlane.folder().join("slowlane.toml");
    let before = fs::read_to_string(&config).unwrap();
    fs::write(&config, before.clone() + "[table]\nsize = 1000\n").unwrap();
    slowlane.process.logged("slowlane.toml has changed: `slowlane upgrade` puts it in force");
    let first = || {
        let status = client::get(slowlane.admin, "/api/status", &[]).body;
        let status: serde_json::Value = serde_json::from_str(&status).unwrap();
        status["reloads"][0]["problems"][0].as_str().unwrap_or_default().to_owned()
    };
    eventually("the page tells it", || first().contains("`slowlane upgrade`").then_some(()));
    fs::write(slowlane.policy().join("api_key.map"), "").unwrap();
    slowlane.process.logged("api_key.map: no lookup reads this file");
    eventually("it is told first", || {
        let reloads = reloads(&slowlane, "done");
        (reloads == 1.0 && first().contains("`slowlane upgrade`")).then_some(())
    });
    fs::write(&config, before).unwrap();
    slowlane.process.logged("the config file has the same contents again as at startup");
}

#[test]
fn a_reload_tells_what_has_changed_and_what_is_hardly_meant() {
    let mut slowlane = slowlane();
    slowlane.process.logged("INFO policy: 4 SLOs; website.map 1 line");
    fs::write(slowlane.policy().join("website.map"), "").unwrap();
    slowlane.process.logged("website.map has 0 lines instead of 1 line: takes effect in ");
    slowlane.process.logged("policy: website.map 1 -> 0 lines (+0 -1)");
    rename_over(&slowlane.policy().join("website.map"), "shop.example 2001\nShop.example 2002\n");
    slowlane.process.logged("policy: website.map 0 -> 2 lines (+2 -0)");
    rename_over(&slowlane.policy().join("slo.map"), &SLO_MAP.replace("5000/s", "20/s"));
    slowlane.process.logged("policy: SLO 0 rate 5000/s -> 20/s");
    slowlane.process.logged("WARN ");
    slowlane.process.logged("website.map:2: \"shop.example\" is already on line 1, which wins");
    // No policy file has changed, but there is a map file that no lookup reads.
    fs::write(slowlane.policy().join("sources.map"), "192.0.2.1 2001\n").unwrap();
    slowlane.process.logged("sources.map: no lookup reads this file: the maps in use are slo.map, ");
    assert_eq!((slo(&slowlane).as_str(), reloads(&slowlane, "refused")), ("2001", 0.0));
    let status = client::get(slowlane.admin, "/api/status", &[]).body;
    assert!(
        status.contains("is already on line 1") && status.contains("no lookup reads this file"),
        "{status}"
    );
    let started_again = slowlane.killed_and_restarted();
    let log = started_again.process.log().join("\n");
    assert!(log.contains("WARN ") && log.contains("no lookup reads this file"), "{log}");
}

#[test]
fn a_lookup_map_that_is_deleted_is_empty() {
    let slowlane = slowlane();
    fs::remove_file(slowlane.policy().join("website.map")).unwrap();
    serves(&slowlane, "0");
    fs::write(slowlane.policy().join("website.map"), "shop.example 2002\n").unwrap();
    serves(&slowlane, "2002");
    assert_eq!(reloads(&slowlane, "refused"), 0.0);
}

#[test]
fn without_slo_map_the_policy_before_serves_on() {
    let mut slowlane = slowlane();
    fs::remove_file(slowlane.policy().join("slo.map")).unwrap();
    refused(&slowlane);
    slowlane.process.logged("policy/slo.map: no such file: create it with one SLO per line");
    slowlane.process.logged("the previous one stays in force");
    assert_eq!((slo(&slowlane).as_str(), reloads(&slowlane, "done")), ("2001", 0.0));
    fs::write(slowlane.policy().join("slo.map"), SLO_MAP).unwrap();
    fs::write(slowlane.policy().join("website.map"), "shop.example 2002\n").unwrap();
    serves(&slowlane, "2002");
}

#[test]
fn a_broken_file_changes_nothing_and_is_told_with_its_line() {
    let mut slowlane = slowlane();
    let path = slowlane.policy().join("website.map");
    rename_over(&path, "blog.example 2002\nshop.example 2009\n");
    refused(&slowlane);
    slowlane.process.logged("policy/website.map:2: SLO 2009 is not in slo.map");
    let asked = client::get(slowlane.http, "/check", &[("X-Slowlane-Website", "blog.example")]);
    assert_eq!(asked.header("x-slowlane-slo"), Some("0"), "not even its good lines");
    assert_eq!((slo(&slowlane).as_str(), reloads(&slowlane, "done")), ("2001", 0.0));

    rename_over(&slowlane.policy().join("slo.map"), &SLO_MAP.replace("9/s", "9/w"));
    slowlane.process.logged(
        "policy/slo.map:2: rate \"9/w\": expected a whole number per period (s, m, h, d or month), like \
         50/s; for 1.5/s, write 90/m",
    );
    rename_over(&slowlane.policy().join("slo.map"), SLO_MAP);
    rename_over(&path, "shop.example 2002\n");
    serves(&slowlane, "2002");
}

#[test]
fn a_hangup_reads_the_policy_whether_it_was_edited_or_not() {
    let mut slowlane = slowlane();
    slowlane.process.signal("HUP");
    eventually("it was read", || (reloads(&slowlane, "done") == 1.0).then_some(()));
    fs::write(slowlane.policy().join("website.map"), "shop.example 2009\n").unwrap();
    slowlane.process.signal("HUP");
    refused(&slowlane);
    assert_eq!(slo(&slowlane), "2001");
    fs::write(slowlane.policy().join("website.map"), "shop.example 2002\n").unwrap();
    for _ in 0..20 {
        slowlane.process.signal("HUP");
    }
    serves(&slowlane, "2002");
    assert!(slowlane.process.is_running());
}

#[test]
fn other_files_in_the_directory_concern_nobody() {
    let files = [("slo.map", SLO_MAP), ("website.map", "shop.example 2001\n")];
    let slowlane = Slowlane::with_config(&files, "[log]\nlevel = \"debug\"\n");
    let looks =
        || slowlane.process.log().iter().filter(|line| line.contains("policy files unchanged")).count();
    // One check may have begun before the edit. The next one has not.
    let looked_at = |edit: &dyn Fn()| {
        let before = looks();
        edit();
        eventually("it was looked at", || (looks() > before).then_some(()));
    };
    for name in ["notes.txt", ".website.map.swp", "4913"] {
        let path = slowlane.policy().join(name);
        looked_at(&|| {
            fs::write(&path, "shop.example 2002\n").unwrap();
            let _ = fs::read(slowlane.policy().join("website.map"));
        });
        looked_at(&|| fs::remove_file(&path).unwrap());
    }
    assert_eq!((slo(&slowlane).as_str(), reloads(&slowlane, "done")), ("2001", 0.0));
}

#[test]
fn an_edit_right_after_the_start_is_not_lost() {
    for delay_ms in [0, 1, 2, 4, 8, 16, 32, 64] {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("slo.map"), SLO_MAP).unwrap();
        fs::write(folder.path().join("website.map"), "shop.example 2001\n").unwrap();
        let mut command = Command::new(BINARY);
        command.arg("run").arg("--policy").arg(folder.path());
        command.args(["--spop", "127.0.0.1:0", "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
        let mut process = Process::start(&mut command);
        thread::sleep(Duration::from_millis(delay_ms));
        fs::write(folder.path().join("website.map"), "shop.example 2002 \n").unwrap();
        let http = process.logged("HTTP check on ").trim().parse().unwrap();
        eventually(&format!("an edit {delay_ms} ms after the start is served"), || {
            let answer = client::get(http, "/check?hold=off", &[("X-Slowlane-Website", "shop.example")]);
            (answer.header("x-slowlane-slo") == Some("2002")).then_some(())
        });
    }
}

#[test]
fn what_was_counted_is_kept_over_a_reload() {
    let slow = "0 burst=9 rate=9/s\n2001 burst=1 rate=1/m max_delay=1s\n";
    let slowlane = Slowlane::with_policy(&[("slo.map", slow), ("website.map", "shop.example 2001\n")]);
    let ask = || client::get(slowlane.http, "/check", &[("X-Slowlane-Website", "shop.example")]).status;
    assert_eq!([ask(), ask()], [204, 403]);
    for (count, edit) in
        (1..).zip([&format!("{slow}# a comment\n"), &slow.replace("2001 burst=1", "2001 burst=1 law=pace")])
    {
        fs::write(slowlane.policy().join("slo.map"), edit).unwrap();
        eventually("it was read", || (reloads(&slowlane, "done") == f64::from(count)).then_some(()));
        assert_eq!(ask(), 403, "the customer is as throttled as before");
    }
    fs::write(slowlane.policy().join("slo.map"), slow.replace("max_delay=1s", "max_delay=1h")).unwrap();
    eventually("it was read", || (reloads(&slowlane, "done") == 3.0).then_some(()));
    let outcome = client::get(slowlane.http, "/check?hold=off", &[("X-Slowlane-Website", "shop.example")]);
    assert!(
        outcome.header("x-slowlane-delay").is_some(),
        "the debt is as old as before, and the new rule is kind to it"
    );
}

#[test]
fn several_files_that_are_edited_together_are_one_generation() {
    for _attempt in 0..20 {
        let slowlane = slowlane();
        let dir = slowlane.policy();
        let started = Instant::now();
        // Between these, website.map names an SLO that is not there yet.
        fs::write(dir.join("website.map"), "shop.example 2003\n").unwrap();
        thread::sleep(SETTLE / 5);
        fs::write(dir.join("owner.map"), "ann 1003\n").unwrap();
        thread::sleep(SETTLE / 5);
        fs::write(dir.join("slo.map"), "0 burst=9 rate=9/s\n1003 burst=9 rate=9/s\n2003 burst=9 rate=9/s\n")
            .unwrap();
        let together = started.elapsed() < SETTLE;
        serves(&slowlane, "2003");
        if together {
            // A second reload of the first edits would come before the reload of this one.
            fs::write(dir.join("website.map"), "shop.example 0\n").unwrap();
            serves(&slowlane, "0");
            assert_eq!((reloads(&slowlane, "done"), reloads(&slowlane, "refused")), (2.0, 0.0));
            return;
        }
    }
    panic!("this machine never wrote three files within {SETTLE:?}");
}

#[test]
fn no_request_sees_half_a_policy() {
    let slowlane = slowlane();
    let dir = slowlane.policy();
    let versions = [("v1", "2001", "1001"), ("v2", "2002", "1002")];
    for (name, website, owner) in versions {
        let version = slowlane.folder().join(name);
        fs::create_dir(&version).unwrap();
        let slo_map = format!("0 burst=9 rate=9/s\n{website} burst=9 rate=9/s\n{owner} burst=9 rate=9/s\n");
        fs::write(version.join("slo.map"), slo_map).unwrap();
        fs::write(version.join("website.map"), format!("shop.example {website}\n")).unwrap();
        fs::write(version.join("owner.map"), format!("ann {owner}\n")).unwrap();
    }
    fs::rename(&dir, slowlane.folder().join("v0")).unwrap();
    symlink("v1", &dir).unwrap();
    serves(&slowlane, "2001");
    eventually("it was read", || (reloads(&slowlane, "done") >= 1.0).then_some(()));
    // On a slow machine, the time without a directory may be long enough to be noticed.
    let refused = reloads(&slowlane, "refused");

    thread::scope(|scope| {
        let edits = scope.spawn(|| {
            for (name, website, _) in [versions[1], versions[0], versions[1]] {
                link_over(name, &dir);
                serves(&slowlane, website);
            }
        });
        let mut client = Client::connect(slowlane.http);
        let mut ask = |header, value| {
            let answer = client.request("GET", "/check?hold=off", &[(header, value)], "");
            answer.header("x-slowlane-slo").unwrap().to_owned()
        };
        while !edits.is_finished() {
            let (website, owner) =
                (ask("X-Slowlane-Website", "shop.example"), ask("X-Slowlane-Owner", "ann"));
            assert!(["2001", "2002"].contains(&website.as_str()), "{website}");
            assert!(
                ["1001", "1002"].contains(&owner.as_str()) || owner == "0" && website == "2001",
                "{owner}"
            );
        }
        edits.join().unwrap();
    });
    assert_eq!(reloads(&slowlane, "refused"), refused);
}

/// A website map of this many lines.
fn websites(count: usize) -> String {
    (0..count).map(|number| format!("w{number}.example 2002\n")).collect()
}

/// A daemon with a website map of 200 lines, and how the last of them is answered.
fn with_200_lines() -> Slowlane {
    Slowlane::with_policy(&[("slo.map", SLO_MAP), ("website.map", &websites(200))])
}

fn slo_of(slowlane: &Slowlane, website: &str) -> String {
    let answer = client::get(slowlane.http, "/check?hold=off", &[("X-Slowlane-Website", website)]);
    answer.header("x-slowlane-slo").unwrap().to_owned()
}

/// Runs `edit` while clients ask for these websites, each of which has SLO 2002 at all times.
fn always_served(slowlane: &Slowlane, website: &str, edit: impl FnOnce() + Send) {
    thread::scope(|scope| {
        let edit = scope.spawn(edit);
        while !edit.is_finished() {
            assert_eq!(slo_of(slowlane, website), "2002", "half of a file is in force");
        }
        edit.join().unwrap();
    });
}

#[test]
fn a_writer_that_pauses_is_waited_for() {
    let mut slowlane = with_200_lines();
    let path = slowlane.policy().join("website.map");
    let (first, rest) = (websites(100), websites(201)[websites(100).len()..].to_owned());
    always_served(&slowlane, "w199.example", || {
        let mut file = fs::File::create(&path).unwrap();
        file.write_all(first.as_bytes()).unwrap();
        thread::sleep(8 * SETTLE);
        file.write_all(rest.as_bytes()).unwrap();
    });
    eventually("the whole is served", || (slo_of(&slowlane, "w200.example") == "2002").then_some(()));
    assert_eq!(reloads(&slowlane, "done"), 1.0);

    // A loop of `echo >> website.map` opens and closes the file for each line.
    always_served(&slowlane, "w199.example", || {
        fs::write(&path, "").unwrap();
        for line in websites(300).as_bytes().chunks(2_000) {
            thread::sleep(4 * SETTLE);
            OpenOptions::new().append(true).open(&path).unwrap().write_all(line).unwrap();
        }
    });
    eventually("the whole is served", || (slo_of(&slowlane, "w299.example") == "2002").then_some(()));
    assert_eq!(reloads(&slowlane, "done"), 2.0);
    assert!(slowlane.process.is_running());
}

#[test]
fn a_map_that_shrinks_waits_for_a_second_look() {
    let mut slowlane = with_200_lines();
    let path = slowlane.policy().join("website.map");
    // For a moment the map is empty, or is gone.
    always_served(&slowlane, "w199.example", || {
        fs::write(&path, "").unwrap();
        thread::sleep(12 * SETTLE);
        fs::remove_file(&path).unwrap();
        thread::sleep(4 * SETTLE);
        fs::write(&path, websites(201)).unwrap();
    });
    eventually("the whole is served", || (slo_of(&slowlane, "w200.example") == "2002").then_some(()));
    assert_eq!(reloads(&slowlane, "done"), 1.0);
    slowlane.process.logged("website.map has 0 lines instead of 200 lines: takes effect in ");

    // If it stays, it is meant.
    rename_over(&path, &websites(99));
    slowlane.process.logged("WARN website.map has 99 lines instead of 201 lines: takes effect in ");
    eventually("the edit is served", || (slo_of(&slowlane, "w199.example") == "0").then_some(()));
    assert_eq!((slo_of(&slowlane, "w98.example").as_str(), reloads(&slowlane, "done")), ("2002", 2.0));
}

#[test]
fn a_hangup_puts_a_smaller_map_in_force_at_once() {
    let mut slowlane = with_200_lines();
    fs::remove_file(slowlane.policy().join("website.map")).unwrap();
    slowlane.process.logged("website.map is missing (it had 200 lines): takes effect in ");
    slowlane.process.signal("HUP");
    slowlane.process.logged("policy: website.map 200 lines -> removed");
    eventually("the edit is served", || (slo_of(&slowlane, "w0.example") == "0").then_some(()));
    // A writer that has not closed its file is not waited for.
    let mut file = fs::File::create(slowlane.policy().join("website.map")).unwrap();
    file.write_all(websites(10).as_bytes()).unwrap();
    slowlane.process.signal("HUP");
    eventually("the half is served", || (slo_of(&slowlane, "w9.example") == "2002").then_some(()));
    drop(file);
}
