//! What is installed: the Debian package, its manual pages and completions, and what cargo would take.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use slowlane_core::law::Law;
use tempfile::TempDir;

use crate::cli::COMMANDS;
use crate::support::pages::{BESIDE, Page, pages as in_sources};
use crate::support::slowlane::BINARY;
use crate::support::{project, project_files, skipped};

/// The program's name on the PATH, if it is there.
fn installed(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

/// What a command prints; it must succeed and complain of nothing.
fn output(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{command:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// The package of the program under test, with this revision, in this folder.
fn build(folder: &Path, revision: &str) -> PathBuf {
    let mut command = Command::new(project("packaging/build-deb"));
    command.args(["--binary", BINARY, "--revision", revision, "--out"]).arg(folder);
    PathBuf::from(output(&mut command).trim())
}

struct Package {
    _folder: TempDir,
    path: PathBuf,
}

/// The package, built once. None: no dpkg here.
fn package() -> Option<&'static Package> {
    static PACKAGE: OnceLock<Option<Package>> = OnceLock::new();
    let package = PACKAGE.get_or_init(|| {
        if !installed("dpkg-deb") {
            skipped("dpkg is not installed: no Debian package is built");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = build(folder.path(), "1");
        Some(Package { _folder: folder, path })
    });
    package.as_ref()
}

impl Package {
    /// Its files below a folder.
    fn unpacked(&self) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        output(Command::new("dpkg-deb").arg("-x").arg(&self.path).arg(folder.path()));
        folder
    }
}

/// The names of all commands, those of commands as `config-nginx`.
fn commands() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut unread = vec![Vec::new()];
    while let Some(words) = unread.pop() {
        let help = output(Command::new(BINARY).args(&words).arg("--help"));
        let mut is_list = false;
        let listed = help.lines().filter(|line| {
            is_list = COMMANDS.contains(line) || is_list && !line.is_empty();
            is_list && line.starts_with("  ") && !line.starts_with("    ")
        });
        for name in listed.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help") {
            let words: Vec<String> = words.iter().cloned().chain([name.to_owned()]).collect();
            found.insert(words.join("-"));
            unread.push(words);
        }
    }
    found
}

/// The files of the package that can be run.
const PROGRAMS: [&str; 2] = ["/usr/bin/slowlane", "/usr/share/slowlane/cluster/run"];

#[test]
fn the_package_has_every_file_in_its_place() {
    let Some(package) = package() else { return };
    let listed = output(Command::new("dpkg-deb").arg("-c").arg(&package.path));
    let mut files = BTreeSet::new();
    for line in listed.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (mode, path) = (words[0], words[5].trim_start_matches('.'));
        assert_eq!(words[1], "root/root", "{line}");
        let expected = match mode.as_bytes()[0] {
            b'd' => "drwxr-xr-x",
            b'l' => "lrwxrwxrwx",
            _ if PROGRAMS.contains(&path) => "-rwxr-xr-x",
            _ => "-rw-r--r--",
        };
        assert_eq!(mode, expected, "{line}");
        files.insert(path.to_owned());
    }
    let pages = commands().into_iter().map(|name| format!("/usr/share/man/man1/slowlane-{name}.1.gz"));
    let book = project_files().into_iter().filter_map(|path| {
        let name = path.strip_prefix("doc/")?;
        let is_shipped = ["book/", "reports/", "design.md"].iter().any(|start| name.starts_with(start));
        is_shipped.then(|| format!("/usr/share/doc/slowlane/{}", name.replacen("book/", "manual/", 1)))
    });
    let programs = PROGRAMS.map(str::to_owned);
    let expected = pages.chain(book).chain(programs).chain(
        [
            "/etc/slowlane/slowlane.toml",
            "/etc/slowlane/policy/slo.map",
            "/etc/slowlane/policy/source+website.map",
            "/usr/lib/systemd/system/slowlane.service",
            "/usr/lib/systemd/system/slowlane.socket",
            "/usr/share/man/man1/slowlane.1.gz",
            "/usr/share/man/man5/slowlane.toml.5.gz",
            "/usr/share/man/man5/slo.map.5.gz",
            "/usr/share/bash-completion/completions/slowlane",
            "/usr/share/zsh/vendor-completions/_slowlane",
            "/usr/share/fish/vendor_completions.d/slowlane.fish",
            "/usr/share/slowlane/cluster/policy/slo.map",
            "/usr/share/slowlane/haproxy/maps/policy.test",
            "/usr/share/slowlane/haproxy/spoe-slowlane.conf",
            "/usr/share/slowlane/nginx/slowlane.conf",
            "/usr/share/slowlane/monitoring/grafana-dashboard.json",
            "/usr/share/slowlane/monitoring/prometheus-alerts.yml",
            "/usr/share/doc/slowlane/copyright",
            "/usr/share/doc/slowlane/changelog.Debian.gz",
            "/usr/share/doc/slowlane/changelog.gz",
            "/usr/share/doc/slowlane/README.md.gz",
        ]
        .map(str::to_owned),
    );
    for file in expected {
        assert!(files.contains(&file), "{file} is not in the package:\n{listed}");
    }

    // All that an operator edits, and nothing else, is kept at an upgrade.
    let conffiles = output(Command::new("dpkg-deb").arg("-I").arg(&package.path).arg("conffiles"));
    let conffiles: BTreeSet<String> = conffiles.lines().map(str::to_owned).collect();
    let in_etc = files.into_iter().filter(|path| path.starts_with("/etc/") && !path.ends_with('/'));
    assert_eq!(conffiles, in_etc.collect());

    // It serves what it brings.
    let folder = package.unpacked();
    let mut check = Command::new(folder.path().join("usr/bin/slowlane"));
    check.arg("check").arg("--config").arg(folder.path().join("etc/slowlane/slowlane.toml"));
    let outcome = output(&mut check);
    assert!(outcome.starts_with("ok: config "), "{outcome}");
    assert!(outcome.contains("/policy: 1 SLO; source+website.map 0 lines, "), "{outcome}");
}

