//! The pods of the manifests for Kubernetes: their references lead somewhere, and their slowlanes run as processes.

use std::fs;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::files::{haproxy_takes, policy_is_sound, yaml};
use crate::cli::ran;
use crate::support::process::Process;
use crate::support::slowlane::BINARY;
use crate::support::{client, eventually, own_address, project};

const TOKEN: &str = "0123456789abcdef";

/// The objects of each file. None, and a skip, without a parser on this machine.
pub fn objects<const N: usize>(files: [&str; N]) -> Option<[Vec<Value>; N]> {
    let parsed = files.into_iter().map(|file| yaml(&project("examples/kubernetes").join(file)));
    parsed.collect::<Option<Vec<_>>>()?.try_into().ok()
}

/// The objects of every file with pods.
fn manifests() -> Option<Vec<Value>> {
    Some(objects(["sidecar.yaml", "cluster.yaml", "deployment.yaml", "daemonset.yaml"])?.concat())
}

pub fn of_kind<'a>(objects: &'a [Value], kind: &'a str) -> impl Iterator<Item = &'a Value> {
    objects.iter().filter(move |object| object["kind"] == kind)
}

/// A list of a manifest, empty if it is absent.
pub fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    list(pod, "/spec/initContainers").iter().chain(list(pod, "/spec/containers"))
}

/// Writes the files of a config map to a folder, each with an edit.
fn written(map: &Value, folder: &Path, edit: impl Fn(&str) -> String) {
    fs::create_dir_all(folder).unwrap();
    for (file, text) in map["data"].as_object().unwrap() {
        fs::write(folder.join(file), edit(text.as_str().unwrap())).unwrap();
    }
}

#[test]
fn every_reference_of_a_manifest_leads_somewhere() {
    let Some(objects) = manifests() else { return };
    let pods: Vec<&Value> = objects.iter().filter_map(|object| object.pointer("/spec/template")).collect();
    assert_eq!(pods.len(), 4);
    for pod in &pods {
        let volumes = list(pod, "/spec/volumes");
        for volume in volumes.iter().filter(|volume| volume["secret"].is_null()) {
            let map = &volume["configMap"]["name"];
            assert!(of_kind(&objects, "ConfigMap").any(|own| &own["metadata"]["name"] == map), "{volume}");
        }
        for container in containers(pod) {
            for mount in list(container, "/volumeMounts") {
                assert!(volumes.iter().any(|volume| volume["name"] == mount["name"]), "{mount}");
            }
            for probe in ["/livenessProbe/httpGet/port", "/readinessProbe/httpGet/port"] {
                let port = container.pointer(probe);
                let is_own = |port: &Value| list(container, "/ports").iter().any(|own| &own["name"] == port);
                assert!(port.is_none_or(is_own), "{container}");
            }
        }
    }
    let ports = |pod| containers(pod).flat_map(|container| list(container, "/ports")).collect::<Vec<_>>();
    let selected = |labels: &Value| *pods.iter().find(|pod| &pod["metadata"]["labels"] == labels).unwrap();
    for service in of_kind(&objects, "Service") {
        let own = ports(selected(&service["spec"]["selector"]));
        for port in list(service, "/spec/ports") {
            assert!(own.iter().any(|own| own["name"] == port["targetPort"]), "{port}");
        }
    }
    for policy in
        of_kind(&objects, "NetworkPolicy").filter(|policy| policy["spec"]["podSelector"] != json!({}))
    {
        let own = ports(selected(&policy["spec"]["podSelector"]["matchLabels"]));
        for port in list(policy, "/spec/ingress").iter().flat_map(|rule| list(rule, "/ports")) {
            assert!(own.iter().any(|own| own["containerPort"] == port["port"]), "{port}");
        }
    }
    for budget in of_kind(&objects, "PodDisruptionBudget") {
        selected(&budget["spec"]["selector"]["matchLabels"]);
    }
}

#[test]
fn no_container_of_ours_has_a_privilege() {
    let Some(objects) = manifests() else { return };
    let mut containers_seen = 0;
    for pod in objects.iter().filter_map(|object| object.pointer("/spec/template")) {
        let all = &pod["spec"]["securityContext"];
        assert_eq!(pod["spec"]["automountServiceAccountToken"], false);
        assert_eq!(all["seccompProfile"]["type"], "RuntimeDefault");
        for container in containers(pod).filter(|container| container["name"] != "app") {
            let own = &container["securityContext"];
            assert!(all["runAsNonRoot"] == true || own["runAsNonRoot"] == true, "{container}");
            assert_eq!(own["readOnlyRootFilesystem"], true, "{container}");
            assert_eq!(own["allowPrivilegeEscalation"], false, "{container}");
            assert_eq!(own["capabilities"], json!({ "drop": ["ALL"] }), "{container}");
            assert!(container["resources"]["requests"]["memory"].is_string(), "{container}");
            containers_seen += 1;
        }
    }
    assert_eq!(containers_seen, 5);
}

/// A mend of one is a mend of the other. Only a Deployment has pods to wait for, and nodes to choose.
#[test]
fn the_daemonset_runs_the_pods_of_the_deployment() {
    let Some(files) = objects(["deployment.yaml", "daemonset.yaml"]) else { return };
    let [of_deployment, of_daemonset] = files.map(|objects| {
        let mut pod = objects[0]["spec"]["template"].clone();
        let spec = pod["spec"].as_object_mut().unwrap();
        for own in ["terminationGracePeriodSeconds", "topologySpreadConstraints"] {
            spec.remove(own);
        }
        spec["containers"][0].as_object_mut().unwrap().remove("lifecycle");
        pod
    });
    assert_eq!(of_deployment, of_daemonset);
}