/// The pages of the package below a folder, also the compressed ones.
fn pages_in(folder: &Path) -> Vec<Page> {
    let listed = output(Command::new("find").arg(folder).args(["-name", "*.md", "-o", "-name", "*.md.gz"]));
    let changelog = folder.join("usr/share/doc/slowlane/changelog.gz");
    let paths = listed.lines().chain(changelog.to_str());
    let text = |path: &str| output(Command::new("gzip").args(["-cdf", path]));
    paths.map(|path| Page { path: path.to_owned(), text: text(path) }).collect()
}

#[test]
fn every_link_of_the_manual_leads_to_a_file_of_the_package() {
    let Some(package) = package() else { return };
    let folder = package.unpacked();
    let pages = pages_in(folder.path());
    let beside = BESIDE.iter().filter(|path| path.starts_with("doc/")).count();
    assert_eq!(
        pages.len(),
        in_sources().len() + 1 + beside,
        "README, the manual, the examples; changelog; the design and the reports"
    );
    let mut links = 0;
    for page in pages {
        for target in page.links().iter().filter(|target| !target.contains("://") && !target.starts_with('#'))
        {
            let file = target.split('#').next().unwrap();
            // `examples` is a link within the package.
            let path = Path::new(&page.path).parent().unwrap().join(file).canonicalize();
            let is_there = path.is_ok_and(|path| path.starts_with(folder.path().canonicalize().unwrap()));
            assert!(is_there, "{}: {target} is not in the package", page.path);
            links += 1;
        }
    }
    assert!(links > 100, "{links}");
}

#[test]
fn the_same_sources_give_the_same_package() {
    let Some(package) = package() else { return };
    let folder = tempfile::tempdir().unwrap();
    let again = build(folder.path(), "1");
    assert!(fs::read(again).unwrap() == fs::read(&package.path).unwrap(), "two builds differ");
}

#[test]
fn lintian_finds_nothing_to_warn_of() {
    let Some(package) = package() else { return };
    if !installed("lintian") {
        return skipped("lintian is not installed: the package is not checked by it");
    }
    let mut lintian = Command::new("lintian");
    lintian.args(["--allow-root", "--profile", "debian", "--fail-on", "error,warning"]).arg(&package.path);
    let output = lintian.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn every_manual_page_is_set_without_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    output(Command::new(BINARY).arg("man").arg("--dir").arg(folder.path()));
    let written = fs::read_dir(folder.path()).unwrap().chain(fs::read_dir(project("doc/man")).unwrap());
    let pages: Vec<PathBuf> = written.map(|page| page.unwrap().path()).collect();
    assert_eq!(pages.len(), commands().len() + 3, "{pages:?}");
    if !installed("man") {
        return skipped("man is not installed: the manual pages are not set");
    }
    for page in pages {
        let mut man = Command::new("man");
        man.args(["--warnings", "-E", "UTF-8", "-l"])
            .arg(&page)
            .env("MANWIDTH", "100")
            .env("LC_ALL", "C.UTF-8");
        let text = output(&mut man);
        for section in ["NAME", "SYNOPSIS", "DESCRIPTION", "SEE ALSO"] {
            assert!(text.contains(&format!("\n{section}\n")), "{}: no {section}", page.display());
        }
    }
}

/// A page as it is written, without its escapes.
fn page(name: &str) -> String {
    let text = fs::read_to_string(project("doc/man").join(name)).unwrap();
    text.replace("\\-", "-").replace("\\(dq", "\"")
}

/// Every key of `slowlane.toml` with its value, which is its default.
#[test]
fn the_page_of_the_config_has_every_key_with_its_default() {
    let page = page("slowlane.toml.5");
    let mut section = String::new();
    for line in fs::read_to_string(project("slowlane.toml")).unwrap().lines() {
        let is_absent = line.starts_with("# ");
        let line = line.split('#').find(|part| !part.trim().is_empty()).unwrap_or_default().trim();
        if line.starts_with('[') {
            section = line.to_owned();
            assert!(page.contains(&format!("{section}\n")), "doc/man/slowlane.toml.5 has no {section}");
        } else if let Some((key, value)) = line.split_once(" = ")
            && !["[policy.types]", "[[policy.lookups]]"].contains(&section.as_str())
        {
            let written = format!(".BR {key} \" = {}\"\n", value.trim());
            let is_reported = page.contains(&written) || is_absent && page.contains(&format!(".BR {key}\n"));
            assert!(is_reported, "doc/man/slowlane.toml.5 has no {written}");
        }
    }
}

#[test]
fn the_page_of_the_policy_has_every_law() {
    let page = page("slo.map.5");
    for law in Law::NAMES {
        assert!(page.contains(law), "doc/man/slo.map.5 has no {law}");
    }
}

fn completions(shell: &str) -> String {
    output(Command::new(BINARY).arg("completions").arg(shell))
}

#[test]
fn every_shell_takes_its_completions() {
    let folder = tempfile::tempdir().unwrap();
    for (shell, option) in [("bash", "-n"), ("zsh", "-n"), ("fish", "--no-execute")] {
        let script = completions(shell);
        for command in commands().iter().filter(|command| !command.contains('-')) {
            assert!(script.contains(command.as_str()), "{shell} does not know {command}");
        }
        let path = folder.path().join(shell);
        fs::write(&path, script).unwrap();
        if !installed(shell) {
            skipped(&format!("{shell} is not installed: its completions are not tried"));
            continue;
        }
        output(Command::new(shell).arg(option).arg(&path));
    }
}

#[test]
fn bash_completes_commands_and_flags() {
    let complete = |words: &[&str]| {
        let typed = words.join(" ");
        let (last, before) = (words[words.len() - 1], words[words.len() - 2]);
        let script = format!(
            "COMP_WORDS=({typed}); COMP_CWORD={}; _slowlane slowlane '{last}' '{before}'; echo ${{COMPREPLY[@]}}",
            words.len() - 1
        );
        let script = format!("{}\n{script}", completions("bash"));
        output(Command::new("bash").arg("-c").arg(script)).trim().to_owned()
    };
    assert_eq!(complete(&["slowlane", "ru"]), "run");
    assert_eq!(complete(&["slowlane", "run", "--sp"]), "--spop");
    assert_eq!(complete(&["slowlane", "completions", "f"]), "fish");
}

/// Tells a story on a throwaway copy of this machine, where the packages are `/mnt/1.deb` and `/mnt/2.deb`. None: there is no
/// such copy, or no package.
fn elsewhere(arguments: &[&str], story: &str) -> Option<String> {
    let package = package()?;
    let folder = tempfile::tempdir().unwrap();
    fs::copy(&package.path, folder.path().join("1.deb")).unwrap();
    newer(&package.path, &folder.path().join("2.deb"));
    fs::write(folder.path().join("story"), format!("set -eux\n{WORDS}\n{story}")).unwrap();
    let mut command = Command::new(project("tests/support/elsewhere"));
    let output = command.args(arguments).arg(folder.path()).stdin(Stdio::null()).output().unwrap();
    let outcome =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    if output.status.code() == Some(77) {
        skipped(&format!("the package is not installed {arguments:?}: {}", outcome.trim()));
        return None;
    }
    assert!(output.status.success(), "{outcome}");
    Some(outcome)
}