#[test]
fn the_files_of_the_sidecar_are_sound() {
    let Some([objects]) = objects(["sidecar.yaml"]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for map in of_kind(&objects, "ConfigMap") {
        let name = map["metadata"]["name"].as_str().unwrap();
        written(map, &path(name), |text| text.replace("/usr/local/etc/haproxy/", ""));
    }
    policy_is_sound(&path("slowlane-policy"));
    haproxy_takes(&path("slowlane-haproxy"));
    let sidecar =
        containers(&of_kind(&objects, "Deployment").next().unwrap()["spec"]["template"]).next().unwrap();
    for probe in ["startupProbe", "livenessProbe"] {
        let command = &sidecar[probe]["exec"]["command"];
        assert_eq!(command, &json!(["/usr/bin/slowlane", "why", "source=127.0.0.1"]));
    }
    let policy = path("slowlane-policy");
    assert_eq!(ran(&["why", "source=127.0.0.1", "--policy", policy.to_str().unwrap()]).code, 0);
}

/// The slowlane of a pod, with an address of its own, and its mounted files in a folder of the test.
struct Pod {
    container: Value,
    _process: Process,
    ip: IpAddr,
    folder: TempDir,
}

impl Pod {
    fn start(template: &Value, maps: &[Value], store: Option<IpAddr>) -> Pod {
        let (folder, ip) = (tempfile::tempdir().unwrap(), own_address().ip());
        let container = containers(template).find(|container| container["name"] == "slowlane").unwrap();
        let at_home = |text: &str| {
            let text = text.replace("/etc/slowlane", folder.path().to_str().unwrap());
            let text = text.replace("0.0.0.0:", &format!("{ip}:")).replace("$(STORE_TOKEN)", TOKEN);
            store.map_or(text.clone(), |store| text.replace("slowlane-store:", &format!("{store}:")))
        };
        for mount in list(container, "/volumeMounts") {
            let volume =
                list(template, "/spec/volumes").iter().find(|own| own["name"] == mount["name"]).unwrap();
            let path = mount["mountPath"].as_str().unwrap().strip_prefix("/etc/slowlane/").unwrap();
            let path = folder.path().join(path);
            let name = &volume["configMap"]["name"];
            match of_kind(maps, "ConfigMap").find(|map| &map["metadata"]["name"] == name) {
                Some(map) => written(map, &path, at_home),
                None => secret(&path),
            }
        }
        let args = list(container, "/args").iter().map(|arg| at_home(arg.as_str().unwrap()));
        let mut process = Process::start(Command::new(BINARY).args(args));
        process.logged("admin on ");
        assert!(!process.log().iter().any(|line| line.contains(" WARN ")), "{:?}", process.log());
        Pod { container: container.clone(), _process: process, ip, folder }
    }

    /// The address of a port by its name.
    fn at(&self, port: &Value) -> SocketAddr {
        let port = list(&self.container, "/ports").iter().find(|own| &own["name"] == port).unwrap();
        SocketAddr::new(self.ip, port["containerPort"].as_u64().unwrap() as u16)
    }

    fn config(&self, name: &str) -> PathBuf {
        self.folder.path().join("config").join(name)
    }
}

/// The keys of the secret that the README creates.
fn secret(folder: &Path) {
    let readme = fs::read_to_string(project("examples/kubernetes/README.md")).unwrap();
    fs::create_dir(folder).unwrap();
    for key in readme.split("--from-literal=").skip(1).map(|rest| rest.split('=').next().unwrap()) {
        fs::write(folder.join(key), TOKEN).unwrap();
        fs::set_permissions(folder.join(key), fs::Permissions::from_mode(0o440)).unwrap();
    }
}

#[test]
fn the_agents_join_the_token_server_and_answer_their_probes() {
    let Some([cluster, agents]) = objects(["cluster.yaml", "deployment.yaml"]) else { return };
    let template =
        |objects: &[Value]| of_kind(objects, "Deployment").next().unwrap()["spec"]["template"].clone();
    let store = Pod::start(&template(&cluster), &cluster, None);
    let agents = [0, 1].map(|_| Pod::start(&template(&agents), &cluster, Some(store.ip)));
    policy_is_sound(&agents[0].folder.path().join("policy"));
    for (pod, config) in [(&store, "store.toml"), (&agents[0], "agent.toml")] {
        let outcome = ran(&["check", "--strict", "--config", pod.config(config).to_str().unwrap()]);
        assert_eq!((outcome.code, outcome.problems), (0, vec![]), "{config}");
        for port in list(&pod.container, "/ports") {
            TcpStream::connect(pod.at(&port["name"])).unwrap_or_else(|error| panic!("{port}: {error}"));
        }
        for probe in ["livenessProbe", "readinessProbe"] {
            let probe = &pod.container[probe]["httpGet"];
            let (address, path) = (pod.at(&probe["port"]), probe["path"].as_str().unwrap());
            // The kubelet names the pod's address, and has no token.
            assert_eq!(client::get(address, path, &[("Host", "10.0.0.7:9002")]).status, 200, "{path}");
            assert_eq!(client::get(address, "/metrics", &[]).status, 401);
        }
    }
    let config = agents[0].config("agent.toml");
    eventually("both agents have joined", || {
        let outcome = ran(&["status", "cluster", "--config", config.to_str().unwrap()]).out;
        (outcome.contains(": up for ") && outcome.lines().skip(3).count() == 2).then_some(())
    });
}