/// `ask PORT PATH` prints an answer; `eventually COMMAND` waits until it succeeds; `fails COMMAND` is for one that must not.
const WORDS: &str = r#"
ask() { exec 5<>/dev/tcp/127.0.0.1/$1 && printf 'GET %s HTTP/1.0\r\n\r\n' "$2" >&5 && cat <&5; }
eventually() { for _ in {1..1200}; do "$@" >/dev/null 2>&1 && return; sleep 0.05; done; echo "in vain: $*"; return 1; }
fails() { if "$@"; then echo "does not fail: $*"; return 1; fi; }
# The index of manual pages takes longer than all the rest.
rm -f /var/lib/man-db/auto-update
# The machine may have slowlane, installed as the README says, and files beside it. Here each story begins without.
dpkg --purge --force-all slowlane || true
if id slowlane; then userdel slowlane; fi
rm -rf /var/lib/slowlane
find /etc /usr /var/lib/systemd /var/log -xdev -name '*slowlane*' -prune -exec rm -rf {} +
"#;

/// The next version of a package: two of the maps that it brings are other ones.
fn newer(package: &Path, path: &Path) {
    let folder = tempfile::tempdir().unwrap();
    output(Command::new("dpkg-deb").arg("-R").arg(package).arg(folder.path()));
    let edit = |name: &str, with: &dyn Fn(String) -> String| {
        let path = folder.path().join(name);
        fs::write(&path, with(fs::read_to_string(&path).unwrap())).unwrap();
    };
    edit("DEBIAN/control", &|text| text.replace("\nVersion: ", "\nVersion: 1:"));
    for map in ["owner.map", "website.map"] {
        edit(&format!("etc/slowlane/policy/{map}"), &|text| text + "# newer\n");
    }
    output(Command::new("dpkg-deb").args(["--root-owner-group", "--build"]).arg(folder.path()).arg(path));
}

#[test]
fn it_is_installed_upgraded_and_removed_in_a_container() {
    let blocks = Page::read("doc/book/install.md").section("Without systemd").all_blocks();
    let script = blocks.iter().find(|block| block.text.starts_with("#!/bin/sh\n")).unwrap();
    elsewhere(
        &[],
        &r#"
export DEBIAN_FRONTEND=noninteractive
fails id slowlane
dpkg -i /mnt/1.deb
[ "$(dpkg-query -Wf '${Status}' slowlane)" = 'install ok installed' ]
getent passwd slowlane | grep -q ':/nonexistent:/usr/sbin/nologin$'
getent shadow slowlane | grep '^slowlane:[!*]'
slowlane check --config /etc/slowlane/slowlane.toml

# A file that only root can read is told to root, too; so is one in a folder of root's.
chmod 600 /etc/slowlane/policy/website.map
fails slowlane check 2>/root/said
grep 'policy/website.map: the service runs as the user slowlane, which cannot read this file' /root/said
[ "$(grep -c '^slowlane: ' /root/said)" = 1 ]
slowlane doctor --json | grep -F 'policy/website.map: the service runs as the user slowlane'
chmod 644 /etc/slowlane/policy/website.map
slowlane check >/root/said 2>&1
fails grep 'cannot read' /root/said

# The remedy for a password that everybody may read leaves it to the service; without its group, the file is named once.
cp -p /etc/slowlane/slowlane.toml /root/slowlane.toml
sed -i 's|^# store = .*|store = "redis://:secret@127.0.0.1:6379"|' /etc/slowlane/slowlane.toml
slowlane check 2>&1 | sed -n 's/.* a password in this file: run `\(.*\)`$/\1/p' >/root/remedy
grep '^chgrp slowlane ' /root/remedy
sh -e /root/remedy
slowlane check 2>/root/said
[ ! -s /root/said ]
chgrp root /etc/slowlane/slowlane.toml
fails slowlane check 2>/root/said
[ "$(grep -c '^slowlane: ' /root/said)" = 1 ]
cp -p /root/slowlane.toml /etc/slowlane/slowlane.toml
mkdir -m 700 /root/maps
echo '0 rate=unlimited' >/root/maps/slo.map
slowlane check --policy /root/maps

# Without the directories of systemd's unit it does not start. The script of the manual makes them.
rm -rf /run/slowlane /var/lib/slowlane
fails slowlane run --config /etc/slowlane/slowlane.toml
cat >/root/serve <<'END'
SCRIPT
END
sh /root/serve &
agent=$!
eventually ask 9002 /readyz
[ "$(ps -o user= -p $agent)" = slowlane ]
[ -S /run/slowlane/admin.sock ]
# Not every container may raise the limit.
if (ulimit -n 262144); then awk '/^Max open files/ { exit $4 != 262144 }' /proc/$agent/limits; fi
kill $agent
wait $agent
[ -s /var/lib/slowlane/state ]

# As its user, who can write nothing of it.
setpriv --reuid slowlane --regid slowlane --clear-groups --inh-caps=-all \
    sh -c '! [ -w /etc/slowlane ] && ! [ -w /etc/slowlane/slowlane.toml ] && ! [ -w /etc/slowlane/policy/slo.map ]'
setpriv --reuid slowlane --regid slowlane --clear-groups --inh-caps=-all \
    slowlane run --config /etc/slowlane/slowlane.toml &
agent=$!
eventually ask 9002 /readyz
ask 9002 /readyz | grep '^ready$'
ask 9001 /check | grep '204 No Content'
kill $agent
wait $agent

# An upgrade: what is as it was brought becomes the new one, what was edited stays, and the new one stands beside it.
echo '# mine' >>/etc/slowlane/policy/slo.map
echo '# mine' >>/etc/slowlane/policy/owner.map
dpkg --force-confdef --force-confold -i /mnt/2.deb
tail -n 1 /etc/slowlane/policy/slo.map | grep '^# mine$'
tail -n 1 /etc/slowlane/policy/owner.map | grep '^# mine$'
tail -n 1 /etc/slowlane/policy/owner.map.dpkg-dist | grep '^# newer$'
tail -n 1 /etc/slowlane/policy/website.map | grep '^# newer$'
slowlane check --config /etc/slowlane/slowlane.toml

# Once more the same, then back: neither is an error.
dpkg --force-confold -i /mnt/2.deb
dpkg --force-confold --force-downgrade -i /mnt/1.deb

dpkg -r slowlane
fails [ -e /usr/bin/slowlane ]
grep '^# mine$' /etc/slowlane/policy/slo.map
id slowlane
dpkg -i /mnt/1.deb
grep '^# mine$' /etc/slowlane/policy/slo.map
install -d -o slowlane -g slowlane /var/log/slowlane /var/lib/slowlane
touch /var/lib/slowlane/state
dpkg -r slowlane
[ -e /var/lib/slowlane/state ]
dpkg -P slowlane
fails [ -e /etc/slowlane ]
fails [ -e /var/log/slowlane ]
fails [ -e /var/lib/slowlane ]
fails [ -e /usr/share/slowlane ]
fails id slowlane
[ -z "$(find /etc /usr /var/lib/systemd -name '*slowlane*')" ]
"#
        .replace("SCRIPT", script.text.trim_end()),
    );
}

#[test]
fn systemd_starts_reloads_revives_and_ends_it() {
    elsewhere(
        &["--booted"],
        r#"
export DEBIAN_FRONTEND=noninteractive
pid() { systemctl show -p MainPID --value slowlane; }
status() { systemctl show -p StatusText --value slowlane; }
serves() { status | grep -q "^serving $1; source+website.map 0 lines, "; }

# Ready when dpkg has ended, in the sandbox and as its user.
dpkg -i /mnt/1.deb
[ "$(systemctl is-active slowlane)" = active ]
[ "$(systemctl is-enabled slowlane)" = enabled ]
ask 9002 /readyz | grep '^ready$'
[ "$(ps -o user= -p $(pid))" = slowlane ]
serves "1 SLO"

# A reload of a mistake fails and changes nothing; one without is in force when it ends.
agent=$(pid)
systemctl reload slowlane
echo '2005 burst=1 rate=1x/s' >>/etc/slowlane/policy/slo.map
fails systemctl reload slowlane
[ "$(systemctl is-active slowlane)" = active ]
sed -i '$d' /etc/slowlane/policy/slo.map
echo '2005 burst=1 rate=1/s' >>/etc/slowlane/policy/slo.map
systemctl reload slowlane
eventually serves "2 SLOs"
[ "$(pid)" = "$agent" ]

# The doctor finds the service well, and nothing that asks it.
fails slowlane doctor >/root/said
grep '^Ok  *agent  *SPOP at 127.0.0.1:9000 accepts connections$' /root/said
grep '^Wrong  *proxy  *no proxy is connected' /root/said
grep '^Ok  *state  */var/lib/slowlane/state: ' /root/said
fails grep '^[WU][a-z]*  *config' /root/said

# An agent that hangs is found by the watchdog, and another one started.
kill -STOP "$agent"
revived() { [ "$(systemctl show -p NRestarts --value slowlane)" = "$1" ] && ask 9002 /readyz | grep -q '^ready$'; }
eventually revived 1

# The sandbox holds: no privilege to gain, no capability, and a filter of system calls.
shut_in() { [ "$(awk '/^(CapEff|NoNewPrivs|Seccomp):/ { printf "%s ", $2 }' /proc/$(pid)/status)" = '0000000000000000 1 2 ' ]; }
shut_in

# A new process takes over within it, by command or signal. It is the main one, and its watchdog goes on.
taken_over() { [ "$(pid)" != "$agent" ] && ! kill -0 "$agent"; }
watched() { [ "$(systemctl show -p WatchdogTimestampMonotonic --value slowlane)" != "$1" ]; }
for way in 'slowlane upgrade' 'systemctl kill --kill-whom=main --signal=SIGUSR2 slowlane'; do
    agent=$(pid)
    $way
    eventually taken_over
    [ "$(systemctl is-active slowlane)" = active ]
    [ "$(ps -o user= -p $(pid))" = slowlane ]
    shut_in
    serves "2 SLOs"
    for _ in 1 2 3; do eventually watched "$(systemctl show -p WatchdogTimestampMonotonic --value slowlane)"; done
done
echo '2006 burst=1 rate=1/s' >>/etc/slowlane/policy/slo.map
systemctl reload slowlane
eventually serves "3 SLOs"
revived 1
kill -STOP "$(pid)"
eventually revived 2
[ -s /var/lib/slowlane/state ]

# At an upgrade the new version takes over; who had switched it off finds it off.
agent=$(pid)
dpkg --force-confdef --force-confold -i /mnt/2.deb
[ "$(pid)" != "$agent" ]
systemctl is-active slowlane
serves "3 SLOs"
systemctl disable slowlane
dpkg --force-confold --force-downgrade -i /mnt/1.deb
fails systemctl is-enabled slowlane

# A decision log where the shipped file shows one: the sandbox lets the agent write there, and nobody else read it.
sed -i 's|^# path = "/var/log/|path = "/var/log/|' /etc/slowlane/slowlane.toml
systemctl restart slowlane
[ "$(stat -c '%U %a' /var/log/slowlane)" = 'slowlane 750' ]
[ "$(stat -c '%U %a' /var/log/slowlane/decisions.json)" = 'slowlane 600' ]

# A socket of its own for the members of its group; the sockets of systemd outlive it, and start it.
sed -i 's#^listen = \["127.0.0.1:9001"\]#listen = ["unix:/run/slowlane/http.sock"]#' /etc/slowlane/slowlane.toml
systemctl stop slowlane
systemctl enable --now slowlane.socket
systemctl start slowlane
[ "$(stat -c '%U %G %a' /run/slowlane/http.sock)" = 'slowlane slowlane 660' ]
[ "$(stat -c '%a' /run/slowlane)" = 755 ]
systemctl stop slowlane.service
[ -S /run/slowlane/spop.sock ]
fails [ -e /run/slowlane/http.sock ]
exec 6<>/dev/tcp/127.0.0.1/9000
eventually systemctl is-active slowlane.service

dpkg -P slowlane
fails systemctl is-active slowlane.service
fails systemctl is-active slowlane.socket
fails ask 9002 /readyz
fails [ -e /var/lib/slowlane ]
[ -z "$(find /etc /usr /var/lib/systemd /var/log /run -xdev -name '*slowlane*')" ]
"#,
    );
}

/// Clients that ask through HAProxy, which refuses what slowlane does not answer, and some that ask as nginx does.
const LOAD: &str = r#"
import http.client, http.server, os, threading, time
class App(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        self.send_response(200); self.send_header("Content-Length", "0"); self.end_headers()
    def log_message(self, *_): pass
class Server(http.server.ThreadingHTTPServer):
    daemon_threads, request_queue_size = True, 128
threading.Thread(target=Server(("127.0.0.1", 8000), App).serve_forever, daemon=True).start()
answered, failed, lock = {8080: 0, 9001: 0}, [], threading.Lock()
def ask(port, path, status):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    while not os.path.exists("/root/enough"):
        try:
            connection.request("GET", path, headers={"Host": "shop.example", "X-Real-IP": "192.0.2.1"})
            answer = connection.getresponse(); answer.read()
            with lock:
                answered[port] += 1
                if answer.status != status: failed.append(f"{port}: {answer.status}")
        except Exception as error:
            with lock: failed.append(f"{port}: {error!r}")
            connection.close()
        time.sleep(0.001)
def serves():
    connection = http.client.HTTPConnection("127.0.0.1", 8080, timeout=20)
    try:
        connection.request("GET", "/", headers={"Host": "shop.example"})
        return connection.getresponse().status == 200
    except OSError: return False
while not serves(): time.sleep(0.05)
threads = [threading.Thread(target=ask, args=(8080, "/", 200)) for _ in range(6)]
threads += [threading.Thread(target=ask, args=(9001, "/check", 204)) for _ in range(3)]
for thread in threads: thread.start()
while any(thread.is_alive() for thread in threads):
    with lock: text = f"{min(answered.values())} {len(failed)} {failed[:9]}"
    open("/root/counted.new", "w").write(text); os.replace("/root/counted.new", "/root/counted")
    time.sleep(0.05)
"#;

/// HAProxy refuses a request without a verdict here, so that a lost one is seen.
#[test]
fn the_upgrade_of_a_package_loses_no_request() {
    elsewhere(
        &["--booted"],
        &r#"
export DEBIAN_FRONTEND=noninteractive
pid() { systemctl show -p MainPID --value slowlane; }
more() { [ "$(cut -d ' ' -f 1 /root/counted)" -ge "$1" ]; }
spend() {
    exec 5<>/dev/tcp/127.0.0.1/9001
    printf 'GET /check HTTP/1.0\r\nX-Slowlane-Website: spent.example\r\n\r\n' >&5
    grep -q "^HTTP/1.[01] $1 " <&5
}
dpkg -i /mnt/1.deb
echo '2005 burst=1 rate=1/d law=token-bucket' >>/etc/slowlane/policy/slo.map
echo 'spent.example 2005' >>/etc/slowlane/policy/website.map
systemctl reload slowlane
eventually spend 204
eventually spend 403
mkdir -p /etc/haproxy
# A machine that runs other tests stalls for 100 ms now and then. A query that is lost gets no answer in 10 s either.
sed 's/timeout processing 100ms/timeout processing 10s/' \
    /usr/share/slowlane/haproxy/spoe-slowlane.conf >/etc/haproxy/spoe-slowlane.conf
grep 'timeout processing 10s' /etc/haproxy/spoe-slowlane.conf
sed 's|# \(http-request deny deny_status 503 unless .*slowlane.verdict\)|\1|' \
    /usr/share/slowlane/haproxy/haproxy-2.6-hold.cfg >/root/haproxy.cfg
grep '^ *http-request deny deny_status 503' /root/haproxy.cfg
haproxy -f /root/haproxy.cfg >/root/log &
proxy=$!
cat >/root/load.py <<'END'
LOAD
END
python3 /root/load.py &
load=$!
eventually more 300

# While requests come, the new version takes over from the old one with its table, and the old one from the new one. The
# policy of this machine allows it in words of its own.
printf '#!/bin/sh\n[ "$1" = slowlane.service ] && exit 104\nexit 101\n' >/usr/sbin/policy-rc.d
chmod 755 /usr/sbin/policy-rc.d
for version in 2 1; do
    agent=$(pid)
    dpkg --force-confdef --force-confold --force-downgrade -i /mnt/$version.deb >/root/said 2>&1
    fails grep 'restarted' /root/said
    [ "$(pid)" != "$agent" ]
    [ "$(readlink "/proc/$(pid)/exe")" = /usr/bin/slowlane ]
    spend 403
    [ "$(systemctl is-active slowlane)" = active ]
    [ "$(systemctl show -p NRestarts --value slowlane)" = 0 ]
    eventually more $(($(cut -d ' ' -f 1 /root/counted) + 300))
done
touch /root/enough
wait $load
cat /root/counted
grep '^[0-9]* 0 ' /root/counted

# A config with which no version starts leaves the old one in service.
agent=$(pid)
cp /etc/slowlane/slowlane.toml /root/
echo 'nonsense = 1' >>/etc/slowlane/slowlane.toml
dpkg --force-confdef --force-confold -i /mnt/2.deb >/root/said 2>&1
grep 'slowlane.toml:[0-9]*: unknown field' /root/said
grep 'the old version keeps serving' /root/said
[ "$(pid)" = "$agent" ]
ask 9002 /readyz | grep '^ready$'
cp /root/slowlane.toml /etc/slowlane/

# Without an answer of the daemon, it is restarted, and the operator reads so.
agent=$(pid)
sed -i 's|^socket = "/run/slowlane/admin.sock"|# &|' /etc/slowlane/slowlane.toml
sed -i '/^\[admin\]/,/^\[/ s|^listen = .*|listen = []|' /etc/slowlane/slowlane.toml
systemctl restart slowlane
agent=$(pid)
dpkg --force-confdef --force-confold --force-downgrade -i /mnt/1.deb >/root/said 2>&1
grep 'could not take over, so the service is restarted' /root/said
[ "$(pid)" != "$agent" ]
[ "$(systemctl is-active slowlane)" = active ]

# Where packages must not restart services, it is left alone.
printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
agent=$(pid)
dpkg --force-confdef --force-confold -i /mnt/2.deb
[ "$(pid)" = "$agent" ]
kill $proxy
"#
        .replace("LOAD", LOAD.trim()),
    );
}

/// Nothing that the tests need is in the package of sources, and all that cargo needs is.
#[test]
fn cargo_packages_the_sources_without_the_tests() {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["package", "--list", "--allow-dirty", "--locked", "--offline"]).current_dir(project(""));
    let output = cargo.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let listed = String::from_utf8(output.stdout).unwrap();
    let files: BTreeSet<&str> = listed.lines().collect();
    for file in ["Cargo.toml", "Cargo.lock", "README.md", "src/main.rs", "src/cli/man.rs", "slowlane.toml"] {
        assert!(files.contains(file), "no {file}:\n{listed}");
    }
    assert!(!files.iter().any(|file| file.starts_with("tests/") || file.starts_with(".ci/")), "{listed}");
}

fn dockerfile() -> String {
    fs::read_to_string(project("Dockerfile")).unwrap()
}

/// What a part of the Dockerfile copies from the sources.
fn copied(dockerfile: &str) -> BTreeSet<String> {
    let lines = dockerfile.lines().filter_map(|line| line.strip_prefix("COPY "));
    let sources = |line: &str| {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        words[..words.len() - 1].to_vec()
    };
    lines.filter(|line| !line.contains("--from=")).flat_map(sources).collect()
}

/// The image is built of what Cargo.toml asks for. Nothing here builds it.
#[test]
fn the_dockerfile_names_the_compiler_that_cargo_asks_for() {
    let manifest = fs::read_to_string(project("Cargo.toml")).unwrap();
    let line = manifest.lines().find_map(|line| line.strip_prefix("rust-version = "));
    let version = line.unwrap().trim_matches('"');
    assert!(dockerfile().contains(&format!("FROM rust:{version}-")), "Dockerfile: not rust {version}");
}

/// The files that `include_str!` puts into the program, from the top of the sources.
fn included() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut folders = vec![project("src"), project("crates"), project("tools")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                for named in text.split("include_str!(\"").skip(1) {
                    let file = folder.join(named.split('"').next().unwrap()).canonicalize().unwrap();
                    let file = file.strip_prefix(project("").canonicalize().unwrap()).unwrap();
                    found.insert(file.to_str().unwrap().to_owned());
                }
            }
        }
    }
    found
}

/// The folders of the crates of this project that the program depends on.
fn local_crates() -> Vec<String> {
    let manifest = fs::read_to_string(project("Cargo.toml")).unwrap();
    let (dependencies, _) = manifest.split_once("[dev-dependencies]").unwrap();
    let paths = dependencies.split("path = \"").skip(1).map(|rest| rest.split('"').next().unwrap());
    paths.filter(|path| path.starts_with("crates/")).map(str::to_owned).collect()
}

/// What `.dockerignore` keeps out, the Dockerfile cannot copy; and what it does not copy before it builds, cargo cannot read.
#[test]
fn the_image_is_built_of_all_that_the_program_includes() {
    let dockerfile = dockerfile();
    let let_in = fs::read_to_string(project(".dockerignore")).unwrap();
    let let_in: BTreeSet<&str> = let_in.lines().filter_map(|line| line.strip_prefix('!')).collect();
    for source in copied(&dockerfile) {
        assert!(project(&source).exists(), "COPY {source}: is not in the sources");
        assert!(let_in.contains(source.as_str()), "COPY {source}: is kept out by .dockerignore");
    }
    let (before, _) = dockerfile.split_once("RUN cargo build").unwrap();
    let copied = copied(before);
    let included = included();
    assert!(included.len() > 10, "{included:?}");
    let crates = local_crates();
    assert!(crates.len() >= 3, "{crates:?}");
    let manifests = crates.iter().map(|folder| format!("{folder}/Cargo.toml"));
    let files: Vec<String> = included.into_iter().chain(manifests).collect();
    for file in files.iter().map(String::as_str).chain(["Cargo.toml", "Cargo.lock", "src/main.rs"]) {
        let is_copied = copied.iter().any(|source| Path::new(file).starts_with(source));
        assert!(is_copied, "{file} is not there when the image is built");
    }
}
